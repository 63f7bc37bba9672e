"""The key for another server: from the environment of this process or a file of mode 600, and kept nowhere.

It is read for each request, so that a new key in the file is used at once.
"""

import os
import re
import stat
from pathlib import Path

from model_worker.errors import BadSettings
from wire.hosted_models import HostedModel

_MAX_CHARS = 4096


def read_key(model: HostedModel) -> str | None:
    """The key; None: the model needs none. Raises BadSettings with a sentence that does not quote it."""
    if model.key_env is not None:
        key, where = os.environ.get(model.key_env, "").strip(), f"environment variable {model.key_env}"
        if not key:
            raise BadSettings(
                f"the worker has no {where}: start it with one, or put the key into a file (key_file) of mode 600"
            )
    elif model.key_file is not None:
        key, where = _from_file(Path(model.key_file)), f"file {model.key_file}"
    else:
        return None
    if not key or len(key) > _MAX_CHARS or not (key.isascii() and key.isprintable()) or " " in key:
        raise BadSettings(f"the {where} has no key: one line of printable ASCII characters without spaces is needed")
    return key


def key_headers(model: HostedModel) -> dict[str, str]:
    """The header with the key, or none. Raises BadSettings."""
    key = read_key(model)
    if key is None:
        return {}
    return {"Authorization": f"Bearer {key}"} if model.key_header is None else {model.key_header: key}


def _from_file(path: Path) -> str:
    if _is_our_own(path):
        raise BadSettings(
            f"the key file {path} holds a secret of the arena: keep the host's key outside of its directory"
        )
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise BadSettings(f"the key file {path} is no file")
            if stat.S_IMODE(status.st_mode) & 0o077:
                raise BadSettings(f"others may read the key file {path}: chmod 600 {path}")
            return file.read(_MAX_CHARS + 2).strip()
    except OSError as error:
        raise BadSettings(f"cannot read the key file {path}: {error.strerror}") from None


def _is_our_own(path: Path) -> bool:
    """Whether a file is one of Agon's: named by a setting, or in a data directory of `agon up`. An administrator who
    names a host may not have the secrets of the arena."""
    file = path.resolve()
    named = {Path(value).resolve() for name, value in os.environ.items() if re.fullmatch(r"AGON_\w+_FILE", name)}
    return file in named or any((folder / "agon.lock").exists() for folder in file.parents)
