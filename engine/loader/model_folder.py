"""From a model's name to its folder and its config: a local folder, a GGUF file, a hub id, or a hub id with the data
type of a GGUF file (ORGANISATION/MODEL:Q4_K_M).
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError, CheckpointUnavailable
from engine.formats.gguf.folder import folder_of_gguf
from engine.json_files import read_object
from engine.model_files import HUB_FILE, is_gguf

#: Weights, settings, tokenizer and templates; no pickles, no code, and from sub-folders (other formats live there) only
#: that of the pooling module.
_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt")
_NOT_WANTED = ("[!1]*/*", "1/*", "1[!_]*/*", "1_[!P]*/*")
#: Files that are no text models of their own: towers, and layers that predict several tokens.
_PARTS_OF_OTHERS = ("*mmproj*", "*mtp-*")


def find_model_folder(model: str) -> Path:
    """The local folder of a model; a hub id is downloaded, or found in the local cache when there is no network. A GGUF
    file gets a folder in the cache; of a file in several parts the first one is given.

    Raises CheckpointError.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if is_gguf(path):
        return folder_of_gguf(path)
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_like_path:
        raise CheckpointError(f"there is no folder {path}")
    typed = HUB_FILE.fullmatch(model)
    if typed is None:
        return _downloaded(model, _WANTED, _NOT_WANTED)
    return folder_of_gguf(_file_of_type(typed[1], typed[2]))


def _file_of_type(repository: str, data_type: str) -> Path:
    """The GGUF file whose name ends in that data type, in upper or lower case; of several the one with the shortest
    name, and of a file in parts the first one."""
    spellings = {data_type, data_type.upper(), data_type.lower()}
    patterns = [f"*{each}{part}.gguf" for each in sorted(spellings) for part in ("", "-[0-9]*-of-[0-9]*")]
    folder = _downloaded(repository, patterns, _PARTS_OF_OTHERS)
    own = re.compile(rf"(?:.*[^A-Za-z0-9])?{re.escape(data_type)}(?:-00001-of-\d{{5}})?\.gguf", re.IGNORECASE)
    files = [file for file in folder.rglob("*.gguf") if own.fullmatch(file.name)]
    files = [file for file in files if not any(fnmatch(file.name, pattern) for pattern in _PARTS_OF_OTHERS)]
    if not files:
        raise CheckpointError(f"{repository} has no GGUF file whose name ends in {data_type}")
    return min(files, key=lambda file: (len(file.name), file.name))


def _downloaded(repository: str, wanted: Sequence[str], not_wanted: Sequence[str]) -> Path:
    """The files of a repository of the hub that match the patterns. Raises CheckpointError."""
    from huggingface_hub import snapshot_download  # slow to import, and not needed for local folders
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, allow_patterns=list(wanted), ignore_patterns=list(not_wanted)))
    except LocalEntryNotFoundError as error:
        message = f"{repository} is neither a folder nor in the local cache, and the model hub cannot be reached"
        raise CheckpointUnavailable(message) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(
            f"{repository} is neither a folder nor a model that the hub gives us: {reason}"
        ) from error


def read_config(folder: Path) -> Mapping[str, Any]:
    """The values of config.json. Raises CheckpointError where it is missing or is no JSON object."""
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder} has no config.json")
    return read_object(file)
