"""`python -m tests.cluster.environment FOLDER`: a virtual environment with Ray over the one that runs this.

Ray takes 240 MB on disk, which only these tests need; everything else is read from this environment through a .pth
file.
"""

import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

_PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def requirement() -> str:
    """What the extra `cluster` says of Ray."""
    extras = tomllib.loads(_PROJECT.read_text())["project"]["optional-dependencies"]
    return next(str(line) for line in extras["cluster"] if line.startswith("ray"))


def main() -> None:
    """Make it, or bring Ray up to the requirement."""
    folder = Path(sys.argv[1])
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "arena.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run([python, "-m", "pip", "install", "--quiet", requirement()], check=True)


if __name__ == "__main__":
    main()
