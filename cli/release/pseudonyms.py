"""Ids of a release: keyed hashes that nothing outside the release can be compared with, unless its key is kept."""

import hashlib
import hmac
import secrets
from pathlib import Path

from cli.errors import CliError

_KEY_BYTES = 32
_ID_CHARS = 20


class Pseudonyms:
    """Makes ids under a key. With the key of an earlier release the same things get the same ids again."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, name: str) -> str:
        """The id of `name`, 80 bits in hexadecimal digits. Equal names of two kinds get different ids."""
        message = f"{kind}\n{name}".encode(errors="surrogatepass")
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()[:_ID_CHARS]


def release_key(path: Path | None) -> bytes:
    """The key in the file `path`, which is made if it is missing; without a path a key that nothing keeps. Raises
    CliError."""
    if path is None:
        return secrets.token_bytes(_KEY_BYTES)
    try:
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(secrets.token_hex(_KEY_BYTES) + "\n")
        key = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError) as error:
        raise CliError(f"cannot use the key of {path}: {error}.") from None
    if len(key) < _KEY_BYTES:
        raise CliError(f"{path} holds no key: it needs {2 * _KEY_BYTES} hexadecimal digits.")
    return key
