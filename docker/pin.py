"""Writes docker/constraints.txt anew: `python docker/pin.py` asks pip which versions the images would get today.

pip resolves the requirements of all images together in the running interpreter, which has the version of Python of the
images, and installs nothing. NVIDIA's packages are left out: the CUDA build of torch names their exact versions.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from requirements import EXTRAS, requirements

ROOT = Path(__file__).parents[1]
_HEAD = "# Versions of the packages in the container images. Written by `python docker/pin.py`.\n"


def pins() -> list[str]:
    """`NAME==VERSION` of every package, sorted; without the part of a version that names a build, such as +cpu."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = requirements(project, tuple(extra for extras in EXTRAS.values() for extra in extras))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), *wanted], check=True)
        chosen = [row["metadata"] for row in json.loads(report.read_text())["install"]]
    names = {row["name"].lower().replace("_", "-"): row["version"].partition("+")[0] for row in chosen}
    return [f"{name}=={names[name]}" for name in sorted(names) if not name.startswith(("nvidia-", "cuda-"))]


if __name__ == "__main__":
    (ROOT / "docker" / "constraints.txt").write_text(_HEAD + "".join(f"{pin}\n" for pin in pins()))
