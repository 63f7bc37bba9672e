"""A PEFT folder: its configuration, and the matrices in adapter_model.safetensors by layer. Nothing is unpickled.

Knows no model; every tensor in the file is read or refused.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.adapters.lora_config import LoraConfig
from engine.errors import AdapterError, CheckpointError
from engine.json_files import some_of
from engine.loader.safetensors_files import open_safetensors

_WEIGHTS = "adapter_model.safetensors"
_CONFIG = "adapter_config.json"
_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(?P<layer>.+)\.(?P<part>lora_A\.weight|lora_B\.weight|lora_magnitude_vector(\.weight)?)")
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_MAX_RANK = 128
_READ_BYTES = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class LayerMatrices:
    """What the folder has for one layer: its update is scale * up (down x)."""

    down: torch.Tensor  #: [rank, in] float32
    up: torch.Tensor  #: [out, rank] float32
    scale: float
    magnitudes: torch.Tensor | None  #: [out] float32: lengths of the changed weight's rows (DoRA)


@dataclass(frozen=True, slots=True, eq=False)
class PeftFolder:
    """A folder that has been read and is consistent in itself."""

    config: LoraConfig
    layers: Mapping[str, LayerMatrices]  #: by the layer's name in the model that was trained
    digest: bytes  #: of both files

    @classmethod
    def read(cls, folder: Path) -> "PeftFolder":
        """Raises AdapterError for a folder without the two files, with tensors that are not supported, or with shapes
        that do not fit the configuration."""
        _check_files(folder)
        config = LoraConfig.read(folder)
        try:
            file = open_safetensors(folder / _WEIGHTS)
        except CheckpointError as error:
            raise AdapterError(str(error)) from error
        found: dict[str, dict[str, torch.Tensor]] = {}
        others: list[str] = []
        for name in sorted(file.keys()):
            match = _TENSOR.fullmatch(name)
            if match is None or not name.startswith(_PREFIX):
                others.append(name)
                continue
            layer, part = match["layer"].removeprefix(_PREFIX), match["part"].removesuffix(".weight")
            if part in found.setdefault(layer, {}):
                raise AdapterError(f"{_WEIGHTS} has {name} twice")
            found[layer][part] = _checked(name, file.get_tensor(name))
        if others:
            raise AdapterError(f"{_WEIGHTS} has tensors that are not supported: {some_of(others)}")
        if not found:
            raise AdapterError(f"{_WEIGHTS} has no tensors")
        layers = {layer: _matrices(layer, parts, config) for layer, parts in found.items()}
        return cls(config, layers, _digest(folder))


def _check_files(folder: Path) -> None:
    if not (folder / _CONFIG).is_file():
        raise AdapterError(f"{folder} is no folder of a PEFT adapter: it has no {_CONFIG}")
    if not (folder / _WEIGHTS).is_file():
        if (folder / "adapter_model.bin").exists():
            raise AdapterError(f"{folder} holds pickled weights, which are never loaded; convert them to safetensors")
        raise AdapterError(f"{folder} has no {_WEIGHTS}")


def _checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """As float32. Raises AdapterError for another type than that of floats, and for NaN and infinity."""
    if tensor.dtype not in _DTYPES:
        raise AdapterError(f"tensor {name} has dtype {str(tensor.dtype).removeprefix('torch.')}")
    tensor = tensor.float()
    if not bool(tensor.isfinite().all()):
        raise AdapterError(f"tensor {name} holds NaN or infinity")
    return tensor


def _matrices(layer: str, parts: Mapping[str, torch.Tensor], config: LoraConfig) -> LayerMatrices:
    down, up, magnitudes = (parts.get(f"lora_{name}") for name in ("A", "B", "magnitude_vector"))
    if down is None or up is None:
        raise AdapterError(f"{_WEIGHTS}: {layer} has lora_{'B' if down is None else 'A'} without the other matrix")
    if down.dim() != 2 or up.dim() != 2 or len(down) != up.shape[1]:
        raise AdapterError(f"{_WEIGHTS}: matrices {list(down.shape)} and {list(up.shape)} of {layer} do not fit")
    rank = config.rank_of(layer)
    if len(down) != rank:
        raise AdapterError(f"{_WEIGHTS}: {layer} has rank {len(down)}, {_CONFIG} says {rank}")
    if rank > _MAX_RANK:
        raise AdapterError(f"{layer} has rank {rank}; up to {_MAX_RANK} are supported")
    if config.is_dora != (magnitudes is not None):
        has = "has no" if config.is_dora else "has a"
        raise AdapterError(f"{_WEIGHTS}: {layer} {has} magnitude vector, and use_dora is {config.is_dora}".lower())
    if magnitudes is not None:
        magnitudes = magnitudes.flatten()
        if len(magnitudes) != len(up):
            raise AdapterError(f"{_WEIGHTS}: {layer} has {len(magnitudes)} magnitudes for {len(up)} outputs")
    return LayerMatrices(down, up, config.scale_of(layer), magnitudes)


def _digest(folder: Path) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for name in (_CONFIG, _WEIGHTS):
        with (folder / name).open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
        digest.update(b"\0")
    return digest.digest()
