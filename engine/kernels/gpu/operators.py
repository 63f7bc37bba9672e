"""The operators on CUDA devices: norms, activations and recurrent states in Triton, products by cuBLAS."""

import torch
import torch.nn.functional as F

from engine.kernels.gpu import activation, mamba, norm
from engine.kernels.operators import LinearFunction, NormFunction
from engine.kernels.state_kernels import StateKernels


class GpuOperators:
    @property
    def name(self) -> str:
        return "triton"

    @property
    def routes_on_device(self) -> bool:
        return True

    def recorder(self) -> None:
        return None

    @property
    def state_kernels(self) -> StateKernels:
        return mamba

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        return lambda x: F.linear(x, weight, bias)

    def embedding(self, table: torch.Tensor) -> LinearFunction:
        return lambda ids: F.embedding(ids, table)

    def tied_embedding(self, table: torch.Tensor) -> tuple[LinearFunction, LinearFunction]:
        return self.embedding(table), self.linear(table, None)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        return lambda stream, update: norm.rms_norm(stream, update, weight, eps)

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        return lambda stream, update: norm.layer_norm(stream, update, weight, bias, eps)

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        return activation.silu_mul(gate_up)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        return activation.gelu_tanh_mul(gate_up)

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        return activation.gelu_tanh(x)

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)

    @property
    def draw(self) -> None:
        return None

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=-1)
