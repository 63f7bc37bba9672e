"""The protocols of attention backends, and what a step tells them.

T = tokens of the step, B = its sequences, H = query heads, K = key/value heads, D = head dimension.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from engine.attention.rotation import Rotation
from engine.batch import LayerTypeName
from engine.kernels.adapters import AdapterRows
from engine.kernels.operators import Recorder
from engine.kernels.state_kernels import StatesInPlace

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads and options of one attention layer; a model has one per layer. num_heads is a multiple of num_kv_heads;
    consecutive query heads share a key/value head."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None = None  #: tokens that a query reads, including its own; None: all before it
    softcap: float | None = None  #: scores become softcap * tanh(score / softcap) (Gemma 2)
    score_scale: float | None = None  #: factor on query times key; None: head_dim ** -0.5
    #: Per query head a learned score that takes part in the softmax and has no value (gpt-oss).
    sinks: tuple[float, ...] | None = None
    #: A query reads the tokens of its own chunk of that many, up to itself; None: no chunks. Beside no window.
    chunk: int | None = None
    #: The layer reads the keys and values that this earlier layer stores, which has equal heads and an equal window,
    #: and stores none (Gemma 4). None: it stores its own.
    shares_with: int | None = None
    #: The values are the last that many channels of the keys, and only keys are stored (multi-head latent attention).
    #: None: values have channels of their own, as many as keys.
    value_dim: int | None = None

    @property
    def num_parts(self) -> int:
        """What is stored for each token and key/value head: keys and values, or keys alone."""
        return 2 if self.value_dim is None else 1

    @property
    def output_dim(self) -> int:
        """Channels of a query head's result."""
        return self.head_dim if self.value_dim is None else self.value_dim

    @property
    def scale(self) -> float:
        """Factor on query times key."""
        return float(self.head_dim**-0.5) if self.score_scale is None else self.score_scale

    @property
    def group_size(self) -> int:
        """Query heads per key/value head."""
        return self.num_heads // self.num_kv_heads


@dataclass(frozen=True, slots=True)
class StateShape:
    """A state that a recurrent layer keeps of every sequence; its size does not depend on the sequence's length."""

    part: str  #: "conv" and "ssm" or "delta": distinguishes the two states of one layer
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class StepLayout:
    """Which tokens of which sequences a step computes. Tokens of a sequence are adjacent, sequences in order.

    Sequence b computes tokens [starts[b], starts[b] + lengths[b]) of its context. Row b of a page table holds its small
    pages: token t of the sequence lies in page t // page_tokens. Entries after the context are undefined. With a
    window, entries before the page of token starts[b] - window + 1 are undefined too, with chunks those before the page
    in which the chunk of token starts[b] begins: those pages have been freed, and may hold what another sequence or
    another layer type has written since.
    """

    starts: IntArray  #: [B]
    lengths: IntArray  #: [B], each at least 1
    page_tables: Mapping[LayerTypeName, IntArray]  #: [B, pages of the longest context or more]
    #: [B]: how many tokens of each sequence are its prompt. None: no layer keeps a budget of tokens.
    prompt_lengths: IntArray | None = None

    @property
    def positions(self) -> IntArray:
        """[T]: position of each token in its sequence."""
        ends = np.cumsum(self.lengths)
        first_rows = ends - self.lengths
        positions: IntArray = np.arange(ends[-1], dtype=np.int64) + np.repeat(self.starts - first_rows, self.lengths)
        return positions


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """RMS norm of every query head and every key head, before the rotation, with separate weights."""

    query: torch.Tensor  #: [D] float32
    key: torch.Tensor | None  #: [D] float32; None for a layer that stores no keys
    eps: float
    has_values: bool = False  #: every value head is normalised too, without weights (Gemma 4)


class AttentionStep(Protocol):
    """Attention during one step; what all layers share has been computed once."""

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """Norm and rotate queries and keys, store keys and values of the step's tokens in their pages, then attend
        causally to each context.

        qkv [T, H + 2 K, D], contiguous: query heads, key heads, value heads; overwritten. A layer that shares another's
        keys and values has query heads alone, [T, H, D], and runs after that layer; where values are a part of the
        keys there are no value heads, [T, H + K, D]. Returns [T, H * output_dim].
        """
        ...


@runtime_checkable
class SplitAttentionStep(AttentionStep, Protocol):
    """Attention whose two halves can be called by themselves: all tokens of a step store their keys and values, and
    some of them attend, in a step of their own."""

    def store(self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None) -> None:
        """Norm and rotate keys, and store keys and values of the step's tokens in their pages. The arguments are those
        of attend; query heads are kept as they are."""
        ...

    def read(
        self, layer_id: int, query: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """Norm and rotate queries, then attend causally to each context; the keys and values of the step's tokens have
        been stored. query [T, H, D], contiguous; overwritten. Returns [T, H * output_dim]."""
        ...


@runtime_checkable
class RunsRecordings(Protocol):
    """An attention step that also runs recorded parts of a network, with its attention among them."""

    def run_recorded(
        self,
        recorder: Recorder,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        adapters: AdapterRows | None = None,
    ) -> torch.Tensor:
        """Run the recorded parts. stream, update [T, hidden], both overwritten; returns the last part's update, not yet
        added to the stream. rotations: the ones that the recording refers to by index. adapters:
        of the rows; None unless the recorder has adapters."""
        ...


class AttentionBackend(Protocol):
    """Attention over the page pool, for all layers of a model. Made and used by the runner."""

    @property
    def name(self) -> str:
        """For logs and metrics: "torch" or "cpp"."""
        ...

    def begin(self, layout: StepLayout) -> AttentionStep:
        """Prepare a step: compute what all layers share. The arrays of the layout must not change during the step."""
        ...


class StateStep(Protocol):
    """The recurrent states of a step's sequences."""

    def in_place(self, state_id: int) -> StatesInPlace:
        """The states in their pages: kernels read and write them there."""
        ...


@dataclass(frozen=True, slots=True)
class ForwardBatch:
    """Input of a model's forward pass; made by the runner for each step."""

    token_ids: torch.Tensor  #: [T] int64
    positions: torch.Tensor  #: [T] int64
    attention: AttentionStep
    states: StateStep | None = None  #: None: no layer is recurrent
    #: [T, layers, channels]: what the model itself has computed for each layer beside the stream; None: nothing.
    layer_inputs: torch.Tensor | None = None
    adapters: AdapterRows | None = None  #: of the step's rows; None: no row has one
    #: The rows that are read of the result; None: all. Only for models with `narrows`. Then `attention` is split.
    narrowing: "Narrowing | None" = None


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The rows of a step whose final hidden states are read: the last ones of some of its sequences, R in all."""

    rows: torch.Tensor  #: [R] int64, ascending
    #: These tokens as a step of their own, without states; None where R = 0. It stores nothing: its keys and values are
    #: those that the whole step stores. Its attention is split.
    batch: ForwardBatch | None
