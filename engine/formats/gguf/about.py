"""What a GGUF file is, and whether it is served, from its header alone."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CheckpointError
from engine.formats.gguf.config import config_of
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.tokenizer import check_tokenizer


@dataclass(frozen=True, slots=True)
class About:
    """A file in words."""

    architecture: str
    data_type: str  #: that of most bytes
    num_bytes: int  #: of all parts
    refused: str  #: why it is not served; empty: it is, as far as its header says


def about(path: Path) -> About:
    """path: of the file, or of the first of its parts. Raises CheckpointError for one that cannot be read."""
    file = GgufFile(path)
    sizes = Counter[str]()
    for tensor in file.tensors.values():
        sizes[tensor.block.name] += tensor.num_bytes
    refused = ""
    try:
        config_of(file)
        check_tokenizer(file)
    except CheckpointError as error:
        refused = str(error)
    return About(
        str(file.settings.get("general.architecture", "")),
        max(sizes, key=sizes.__getitem__, default=""),
        sum(part.stat().st_size for part in file.paths),
        refused,
    )
