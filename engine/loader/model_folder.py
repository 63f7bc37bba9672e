"""From a model's name to its folder and its config: a local folder, a GGUF file, or a hub id."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import CheckpointError, CheckpointUnavailable
from engine.formats.gguf.folder import folder_of_gguf
from engine.json_files import read_object

#: Weights, settings, tokenizer and templates; no pickles, no code, and from sub-folders (other formats live there) only
#: that of the pooling module.
_WANTED = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt")
_NOT_WANTED = ("[!1]*/*", "1/*", "1[!_]*/*", "1_[!P]*/*")


def find_model_folder(model: str) -> Path:
    """The local folder of a model; a hub id is downloaded, or found in the local cache when there is no network. A GGUF
    file gets a folder in the cache.

    Raises CheckpointError.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.suffix == ".gguf" and folder.is_file():
        return folder_of_gguf(folder)
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_like_path:
        raise CheckpointError(f"there is no folder {folder}")
    from huggingface_hub import snapshot_download  # slow to import, and not needed for local folders
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, allow_patterns=list(_WANTED), ignore_patterns=list(_NOT_WANTED)))
    except LocalEntryNotFoundError as error:
        message = f"{model} is neither a folder nor in the local cache, and the model hub cannot be reached"
        raise CheckpointUnavailable(message) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CheckpointError(f"{model} is neither a folder nor a model that the hub gives us: {reason}") from error


def read_config(folder: Path) -> Mapping[str, Any]:
    """The values of config.json. Raises CheckpointError where it is missing or is no JSON object."""
    file = folder / "config.json"
    if not file.is_file():
        raise CheckpointError(f"{folder} has no config.json")
    return read_object(file)
