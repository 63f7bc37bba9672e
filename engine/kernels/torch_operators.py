"""The operators in plain torch: for every device and dtype, and what the C++ ones are tested against.

On CPU the weights of linears are packed into oneDNN's own blocked layout: a row of a 576 x 49152 product in bfloat16
takes 2.3 ms instead of 5.7 ms (one core of an AMD EPYC with AVX-512 BF16), because the plain layout is repacked in
every call.
"""

import torch
import torch.nn.functional as F

from engine.kernels.operators import LinearFunction, NormFunction

#: Rows that the packed layout is chosen for; measured for 1 to 512 rows, only a hint of 1 is worse than others.
_PACK_ROWS = 32


class TorchOperators:
    @property
    def name(self) -> str:
        return "torch"

    @property
    def routes_on_device(self) -> bool:
        return False

    def recorder(self) -> None:
        return None

    @property
    def state_kernels(self) -> None:
        return None

    @property
    def draw(self) -> None:
        return None

    def linear(self, weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return lambda x: F.linear(x, weight, bias)
        if _is_native(weight.dtype):
            return _packed_linear(weight, bias)
        # Without instructions for the format, torch's products in it take up to six times as long as in float32.
        multiply = _packed_linear(weight.float(), None if bias is None else bias.float())
        return lambda x: multiply(x.float()).to(weight.dtype)

    def embedding(self, table: torch.Tensor) -> LinearFunction:
        return lambda ids: F.embedding(ids, table)

    def tied_embedding(self, table: torch.Tensor) -> tuple[LinearFunction, LinearFunction]:
        return self.embedding(table), self.linear(table, None)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        def norm(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            if update is not None:
                stream += update
            if weight.dtype == stream.dtype:
                return F.rms_norm(stream, weight.shape, weight, eps)
            return F.rms_norm(stream.float(), weight.shape, weight, eps).to(stream.dtype)

        return norm

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        def norm(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            if update is not None:
                stream += update
            return F.layer_norm(stream, weight.shape, weight, bias, eps)

        return norm

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x, approximate="tanh")

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=-1)


def _is_native(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies in this format on this processor."""
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packed_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return y

    return multiply
