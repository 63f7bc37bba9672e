"""The weights of a GGUF file under the names that models take: plain tensors, and rows of blocks as bytes."""

import hashlib
import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.errors import CheckpointError
from engine.formats.format import FLOATS, Tensors, cut
from engine.formats.gguf.config import ROPE_FACTORS
from engine.formats.gguf.file import GgufFile, GgufTensor
from engine.formats.gguf.folder import WEIGHTS
from engine.json_files import read_object
from engine.kernels.quantised import QuantisedMatrix
from engine.parallel.shard import Size, full_size

_TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_IN_LAYER = re.compile(r"blk\.(\d{1,6})\.(\w+)\.(weight|bias)")
#: Projections whose heads' channels llama.cpp stores in pairs, and the number of these heads in the config.
_PAIRED = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
_REVISION_SAMPLE_BYTES = 65_536


class GgufCheckpoint:
    """The tensors of the file in a folder made by folder_of_gguf."""

    def __init__(self, folder: Path) -> None:
        self.file = GgufFile(folder / WEIGHTS)
        self._config = read_object(folder / "config.json")
        self._names: Mapping[str, str] = {_model_name(name): name for name in self.file.tensors if name != ROPE_FACTORS}
        self._has_pairs = self.file.settings.get("general.architecture") == "llama"

    @property
    def names(self) -> Set[str]:
        """Names of all tensors, as models take them."""
        return self._names.keys()

    @property
    def num_parameters(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(tensor.shape) for tensor in self.file.tensors.values())

    @property
    def revision(self) -> str:
        """Short digest of the header, of samples and of the size."""
        path = self.file.path
        digest = hashlib.sha256(str(path.stat().st_size).encode())
        with path.open("rb") as stream:
            digest.update(stream.read(self.file.header_bytes + _REVISION_SAMPLE_BYTES))
            stream.seek(-min(_REVISION_SAMPLE_BYTES, path.stat().st_size), 2)
            digest.update(stream.read())
        return digest.hexdigest()[:12]

    @property
    def identity(self) -> str:
        """As Checkpoint.identity."""
        path = self.file.path.resolve()
        status = path.stat()
        parts = (self.revision, path, status.st_ino, status.st_size, status.st_mtime_ns)
        return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()

    def tensor_of(self, name: str) -> GgufTensor:
        """Where a tensor lies. Raises CheckpointError where it is missing."""
        if name not in self._names:
            raise CheckpointError(f"{self.file.path.name} has no tensor {name}")
        return self.file.tensors[self._names[name]]

    def is_quantised(self, name: str) -> bool:
        """Whether there is a tensor of that name, and it has blocks."""
        return name in self._names and self.tensor_of(name).block.decode is not None

    def dtype_of(self, name: str) -> torch.dtype | None:
        """As Checkpoint.dtype_of; bytes for blocks."""
        return (self.tensor_of(name).block.dtype or torch.uint8) if name in self._names else None

    def shape_of(self, name: str) -> tuple[int, ...]:
        """As Checkpoint.shape_of; blocks count in bytes."""
        tensor = self.tensor_of(name)
        if tensor.block.decode is None:
            return tensor.shape
        return (*tensor.shape[:-1], tensor.shape[-1] // tensor.block.size * tensor.block.num_bytes)

    def read_exactly(self, name: str, shape: tuple[int, ...], dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """As Checkpoint.read_exactly."""
        tensor, found = self.tensor_of(name), self.shape_of(name)
        if found != shape or self.dtype_of(name) not in dtypes:
            raise CheckpointError(
                f"tensor {name} has {tensor.block.name} and shape {list(found)}, the config says {list(shape)}"
            )
        raw = torch.from_numpy(self.file.rows(self._names[name]).copy())
        values = raw.view(tensor.block.dtype or torch.uint8).view(found)
        return values[self._rows(name, found[0])] if self._is_paired(name) else values

    def read(self, name: str, shape: tuple[Size, ...]) -> torch.Tensor:
        """As Checkpoint.read."""
        self.check(name, shape)
        return cut(self.read_exactly(name, self.shape_of(name), FLOATS), shape)

    def check(self, name: str, shape: tuple[Size, ...]) -> GgufTensor:
        """As Checkpoint.check."""
        tensor, wanted = self.tensor_of(name), tuple(map(full_size, shape))
        if tensor.shape != wanted:
            raise CheckpointError(f"tensor {name} has shape {list(tensor.shape)}, the config says {list(wanted)}")
        return tensor

    def _is_paired(self, name: str) -> bool:
        return self._has_pairs and name.rsplit(".", 2)[-2] in _PAIRED

    def _rows(self, name: str, count: int) -> torch.Tensor:
        """For each row the one in the file: channel i of a head's first half stands beside channel i of the second."""
        heads = self._config[_PAIRED[name.rsplit(".", 2)[-2]]]
        if not isinstance(heads, int) or heads < 1 or count % (2 * heads):
            raise CheckpointError(f"tensor {name} has {count} rows, which {heads} heads do not divide")
        return torch.arange(count).view(heads, -1, 2).transpose(1, 2).flatten()


@dataclass(frozen=True, slots=True)
class Gguf:
    """The blocks of a GGUF checkpoint as a format of quantised layers."""

    checkpoint: GgufCheckpoint

    @property
    def name(self) -> str:
        """For logs and messages."""
        return "GGUF"

    def holds(self, tensors: Tensors, layer: str) -> bool:
        """Whether its weight has blocks."""
        return self.checkpoint.is_quantised(f"{layer}.weight")

    def read(self, tensors: Tensors, layer: str, outputs: int, inputs: int) -> QuantisedMatrix:
        """Blocks lie along the inputs."""
        name = f"{layer}.weight"
        block, shape = self.checkpoint.tensor_of(name).block, self.checkpoint.tensor_of(name).shape
        if shape != (outputs, inputs):
            raise CheckpointError(f"tensor {name} has shape {list(shape)}, the config says {[outputs, inputs]}")
        assert block.decode is not None
        raw = tensors.read(name, self.checkpoint.shape_of(name), torch.uint8)
        return block.decode(raw.view(outputs, -1, block.num_bytes))


def _model_name(name: str) -> str:
    """The name that models take a tensor under; names that none takes stay."""
    stem, _, ending = name.rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{ending}"
    match = _IN_LAYER.fullmatch(name)
    if match is None or match[2] not in _LAYER:
        return name
    return f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
