"""Which releases of Agon work together, and the format of what they keep.

Services of one arena have the same major and minor release. A store and a data directory name the format in which they
are kept, and the release that wrote it: an older release, which would misread them, refuses before it changes anything.
"""

import json
from importlib.metadata import version

RELEASE = version("agon")
#: Format of the store's keys and of the data directory: raised with a change that the release before would misread.
FORMAT = 1


def mismatch(worker: str | None, controller: str = RELEASE) -> str | None:
    """What to do where a worker's release does not fit the controller's; None: it fits. `worker`: None for a release
    before 0.2, which does not say."""
    if worker is not None and _minor(worker) == _minor(controller):
        return None
    return (
        f"the worker has Agon {worker or 'before 0.2'} and the controller {controller}: all services of an arena have "
        "the same major and minor release, so install the controller's at the worker."
    )


def stamp() -> str:
    """What this release writes to say which format it has written."""
    return json.dumps({"format": FORMAT, "release": RELEASE})


def newer_than_this(found: str, place: str) -> str | None:
    """Why this release cannot use a place whose stamp is `found`; None: it can. Raises ValueError for a text that is no
    stamp."""
    kept = json.loads(found)
    if not isinstance(kept, dict) or not isinstance(kept.get("format"), int):
        raise ValueError(f"{place} has a damaged format: {found[:200]!r}")
    if kept["format"] <= FORMAT:
        return None
    return (
        f"{place} is kept in format {kept['format']} by Agon {kept.get('release')}, and this is Agon {RELEASE}, which "
        f"knows formats up to {FORMAT}: start that release or a newer one, or restore a copy from before the upgrade."
    )


def _minor(release: str) -> tuple[str, ...]:
    return tuple(release.split(".")[:2])
