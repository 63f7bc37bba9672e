"""`agon models find`: the models that lie in the caches of the hub, of Ollama and of LM Studio."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engine.errors import CheckpointError
from engine.json_files import read_object
from engine.model_files import gguf_name, is_gguf, is_later_part

app = typer.Typer(add_completion=False, no_args_is_help=True)

_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine."""

    name: str
    source: str  #: what `agon serve` takes
    cache: str  #: whose it is
    num_bytes: int
    architecture: str
    data_type: str  #: that of most bytes
    refused: str  #: why it is not served; empty: it is


@app.command("find")
def find_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Show the models in the caches of the hub, of Ollama and of LM Studio, and whether Agon serves them."""
    found = [_described(name, path, cache) for cache, name, path in (*_of_hub(), *_of_ollama(), *_of_lm_studio())]
    if as_json:
        print(json.dumps([asdict(model) for model in found], indent=2))
        return
    if not found:
        print("There are no models in the caches of the hub, of Ollama and of LM Studio.")
        return
    table = Table("model", "cache", "size", "architecture", "type", "served")
    for model in found:
        size = f"{model.num_bytes / _GIB:.1f} GiB"
        cells = (model.name, model.cache, size, model.architecture, model.data_type, model.refused or "yes")
        table.add_row(*map(escape, cells))
    Console().print(table)
    print("agon serve NAME=SOURCE serves one; --json prints their sources.")


def _of_hub() -> Iterator[tuple[str, str, Path]]:
    """The newest snapshot of each repository: its folder, and each of its GGUF files."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    root = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    for repository in sorted(root.glob("models--*")):
        snapshots = sorted((repository / "snapshots").glob("*/"), key=lambda path: path.stat().st_mtime)
        if not snapshots:
            continue
        name, folder = repository.name.removeprefix("models--").replace("--", "/"), snapshots[-1]
        if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
            yield "hub", name, folder
        for file in sorted(folder.rglob("*.gguf")):
            if not is_later_part(file):
                yield "hub", f"{name}/{gguf_name(file)}", file


def _of_ollama() -> Iterator[tuple[str, str, Path]]:
    """The weights that manifests name; the file of a blob has the name of its digest."""
    root = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models").expanduser()
    for manifest in sorted((root / "manifests").rglob("*")):
        if not manifest.is_file():
            continue
        try:
            layers = read_object(manifest).get("layers")
        except CheckpointError:
            continue
        for layer in layers if isinstance(layers, list) else ():
            if isinstance(layer, dict) and layer.get("mediaType") == _OLLAMA_WEIGHTS:
                blob = root / "blobs" / str(layer.get("digest")).replace(":", "-").replace("/", "-")
                if is_gguf(blob):
                    yield "Ollama", f"{manifest.parent.name}:{manifest.name}", blob


def _of_lm_studio() -> Iterator[tuple[str, str, Path]]:
    for root in (Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"):
        for file in sorted(root.glob("*/*/*.gguf")):
            if not is_later_part(file):
                yield "LM Studio", f"{file.parent.parent.name}/{gguf_name(file)}", file


def _described(name: str, path: Path, cache: str) -> FoundModel:
    if path.is_file():
        return _described_file(name, path, cache)
    from engine.models.config_reader import ConfigReader  # imports torch
    from engine.models.registry import architecture_of

    num_bytes = sum(file.stat().st_size for file in path.glob("*.safetensors"))
    refused, found, data_type = "", "", ""
    try:
        config = read_object(path / "config.json")
        data_type = _text_in(config, "dtype") or _text_in(config, "torch_dtype")
        found = ", ".join(map(str, config.get("architectures") or []))
        architecture_of(ConfigReader(config))
    except CheckpointError as error:
        refused = str(error)
    return FoundModel(name, name, cache, num_bytes, found, data_type, refused)


def _described_file(name: str, path: Path, cache: str) -> FoundModel:
    from engine.formats.gguf.about import about  # imports torch

    try:
        found = about(path)
    except CheckpointError as error:
        return FoundModel(name, str(path), cache, path.stat().st_size, "", "", str(error))
    return FoundModel(name, str(path), cache, found.num_bytes, found.architecture, found.data_type, found.refused)


def _text_in(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""
