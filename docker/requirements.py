"""Writes what each image has to install, without Agon itself, from pyproject.toml: `python requirements.py FOLDER`.

Reads the file in FOLDER and writes FOLDER/IMAGE.txt. Standard library only; runs while the images are built.

A layer with these packages depends on this list alone, so that an edit of the source installs nothing again.
"""

import re
import sys
import tomllib
from pathlib import Path

#: The extras of each image. Traces are sent by the controller only.
EXTRAS = {
    "controller": ("controller", "traces"),
    "worker": ("worker",),
    "gpu": ("gpu",),
    "webui": ("webui",),
}
_OWN = re.compile(r"agon\[([\w,]+)\]")


def requirements(project: dict[str, object], extras: tuple[str, ...]) -> list[str]:
    """The requirements of the project and these extras, with extras that stand for others resolved; sorted."""
    optional = project["optional-dependencies"]
    assert isinstance(optional, dict)
    found: set[str] = set(map(str, project["dependencies"]))  # type: ignore[call-overload]
    for extra in extras:
        for requirement in optional[extra]:
            own = _OWN.fullmatch(requirement)
            found |= set(requirements(project, tuple(own[1].split(",")))) if own else {requirement}
    return sorted(found)


def main() -> None:
    """Write one file for each image."""
    folder = Path(sys.argv[1])
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    for image, extras in EXTRAS.items():
        (folder / f"{image}.txt").write_text("".join(f"{line}\n" for line in requirements(project, extras)))


if __name__ == "__main__":
    main()
