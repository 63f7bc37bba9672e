"""The operators that layers are made of, behind one protocol: plain torch, C++ on CPU, or Triton on CUDA.

One implementation is chosen when a model is loaded (kernels/__init__.py) and handed on with its weights. Operators with
weights bind them once, in a layout of their own. R = rows, T = tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from engine.batch import TokenMasks
from engine.kernels.adapters import AdapterProduct
from engine.kernels.quantised import Matrix, QuantisedStack
from engine.kernels.state_kernels import StateKernels

#: x [R, in] -> [R, out]
LinearFunction = Callable[[torch.Tensor], torch.Tensor]
#: (stream [R, size], update [R, size] or None) -> norm of stream + update [R, size]; the stream becomes that sum.
NormFunction = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]

#: x [R, n] -> [R, m]
Activation = Callable[[torch.Tensor], torch.Tensor]


class HeadNormWeights(NamedTuple):
    """RMS norm of query heads and key heads, with weights [D] float32, and of value heads without weights."""

    query: torch.Tensor
    key: torch.Tensor | None  #: None for a layer that stores no keys
    eps: float
    has_values: bool


@dataclass(frozen=True, slots=True)
class Draws:
    """Which rows of scores to sample from, and with which parameters: contiguous, one element per draw. Made by the
    sampler."""

    rows: NDArray[np.int64]
    temperatures: NDArray[np.float32]
    top_k: NDArray[np.int64]  #: 0: off
    top_p: NDArray[np.float32]  #: 1: off
    min_p: NDArray[np.float32]  #: 0: off
    numbers: NDArray[np.float64]  #: in [0, 1): where to invert the cumulative distribution


#: (layer id, heads of the step's tokens [R, (H + 2 K) D], index of their rotation, head norms) -> [R, H D]. Writes keys
#: and values into their pages, if there are any among the heads.
AttendFunction = Callable[[int, torch.Tensor, int | None, HeadNormWeights | None], torch.Tensor]
#: work on a device -> its seconds, measured by running it some times
WorkTimer = Callable[[Callable[[], None]], float]


@dataclass(frozen=True, slots=True)
class ExpertGroups:
    """Consecutive experts in groups of equal size: only those of the best groups can be chosen (DeepSeek)."""

    count: int
    num_chosen: int
    num_summed: int  #: a group is as good as the sum of that many of its best experts: 1 or 2


@dataclass(frozen=True, slots=True)
class Routing:
    """How the scores of experts become a choice: each a probability, then the most probable ones with their weights."""

    num_chosen: int
    sums_to_one: bool  #: the chosen experts' weights are scaled to sum to one
    is_sigmoid: bool = False  #: a probability is the sigmoid of its score; False: softmax over all scores
    #: [experts] float32: added to probabilities for the choice, not for the weights; None: nothing is added.
    correction: torch.Tensor | None = field(default=None, compare=False)
    groups: ExpertGroups | None = None  #: None: any experts can be chosen
    scale: float = 1.0  #: factor on the weights, after they have been made to sum to one
    #: [experts] float32: a factor on the weight of each expert, likewise (Gemma 4); None: none.
    expert_scales: torch.Tensor | None = field(default=None, compare=False)
    #: SparseMixer (Phi-3.5-MoE): an expert's weight is its share of a softmax over the experts that are not chosen yet
    #: and near it: below it by this part of the larger magnitude at most. None: its weight is its probability.
    nearness: float | None = None
    #: Weights are factors on the experts' inputs instead of outputs (Llama 4). Grouped experts do not have it.
    scales_inputs: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether experts are chosen and weighted by the softmax alone."""
        is_changed = self.correction is not None or self.groups is not None or self.nearness is not None
        return not is_changed and not self.is_sigmoid and self.scale == 1.0 and self.expert_scales is None


#: (x [T, hidden], scores [T, experts]) -> the weighted sum of the chosen experts [T, hidden]
ExpertsFunction = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class ClampedGate:
    """In place of silu(gate) * up, with gate at most `limit` and up between -limit and limit:
    gate * sigmoid(alpha * gate) * (up + 1) (gpt-oss)."""

    alpha: float
    limit: float


@dataclass(frozen=True, slots=True)
class TanhGelu:
    """In place of silu(gate) * up: gelu(gate) * up, with gelu in its tanh form (Gemma 4)."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpertOptions:
    """What some experts have beside their matrices."""

    gate_up_bias: torch.Tensor | None = None  #: [experts, 2 * size] float32, gates first
    down_bias: torch.Tensor | None = None  #: [experts, hidden] float32
    gate: ClampedGate | TanhGelu | None = None  #: None: silu(gate) * up


PLAIN_EXPERTS = ExpertOptions()


@dataclass(frozen=True, slots=True)
class AdapterShape:
    """A linear layer that adapters can change, and the adapters that it has room for."""

    num_slots: int  #: slots in use are [1, num_slots]
    max_rank: int  #: of each part
    num_inputs: int
    num_outputs: tuple[int, ...]  #: of each part: the projections that the layer computes together
    dtype: torch.dtype  #: of rows
    device: torch.device


class ExpertParts(NamedTuple):
    """The operators of one expert: down(activation(up(x)))."""

    up: LinearFunction
    activation: Activation
    down: LinearFunction


class GroupedExperts(Protocol):
    """Binds the matrices of experts to the function of them."""

    def __call__(
        self, gate_up: torch.Tensor, down: torch.Tensor, routing: Routing, options: ExpertOptions = PLAIN_EXPERTS
    ) -> ExpertsFunction:
        """gate_up [experts, 2 * size, hidden], gates first, down [experts, hidden, size] -> the function that computes
        down(silu(gate(x)) * up(x)) of each chosen expert, times its weight, added in the order of choice."""
        ...


#: Sets scores [R, vocab] of tokens that the masks forbid to minus infinity, in place; masks.draws are rows.
ForbidFunction = Callable[[torch.Tensor, TokenMasks], None]


class QuantisedExperts(Protocol):
    """Binds quantised matrices of experts to the function of them."""

    def __call__(
        self,
        gate_up: QuantisedStack,
        down: QuantisedStack,
        routing: Routing,
        options: ExpertOptions = PLAIN_EXPERTS,
    ) -> ExpertsFunction | None:
        """As GroupedExperts; None: matrices of this form need products of their own."""
        ...


#: (scores [R, vocab] float32 or of the model's dtype, draws) -> token ids [draws]
DrawFunction = Callable[[torch.Tensor, Draws], torch.Tensor]


class Adapted(NamedTuple):
    """A linear as recorders take it: the product, and its adapters, if it can have any."""

    multiply: LinearFunction
    adapters: AdapterProduct | None = None


class Recorder(Protocol):
    """Records parts of decoder layers, which an attention step (RunsRecordings) then runs in one call."""

    @property
    def has_adapters(self) -> bool:
        """Whether the recording also runs steps of which some rows have adapters."""
        ...

    def attention(
        self,
        norm: NormFunction,
        qkv: Adapted,
        layer_id: int,
        rotation: int | None,
        head_norms: HeadNormWeights | None,
        output: Adapted,
        output_norm: NormFunction | None,
        *,
        has_update: bool,
    ) -> bool:
        """Record update = output_norm(output(attention(qkv(norm(stream, update))))). rotation: index among the
        rotations of the run; None: no rotation. has_update: whether there is an update before this part.

        Returns False, and records nothing, if one of the operators cannot be recorded.
        """
        ...

    def feed_forward(
        self,
        norm: NormFunction,
        up: Adapted,
        activation: Activation,
        down: Adapted,
        output_norm: NormFunction | None,
        *,
        is_parallel: bool,
    ) -> bool:
        """Record update = output_norm(down(activation(up(norm(stream, update))))); or, if is_parallel,
        update += down(activation(up(norm(stream)))). Returns False as `attention` does.
        """
        ...


@runtime_checkable
class RunsLayers(Protocol):
    """A Recorder that runs its recording itself, operator by operator."""

    def run(self, rows: torch.Tensor, update: torch.Tensor | None, attend: AttendFunction) -> torch.Tensor:
        """Run the recorded parts on the stream's rows [R, hidden], overwritten, and an update that is still to be added
        to them. Returns the last part's update, not yet added."""
        ...


class Operators(Protocol):
    """The operators of one device and dtype. A result depends on its own row only."""

    @property
    def name(self) -> str:
        """For logs and metrics: "torch", "triton", or "cpp" and the instruction set."""
        ...

    @property
    def bits_per_weight(self) -> float | None:
        """Bits that a rounded weight of the layers takes, with the scales; None: none were rounded."""
        ...

    @property
    def state_kernels(self) -> StateKernels:
        """Kernels of recurrent layers."""
        ...

    @property
    def grouped_experts(self) -> GroupedExperts | None:
        """Chooses experts and computes them without reading numbers on the host, which would wait for the device.
        None: the host chooses (mixture)."""
        ...

    def mixture(self, experts: Sequence[ExpertParts], routing: Routing) -> ExpertsFunction | None:
        """Experts with products of their own, which may be quantised, in one call. None: there is none for these
        operators, and each expert is called by itself."""
        ...

    @property
    def quantised_experts(self) -> QuantisedExperts | None:
        """The same of quantised experts. None: each expert has products of its own."""
        ...

    def recorder(self) -> Recorder | None:
        """A new recorder; None: every operator is a call of its own."""
        ...

    def choose_products(self, timer: WorkTimer | None) -> None:
        """Decide which kernels compute products of few rows, where there is a choice: once, when all weights are bound,
        before the first step. timer: measures them; None: they cannot be measured."""
        ...

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """x [R, in] -> x weight^T + bias [R, out]. weight [out, in], bias [out]; implementations that pack weights keep
        no reference to them."""
        ...

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        """x [R, heads, in] -> [R, heads, out], each head with a weight of its own. weights [heads, out, in]."""
        ...

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        """As linear, for the output head, x [R, size] -> logits [R, tokens], and the scores of experts: where weights
        are rounded, these are rounded less. weight [tokens, size], bias [tokens]."""
        ...

    def embedding(self, table: Matrix) -> LinearFunction:
        """table [rows, size]: ids [T] -> rows [T, size]."""
        ...

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        """table [tokens, size]: ids [T] -> rows [T, size], and x [R, size] -> x table^T [R, tokens].

        Both read the same memory if the layout allows it.
        """
        ...

    def adapter_product(self, shape: AdapterShape) -> AdapterProduct:
        """An AdapterProduct without adapters, for a linear layer of that shape."""
        ...

    def rms_norm(self, weight: torch.Tensor, eps: float) -> NormFunction:
        """RMS norm of the stream, which `update` is added to. weight [size], of the model's dtype or float32."""
        ...

    def layer_norm(self, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> NormFunction:
        """Likewise, LayerNorm. weight, bias [size]."""
        ...

    @property
    def silu_mul(self) -> Activation:
        """x [R, 2 * size], gates first -> silu(gate) * up [R, size]."""
        ...

    @property
    def gelu_tanh_mul(self) -> Activation:
        """Likewise, with gelu in its tanh form."""
        ...

    @property
    def gelu_tanh(self) -> Activation:
        """x [R, size] -> [R, size]: gelu in its tanh form."""
        ...

    @property
    def gelu(self) -> Activation:
        """x [R, size] -> [R, size]: gelu with the error function."""
        ...

    @property
    def relu(self) -> Activation:
        """x [R, size] -> [R, size]."""
        ...

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """logits [R, vocab] -> [R] int64; of equal logits the first, NO_TOKEN (engine/batch.py) for a row whose largest
        is NaN, as with any NaN in it, or infinite."""
        ...

    @property
    def forbid(self) -> ForbidFunction | None:
        """Masks of tokens; None: the sampler applies them in plain torch."""
        ...

    @property
    def draw(self) -> DrawFunction | None:
        """Random sampling; None: the sampler draws in plain torch."""
        ...
