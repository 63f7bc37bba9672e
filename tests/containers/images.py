"""Builds the images from docker/Dockerfile, says how large they are and what an edit of the source builds again."""

import configparser
import os
import shutil
import tempfile
import time
from pathlib import Path

from tests.containers.podman import Podman

ROOT = Path(__file__).parents[2]
NAMES = {"controller": "agon-controller", "worker": "agon-worker", "webui": "agon-webui", "gpu": "agon-worker-gpu"}


def build(podman: Podman, target: str, arguments: tuple[str, ...], context: Path = ROOT) -> tuple[float, str]:
    """Seconds that a build took, and what it printed."""
    started = time.monotonic()
    words = ["--format=docker", "--network=host", *_mounts(), *(f"--build-arg={each}" for each in arguments)]
    # --format docker: podman's own format has no HEALTHCHECK.
    printed = podman.run("build", *words, f"--target={target}", f"--tag={NAMES[target]}", "--file=docker/Dockerfile", context)
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


def _mounts() -> list[str]:
    """pip's configuration of this machine, and the folders that it names, are there while images are built."""
    config = Path("/etc/pip.conf")
    if not config.is_file():
        return []
    parser = configparser.ConfigParser()
    parser.read(config)
    words = " ".join(parser["global"].values() if "global" in parser else ()).split()
    words += os.environ.get("PIP_FIND_LINKS", "").split()
    places = {Path(word.removeprefix("file://")) for word in words}
    return [f"--volume={place}:{place}:ro" for place in sorted({config, *places}) if place.is_absolute() and place.exists()]
