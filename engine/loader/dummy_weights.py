"""Random weights instead of a checkpoint's, for benchmarks."""

import torch

from engine.formats.format import cut
from engine.kernels.operators import Operators
from engine.kernels.quantised import Matrix, MatrixStack
from engine.layers.adapter_points import AdapterPoints
from engine.layers.weights import AsStored
from engine.parallel.group import Group, Solo
from engine.parallel.shard import Size, full_size, held_size


class DummyWeights(AsStored):
    """Seeded random weights of the shapes that a model takes: matrices small and normal, scales one, biases zero.

    The model is the same for any number of processes that share it.
    """

    def __init__(
        self,
        *,
        dtype: torch.dtype,
        device: torch.device,
        seed: int,
        operators: Operators,
        group: Group | None = None,
        adapter_points: AdapterPoints | None = None,
    ) -> None:
        super().__init__(adapter_points)
        self.operators = operators
        self.group = group or Solo()
        self.dtype = dtype
        self._device = device
        # On the device itself: eight billion numbers take minutes on one core.
        self._generator = torch.Generator(device).manual_seed(seed)

    def __contains__(self, name: str) -> bool:
        return True

    def take(self, name: str, *shape: Size, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Random values of that shape; this process's part of them where dimensions are sharded."""
        full = tuple(full_size(size) for size in shape)
        dtype = dtype or self.dtype
        tensor = torch.empty(tuple(held_size(size) for size in shape), dtype=dtype, device=self._device)
        if len(shape) > 1:
            whole = torch.empty(full, device=self._device).normal_(std=0.02, generator=self._generator)
            return tensor.copy_(cut(whole, shape))
        return tensor.fill_(1.0 if name.endswith("weight") else 0.0)

    def take_matrix(self, name: str, *shape: Size) -> torch.Tensor:
        """As `take`."""
        return self.take(name, *shape)

    def take_linear_weight(self, layer: str, out_features: Size, in_features: Size) -> Matrix:
        """As `take`."""
        return self.take(f"{layer}.weight", out_features, in_features)

    def take_stack(self, name: str, count: int, out_features: Size, in_features: Size) -> MatrixStack:
        """As `take`."""
        return self.take(name, count, out_features, in_features)

    def is_quantised(self, layer: str) -> bool:
        """False: random weights are tensors."""
        return False

    def has_own_head(self, head: str, embedding: str) -> bool:
        """False: what the config ties is one matrix."""
        return False
