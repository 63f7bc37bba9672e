"""Base images made from Debian's packages by debootstrap, for machines that reach no registry of images.

They get the names that the Dockerfile and docker-compose.yml ask for.
"""

import re
import subprocess
import tempfile
from pathlib import Path

from tests.containers.podman import Podman

ROOT = Path(__file__).parents[2]
MIRROR = "http://deb.debian.org/debian"
#: Python with its headers, as the official image has them, and venv; 3.11 is the one of this release.
_PYTHON = ("python3", "python3-venv", "libpython3.11-dev", "ca-certificates")
_LEFT_OUT = ("var/cache/apt/archives/*.deb", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/man/*")
_STORE = """FROM {base}
RUN apt-get update && apt-get install --yes --no-install-recommends redis-server && rm -rf /var/lib/apt/lists/* \\
    && install --directory --owner=999 --group=999 /data
WORKDIR /data
"""


def python_base() -> str:
    """The base that the Dockerfile names."""
    [name] = re.findall(r"^ARG BASE=(\S+)$", (ROOT / "docker" / "Dockerfile").read_text(), re.MULTILINE)
    return f"docker.io/library/{name}"


def store_base() -> str:
    """The image of the store in docker-compose.yml."""
    [name] = re.findall(r"image: (redis:\S+)", (ROOT / "docker-compose.yml").read_text())
    return f"docker.io/library/{name}"


def make_bases(podman: Podman) -> None:
    """Make both images unless they are there; two to three minutes. Needs root and debootstrap."""
    if not podman.has_image(python_base()):
        with tempfile.TemporaryDirectory() as folder:
            release = ["--variant=minbase", f"--include={','.join(_PYTHON)}", "bookworm", folder, MIRROR]
            subprocess.run(["debootstrap", *release], check=True, stdout=subprocess.DEVNULL)
            left_out = [f"--exclude=./{path}" for path in _LEFT_OUT]
            with subprocess.Popen(["tar", "-C", folder, *left_out, "-c", "."], stdout=subprocess.PIPE) as archive:
                podman.run("import", "-", python_base(), stdin=archive.stdout)
    if not podman.has_image(store_base()):
        with tempfile.NamedTemporaryFile("w", suffix=".Containerfile") as file:
            file.write(_STORE.format(base=python_base()))
            file.flush()
            podman.run(
                "build",
                "--format=docker",
                "--network=host",
                f"--tag={store_base()}",
                f"--file={file.name}",
                ROOT / "docker",
            )
