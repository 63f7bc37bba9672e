"""Where layers get their weights from: the seam between model code and the formats of checkpoints."""

import math
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import Operators
from engine.kernels.quantised import Matrix, MatrixStack
from engine.kernels.torch_operators import TorchOperators
from engine.layers.adapter_points import AdapterPoints
from engine.parallel.group import Group, Solo
from engine.parallel.shard import Size, full_size, held_size

#: Bound for a model that is counted or filled with random numbers from its config alone, with no file that bounds it.
MAX_PARAMETERS = 20_000_000_000_000
_MAX_ZEROS = 2**28


class WeightSource(Protocol):
    """Hands out each tensor of a checkpoint once, in the dtype and on the device of the model."""

    @property
    def operators(self) -> Operators:
        """The operators that the layers compute with."""
        ...

    @property
    def group(self) -> Group:
        """The processes that share the model."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The model's data type: that of every tensor handed out, unless another one is asked for."""
        ...

    @property
    def adapter_points(self) -> AdapterPoints | None:
        """Where linear layers register that adapters can change them; None: the model has no adapters."""
        ...

    def stored_name(self, layer: str) -> str:
        """The checkpoint's name of the layer of that name."""
        ...

    def output_order(self, layer: str, num_outputs: int) -> torch.Tensor | None:
        """[num_outputs]: the checkpoint's output in each place of the linear layer of that name; None: the same."""
        ...

    def __contains__(self, name: str) -> bool: ...

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The tensor of that name; of sharded dimensions only the part that this process holds. dtype: None: the
        model's own.

        Raises CheckpointError where it is missing or has another shape.
        """
        ...

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """Like take, for tensors that only the operators' `linear`, `embedding` or `tied_embedding` will read.

        Where the operators hold them already the result has no values (a meta tensor). It may be cut, joined and
        transposed like any other tensor. A quantised matrix is dequantised.
        """
        ...

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """The weight [out, in] of the linear layer of that name (without ".weight"), quantised if the checkpoint holds
        it so. Raises CheckpointError as `take` does."""
        ...

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """The matrices [out, in] in a tensor [count, out, in], quantised if the checkpoint holds them so. Raises
        CheckpointError as `take` does."""
        ...

    def is_quantised(self, layer: str) -> bool:
        """Whether the checkpoint holds the weight of the linear layer of that name quantised."""
        ...

    def has_own_head(self, head: str, embedding: str) -> bool:
        """Whether the checkpoint holds weights of both layers, with different values: then the head is not tied,
        whatever the config says."""
        ...


@runtime_checkable
class ListsTensors(WeightSource, Protocol):
    """A weight source that knows what the checkpoint holds; the others make up any tensor that is asked for."""

    @property
    def tensor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shape of every tensor by name."""
        ...


class PassedOn:
    """The weights of another source; what derives from it changes names or values on the way."""

    def __init__(self, weights: WeightSource) -> None:
        self._weights = weights

    @property
    def operators(self) -> Operators:
        """The operators that the layers compute with."""
        return self._weights.operators

    @property
    def dtype(self) -> torch.dtype:
        """The model's data type."""
        return self._weights.dtype

    @property
    def group(self) -> Group:
        """The processes that share the model."""
        return self._weights.group

    @property
    def adapter_points(self) -> AdapterPoints | None:
        """As WeightSource.adapter_points."""
        return self._weights.adapter_points

    def stored_name(self, layer: str) -> str:
        """As WeightSource.stored_name."""
        return self._weights.stored_name(self._inner(layer))

    def output_order(self, layer: str, num_outputs: int) -> torch.Tensor | None:
        """As WeightSource.output_order."""
        return self._weights.output_order(self._inner(layer), num_outputs)

    def __contains__(self, name: str) -> bool:
        return self._inner(name) in self._weights

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """As WeightSource.take."""
        return self._weights.take(self._inner(name), *shape, dtype=dtype)

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As WeightSource.take_matrix."""
        return self._weights.take_matrix(self._inner(name), *shape)

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As WeightSource.take_linear_weight."""
        return self._weights.take_linear_weight(self._inner(layer), out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As WeightSource.take_stack."""
        return self._weights.take_stack(self._inner(name), count, out_features, in_features)

    def is_quantised(self, layer: str) -> bool:
        """As WeightSource.is_quantised."""
        return self._weights.is_quantised(self._inner(layer))

    def has_own_head(self, head: str, embedding: str) -> bool:
        """As WeightSource.has_own_head."""
        return self._weights.has_own_head(self._inner(head), self._inner(embedding))

    def _inner(self, name: str) -> str:
        """The other source's name of a tensor or a layer."""
        return name


class Within(PassedOn):
    """Weights whose names have a prefix: the text model inside a checkpoint that also holds other models."""

    def __init__(self, weights: WeightSource, prefix: str, *, in_place_of: str = "") -> None:
        """prefix: with the dot at its end. in_place_of: the beginning of names that it replaces; other names stay."""
        super().__init__(weights)
        self._prefix = prefix
        self._replaced = in_place_of

    def _inner(self, name: str) -> str:
        is_within = name.startswith(self._replaced)
        return f"{self._prefix}{name.removeprefix(self._replaced)}" if is_within else name


def text_model_of(weights: WeightSource) -> WeightSource:
    """The weights of the text model, with the names that it has alone, whichever names the checkpoint has: those of a
    checkpoint with other models, newer or older ones, or already its own."""
    if "model.language_model.norm.weight" in weights:
        return Within(weights, "model.language_model.", in_place_of="model.")
    if "language_model.model.norm.weight" in weights:
        return Within(weights, "language_model.")
    return weights


def of_whole_model(weights: WeightSource) -> WeightSource:
    """The weights with the names of a causal language model, where the checkpoint has those of its decoder alone, as
    embedding checkpoints do."""
    is_decoder = "embed_tokens.weight" in weights and "model.embed_tokens.weight" not in weights
    return Within(weights, "", in_place_of="model.") if is_decoder else weights


class AsStored:
    """Names and orders of a weight source that changes neither, and which linear layers adapters can change."""

    def __init__(self, adapter_points: AdapterPoints | None) -> None:
        self.adapter_points = adapter_points

    def stored_name(self, layer: str) -> str:
        """The same."""
        return layer

    def output_order(self, layer: str, num_outputs: int) -> torch.Tensor | None:
        """None: the same."""
        return None


class ShapesOnly(AsStored):
    """A weight source without values: for a model's layer shapes, its number of parameters and what it refuses.

    Matrices are meta tensors. Norms, biases and convolutions are zeros in memory: arithmetic on meta tensors would
    import torch's compiler, which takes a second, and they are at most a few megabytes.
    """

    def __init__(
        self,
        dtype: torch.dtype = torch.float32,
        group: Group | None = None,
        operators: TorchOperators | None = None,
    ) -> None:
        """group: the processes that share the model; None: this process has it for itself. operators: are handed the
        matrices; None: plain ones."""
        self.operators = operators or TorchOperators()
        super().__init__(AdapterPoints(self.operators, dtype, torch.device("meta"), num_slots=1, max_rank=1))
        self.group = group or Solo()
        self.dtype = dtype
        self.num_parameters = 0  #: of the tensors taken so far, before sharding
        self._num_zeros = 0

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Zeros of the shape that this process holds."""
        held = self._counted(shape)
        self._num_zeros += math.prod(held)
        if self._num_zeros > _MAX_ZEROS:
            raise CheckpointError(f"config.json describes norms and biases of more than {_MAX_ZEROS} numbers")
        return torch.zeros(held, dtype=dtype or self.dtype)

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """A meta tensor of the shape that this process holds."""
        return torch.empty(self._counted(shape), dtype=self.dtype, device="meta")

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As take_matrix."""
        return self.take_matrix(f"{layer}.weight", out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As take_matrix."""
        return self.take_matrix(name, count, out_features, in_features)

    def is_quantised(self, layer: str) -> bool:
        """False: there are no values."""
        return False

    def has_own_head(self, head: str, embedding: str) -> bool:
        """False: there are no values."""
        return False

    def _counted(self, shape: tuple[Size, ...]) -> tuple[int, ...]:
        self.num_parameters += math.prod(map(full_size, shape))
        if self.num_parameters > MAX_PARAMETERS:
            raise CheckpointError(f"config.json describes a model of more than {MAX_PARAMETERS} parameters")
        return tuple(map(held_size, shape))
