"""The config.json of a model that a command is given: of a folder, a file, a hub id, or a name that is built in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli.errors import CliError
from engine.errors import CheckpointError
from engine.json_files import read_object
from engine.memory.planning.model_configs import CONFIGS
from engine.model_files import HUB_FILE, is_gguf


def read_model_config(model: str) -> tuple[str, dict[str, Any]]:
    """A name for the model, and its config.json."""
    if model in CONFIGS:
        return model, CONFIGS[model]
    path = Path(model.partition("=")[2] if "=" in model else model)
    if is_gguf(path) or HUB_FILE.fullmatch(str(path)):
        path = _folder_of_gguf(path)
    if path.is_dir():
        path = path / "config.json"
    if not path.is_file():
        path = _download(model)
    try:
        return model, dict(read_object(path))
    except CheckpointError as error:
        raise CliError(str(error)) from None


def _folder_of_gguf(path: Path) -> Path:
    from engine.loader import find_model_folder  # imports torch

    try:
        return find_model_folder(str(path))
    except CheckpointError as error:
        raise CliError(str(error)) from None


def _download(model: str) -> Path:
    if model.count("/") != 1 or model.startswith((".", "/")):
        raise CliError(f"{model!r} is no folder, no config.json, no hub id and no model that is built in")
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(model, "config.json"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise CliError(f"cannot get the config.json of {model}: {error}") from None


def weights_line(weights: Mapping[str, int]) -> str:
    """What a model's weights take in each data type: "bfloat16 511 MiB, int8 260 MiB"."""
    return ", ".join(f"{name} {num_bytes / 2**20:,.0f} MiB" for name, num_bytes in weights.items())
