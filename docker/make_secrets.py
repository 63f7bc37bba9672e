"""Makes the secrets of an arena as files: `python docker/make_secrets.py [FOLDER [MORE_NAMES ...]]`.

Keeps those that are there. Without a folder: docker/secrets, for docker-compose.secrets.yml.

A service reads them as a user of its own, so a file can be read by all (0444) and its folder by its owner only (0700).
"""

import os
import secrets
import sys
from collections.abc import Iterable
from pathlib import Path

NAMES = ("worker_token", "admin_token", "voter_key", "proxy_token")


def make(folder: Path, names: Iterable[str]) -> None:
    """Write the secrets that `folder` lacks."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in names:
        try:
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        except FileExistsError:
            continue
        with open(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
        (folder / name).chmod(0o444)  # whatever the umask is


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "secrets"
    make(chosen, (*NAMES, *sys.argv[2:]))
