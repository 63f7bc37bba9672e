"""A folder in Hugging Face layout for a GGUF file: its config and tokenizer converted, and a link to the weights."""

import hashlib
import json
import tempfile
from pathlib import Path

from engine.errors import CheckpointError
from engine.formats.gguf.config import config_of
from engine.formats.gguf.file import GgufFile
from engine.formats.gguf.tokenizer import write_tokenizer
from engine.kernels.cpu.build import cache_folder

WEIGHTS = "model.gguf"
_SOURCES = ("file", "settings", "architectures", "config", "tokenizer", "pre_tokenizers", "folder")


def folder_of_gguf(path: Path) -> Path:
    """The folder, in the cache; made on first use. Raises CheckpointError."""
    status = path.stat()
    digest = hashlib.sha256(f"{path.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns}".encode())
    for source in _SOURCES:
        digest.update(Path(__file__).with_name(f"{source}.py").read_bytes())
    target = cache_folder().parent / "gguf" / digest.hexdigest()[:16]
    if target.is_dir():
        return target
    file = GgufFile(path)
    config = config_of(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            (made / WEIGHTS).symlink_to(path.resolve())
            (made / "config.json").write_text(json.dumps(config))
            (made / "tokenizer_config.json").write_text(json.dumps(write_tokenizer(file, made)))
            if not target.is_dir():
                made.rename(target)
    except OSError as error:
        if not target.is_dir():  # another process may have been faster
            raise CheckpointError(f"cannot write {target}: {error.strerror}") from error
    return target
