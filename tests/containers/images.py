"""Builds the images from docker/Dockerfile, says how large they are and what an edit of the source builds again."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.containers.podman import Podman

ROOT = Path(__file__).parents[2]
NAMES = {"controller": "agon-controller", "worker": "agon-worker", "webui": "agon-webui", "gpu": "agon-worker-gpu"}
_SOURCES = ("index-url", "extra-index-url", "find-links", "cert")  #: settings of pip that say where packages come from


def build(podman: Podman, target: str, arguments: tuple[str, ...], context: Path = ROOT) -> tuple[float, str]:
    """Seconds that a build took, and what it printed."""
    started = time.monotonic()
    # --format docker: podman's own format has no HEALTHCHECK.
    words = ["--format=docker", "--network=host", *(f"--build-arg={each}" for each in arguments)]
    words += [f"--target={target}", f"--tag={NAMES[target]}", f"--file={context / 'docker' / 'Dockerfile'}"]
    with tempfile.TemporaryDirectory() as folder:
        printed = podman.run("build", *words, *_pip_of_this_machine(Path(folder)), context)
    return time.monotonic() - started, printed


def rebuild_after_an_edit(podman: Podman, target: str, arguments: tuple[str, ...]) -> tuple[float, list[str]]:
    """Seconds of a second build, after a comment was added to one source file, and the packages that it installed."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder) / "context"
        names = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
        for name in [*names, "docker/Dockerfile", ".dockerignore"]:
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, context / name)
        with (context / "wire" / "sse.py").open("a") as file:
            file.write("# an edit\n")
        seconds, printed = build(podman, target, arguments, context)
    installed = [line.split(" ", 2)[2] for line in printed.splitlines() if line.startswith("Successfully installed")]
    return seconds, " ".join(installed).split()


def sizes(podman: Podman) -> dict[str, int]:
    """Bytes of the base and of each image, without compression."""
    found = {}
    for name in NAMES.values():
        if podman.has_image(name):
            found[name] = int(podman.run("image", "inspect", "--format={{.Size}}", name))
    return found


def _pip_of_this_machine(folder: Path) -> list[str]:
    """Options that give builds this machine's sources of packages: pip's configuration and the folders in it."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    found = dict(re.findall(r"^(?:global|:env:)\.([\w-]+)='(.*)'$", listed.stdout, re.MULTILINE))
    used = {key: found[key] for key in _SOURCES if key in found}
    config = folder / "pip.conf"
    config.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in used.items()))
    words = [word.removeprefix("file://") for value in used.values() for word in value.split()]
    local = [Path(word) for word in words if word.startswith("/") and Path(word).exists()]
    places = sorted(
        {path.parent if path.name == "simple" else path for path in local}
    )  # an index names files beside it
    return [f"--volume={config}:/etc/pip.conf:ro", *(f"--volume={place}:{place}:ro" for place in places)]
