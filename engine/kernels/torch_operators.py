"""The operators in plain torch: for every device and dtype. The C++ operators are tested against them.

On CPU the weights of linears are packed into oneDNN's own blocked layout: a row of a 576 x 49152 product in bfloat16
takes 2.3 ms instead of 5.7 ms (one core of an AMD EPYC with AVX-512 BF16), because the plain layout is repacked in
every call.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from engine.batch import NO_TOKEN
from engine.kernels.operators import AdapterShape, ExpertParts, LinearFunction, NormFunction, Routing, WorkTimer
from engine.kernels.quantised import Matrix, QuantisedMatrix
from engine.kernels.reference import state_kernels
from engine.kernels.reference.adapters import TorchAdapterProduct
from engine.kernels.state_kernels import StateKernels

#: Hint for the packed layout: the expected number of rows. Measured for 1 to 512 rows: only a hint of 1 is worse.
_PACK_ROWS = 32
#: Outputs of a quantised matrix whose weights are computed at once.
_QUANTISED_OUTPUTS = 8192


class TorchOperators:
    """The Operators of every device without compiled ones; the fallback on CPU and CUDA."""

    @property
    def name(self) -> str:
        """For logs and metrics."""
        return "torch"

    @property
    def bits_per_weight(self) -> None:
        """None: no weights are rounded."""
        return None

    @property
    def grouped_experts(self) -> None:
        """None: reading numbers on the host is free on CPU."""
        return None

    @property
    def quantised_experts(self) -> None:
        """None: reading numbers on the host is free on CPU."""
        return None

    def mixture(self, experts: Sequence[ExpertParts], routing: Routing) -> None:
        """None: every operator is a call of its own."""
        return None

    def recorder(self) -> None:
        """None: every operator is a call of its own."""
        return None

    @property
    def state_kernels(self) -> StateKernels:
        """The reference."""
        return state_kernels

    @property
    def forbid(self) -> None:
        """None: the sampler applies masks in plain torch."""
        return None

    @property
    def draw(self) -> None:
        """None: the sampler draws in plain torch."""
        return None

    def choose_products(self, timer: WorkTimer | None) -> None:
        """There is one kernel for all products."""

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """On CPU the weight is packed into oneDNN's layout. A quantised one stays quantised, and each product computes
        its weights."""
        if isinstance(weight, QuantisedMatrix):
            return quantised_linear(weight, bias, lambda part: self.linear(part, None))
        if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
            return lambda x: F.linear(x, weight, bias)
        if _is_native(weight.dtype):
            return _packed_linear(weight, bias)
        # Without processor instructions for the dtype, torch's products take up to six times as long as in float32.
        multiply = _packed_linear(weight.float(), None if bias is None else bias.float())
        return lambda x: multiply(x.float()).to(weight.dtype)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """One batched product."""
        return products_by_head(weights)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """As linear."""
        return self.linear(weight, bias)

    def embedding(self, table: Matrix) -> LinearFunction:
        """Looks up rows of the table itself."""
        if isinstance(table, QuantisedMatrix):
            return table.in_memory().rows
        return lambda ids: F.embedding(ids, table)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        """Embedding and product; on CPU the product has a packed copy of the table."""
        return self.embedding(table), self.linear(table, None)

    def adapter_product(self, shape: AdapterShape) -> TorchAdapterProduct:
        """Two products for each run of rows."""
        return TorchAdapterProduct(self.linear, shape.dtype, shape.device)

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        """In the dtype of the stream; with a float32 weight the norm is computed in float32."""

        def norm(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            if update is not None:
                stream += update
            if weight.dtype == stream.dtype:
                return F.rms_norm(stream, weight.shape, weight, eps)
            return F.rms_norm(stream.float(), weight.shape, weight, eps).to(stream.dtype)

        return norm

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        """With torch's own LayerNorm."""

        def norm(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
            if update is not None:
                stream += update
            return F.layer_norm(stream, weight.shape, weight, bias, eps)

        return norm

    def silu_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """gate_up [R, 2 * size], gates first -> silu(gate) * up [R, size]."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def gelu_tanh_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        """As silu_mul, with gelu in its tanh form."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh").mul_(up)

    def gelu_tanh(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]: gelu in its tanh form."""
        return F.gelu(x, approximate="tanh")

    def gelu(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]: gelu with the error function."""
        return F.gelu(x)

    def relu(self, x: torch.Tensor) -> torch.Tensor:
        """x [R, size] -> [R, size]."""
        return F.relu(x)

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [R, vocab] -> [R] int64, as `likeliest_tokens`."""
        return likeliest_tokens(logits)


def likeliest_tokens(logits: torch.Tensor) -> torch.Tensor:
    """logits [R, vocab] -> [R] int64; of equal logits the first, NO_TOKEN for a row whose largest is NaN or infinite.
    Waits for no device."""
    token_ids = logits.argmax(dim=-1)  # of NaN, if there is any
    return token_ids.where(logits.gather(1, token_ids[:, None]).squeeze(1).isfinite(), NO_TOKEN)


def products_by_head(weights: torch.Tensor) -> LinearFunction:
    """x [R, heads, in] -> [R, heads, out] for weights [heads, out, in]."""
    return lambda x: torch.bmm(x.transpose(0, 1), weights.transpose(1, 2)).transpose(0, 1)


def quantised_linear(
    weight: QuantisedMatrix, bias: torch.Tensor | None, bind: Callable[[torch.Tensor], LinearFunction]
) -> LinearFunction:
    """The product with a matrix that stays quantised: in every call weights of some outputs are computed and multiplied
    by what `bind` makes of them."""
    stored = weight.in_memory()

    def multiply(x: torch.Tensor) -> torch.Tensor:
        starts = range(0, len(stored), _QUANTISED_OUTPUTS)
        parts = [bind(stored.rows(slice(first, first + _QUANTISED_OUTPUTS)))(x) for first in starts]
        product = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        return product if bias is None else product.add_(bias)

    return multiply


def _is_native(dtype: torch.dtype) -> bool:
    """Whether oneDNN has products of this dtype on this processor."""
    return dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _packed_linear(weight: torch.Tensor, bias: torch.Tensor | None) -> LinearFunction:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS)

    def multiply(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return y

    return multiply
