"""A folder in Hugging Face layout for a GGUF file: its config and tokenizer converted, and a link to the weights."""

import hashlib
import json
import tempfile
from pathlib import Path

from engine.errors import CheckpointError
from engine.formats.gguf.config import config_of
from engine.formats.gguf.file import GgufFile, paths_of_parts
from engine.formats.gguf.tokenizer import write_tokenizer
from engine.kernels.cpu.build import cache_folder
from engine.model_files import PART

WEIGHTS = "model.gguf"
_SOURCES = (
    *(
        f"{name}.py"
        for name in ("file", "settings", "architectures", "config", "tokenizer", "pre_tokenizers", "folder")
    ),
    *(f"families/{name}.py" for name in ("shared", "dense", "mixtures", "recurrent")),
)


def folder_of_gguf(path: Path) -> Path:
    """The folder, in the cache; made on first use. path: of the file, or of the first of its parts. Raises
    CheckpointError."""
    file: GgufFile | None = None
    if PART.search(path.stem):
        file = GgufFile(path)  # which names a part that is missing
    digest = hashlib.sha256()
    for part in [path] if file is None else file.paths:
        status = part.stat()
        digest.update(f"{part.resolve()} {status.st_ino} {status.st_size} {status.st_mtime_ns}".encode())
    for source in (file for pattern in _SOURCES for file in sorted(Path(__file__).parent.glob(pattern))):
        digest.update(source.read_bytes())
    target = cache_folder().parent / "gguf" / digest.hexdigest()[:16]
    if target.is_dir():
        return target
    file = file or GgufFile(path)
    config = config_of(file)
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
            made = Path(temporary, "made")
            made.mkdir()
            links = paths_of_parts(made / WEIGHTS, len(file.paths))
            for link, part in zip(links, file.paths, strict=True):
                link.symlink_to(part.resolve())
            (made / "config.json").write_text(json.dumps(config))
            (made / "tokenizer_config.json").write_text(json.dumps(write_tokenizer(file, made)))
            if not target.is_dir():
                made.rename(target)
    except OSError as error:
        if not target.is_dir():  # another process may have been faster
            raise CheckpointError(f"cannot write {target}: {error.strerror}") from error
    return target
