"""`python -m tests.containers`, or `make containers`: builds the images and runs docker-compose.yml under podman.

As root, in minutes. Prints a line for each thing that was tried; exit code 1 if one of them failed. Needs podman, runc,
podman-compose and a Chromium, with --local-bases also debootstrap. At the end containers and volumes are removed, and
without --keep the images, too.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.containers import bases, images
from tests.containers.arena import PROJECT, SERVICES, ContainerArena, builds_launchers
from tests.containers.podman import Podman

_KEY = "a-key-of-a-user-in-a-test"


class Report:
    """Lines of what was tried."""

    def __init__(self) -> None:
        self.num_failed = 0

    def line(self, what: str, is_right: bool, found: object) -> None:
        """Print and count one result."""
        self.num_failed += not is_right
        print(f"{'ok    ' if is_right else 'FAILED'} {what}: {found}", flush=True)


def main() -> None:
    """Run everything; see the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--local-bases", action="store_true", help="make the base images with debootstrap")
    parser.add_argument("--torch-index", help="index of torch's CPU builds, instead of the one in the Dockerfile")
    parser.add_argument("--gpu", action="store_true", help="build the GPU image, too: gigabytes")
    parser.add_argument("--keep", action="store_true", help="keep the images")
    parser.add_argument("--compose", default="podman-compose", help="the program, if it is not on PATH")
    asked = parser.parse_args()
    arguments = (f"TORCH_INDEX={asked.torch_index}",) if asked.torch_index else ()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        podman = Podman(Path(folder), asked.compose)
        try:
            if asked.local_bases:
                bases.make_bases(podman)
            try_images(podman, report, arguments, has_gpu=asked.gpu)
            arena = ContainerArena(podman)
            try:
                try_arena(arena, report)
            finally:
                arena.remove_volumes()
        finally:
            if not asked.keep:
                remove(podman)
    raise SystemExit(1 if report.num_failed else 0)


def try_images(podman: Podman, report: Report, arguments: tuple[str, ...], *, has_gpu: bool) -> None:
    """Build them, and one of them again."""
    for target in ("controller", "webui", "worker", *(["gpu"] if has_gpu else [])):
        seconds, _ = images.build(podman, target, arguments)
        report.line(f"build {target}", True, f"{seconds:.0f} s")
    for name, size in images.sizes(podman).items():
        report.line(f"size of {name}", True, f"{size / 1e6:.0f} MB")
    seconds, installed = images.rebuild_after_an_edit(podman, "worker", arguments)
    report.line("build worker after an edit", all(name.startswith("agon-") for name in installed), f"{seconds:.0f} s")
    images.build(podman, "worker", arguments)  # the one of the source again
    if has_gpu:
        where = builds_launchers(podman, images.NAMES["gpu"])
        report.line("the GPU image compiles and loads a launcher", where.startswith("/cache/"), where)
        podman.run("volume", "rm", f"{PROJECT}_kernels")


def try_arena(arena: ContainerArena, report: Report) -> None:
    """Three starts: a battle; the vote is still there; with API keys."""
    with arena.running():
        report.line("services are healthy", True, ", ".join(SERVICES))
        for service in SERVICES:
            doors = arena.open_doors(service)
            report.line(f"{service} is locked down", not doors, "; ".join(doors) or "nothing open")
        for service in ("controller", "webui"):
            report.line(f"secrets of {service}", True, arena.secret_files(service).replace("\n", ", "))
        report.line("a battle over the published port", True, f"{arena.battle()} at {arena.address}")
        report.line("votes", (votes := arena.num_votes()) == 1, votes)
    with arena.running():
        report.line("votes after down and up", (votes := arena.num_votes()) == 1, votes)
    with arena.running(AGON_API_KEYS=_KEY, AGON_API_KEY=_KEY):
        asked: dict[str, Callable[[], int]] = {
            "without a key": arena.chat_status,
            "with it": lambda: arena.chat_status(_KEY),
        }
        statuses = {how: ask() for how, ask in asked.items()}
        report.line("AGON_API_KEYS", statuses == {"without a key": 401, "with it": 200}, statuses)
        report.line("a battle with API keys", True, arena.battle())
        report.line("votes", (votes := arena.num_votes()) == 2, votes)


def remove(podman: Podman) -> None:
    """Remove the images of the project; the bases stay for the next time."""
    for name in images.NAMES.values():
        if podman.has_image(name):
            podman.run("rmi", "--force", name)


if __name__ == "__main__":
    main()
