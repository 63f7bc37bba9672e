"""Sizes in bytes as people write them: `40GiB`, `512 MiB`, or a number of bytes."""

import re

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([KMGT]iB)?\s*", re.IGNORECASE)


def is_size(text: str) -> bool:
    """Whether `parse_size` takes it."""
    return _SIZE.fullmatch(text) is not None


def parse_size(text: str) -> int:
    """The size in bytes. Raises ValueError with a sentence for people."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError("give a size such as 40GiB, 512MiB or a number of bytes")
    return int(float(found[1]) * _UNITS[(found[2] or "").upper()])
