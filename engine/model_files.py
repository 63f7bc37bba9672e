"""What the names and the first bytes of model files say, without reading them."""

import re
from pathlib import Path

#: A hub id with the data type of one of the repository's GGUF files: ORGANISATION/MODEL:Q4_K_M.
HUB_FILE = re.compile(r"([\w.-]+/[\w.-]+):([\w.-]+)")
#: The end of the name of one part of a GGUF file: its number from 1, and how many there are.
PART = re.compile(r"-(\d{5})-of-(\d{5})$")
_GGUF_MAGIC = b"GGUF"


def is_gguf(path: Path) -> bool:
    """Whether there is a GGUF file, by its name or its first bytes: in the cache of Ollama its name says nothing."""
    if not path.is_file() or path.suffix == ".gguf":
        return path.suffix == ".gguf" and path.is_file()
    try:
        with path.open("rb") as file:
            return file.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC
    except OSError:
        return False


def gguf_name(path: Path) -> str:
    """The name of a GGUF file without its ending, and without the number of its part."""
    return PART.sub("", path.stem)


def is_later_part(path: Path) -> bool:
    """Whether the name is that of a part of a GGUF file that is not the first one."""
    found = PART.search(path.stem)
    return found is not None and int(found[1]) > 1
