"""Steps with prompts as CUDA graphs in pieces: what lies between the attention of two layers is a graph, and attention
is launched between the pieces, because its launches depend on the lengths of prompts and contexts.

A piece depends on the number of tokens alone. Few numbers have graphs; a step takes those of the next larger one. Its
rows behind the step's tokens are padding: they hold tokens of earlier steps, no other row depends on them, attention
does not compute them, and their results are not read.

T = tokens of a step, H = query heads, K = key/value heads, D = head dimension.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from engine.attention.backend import ForwardBatch, HeadNorms
from engine.attention.device_backend import DeviceStep
from engine.attention.rotation import Rotation
from engine.models.causal_lm import CausalLM
from engine.runner.device.graphs import GraphRecorder, Replay

_log = logging.getLogger(__name__)

#: Steps of more tokens run without graphs: computing them takes longer than launching their kernels.
MAX_TOKENS = 512


def token_counts(max_batched_tokens: int) -> tuple[int, ...]:
    """Numbers of tokens that have graphs, ascending: powers of two and their halfway points, and the largest step if it
    has fewer than MAX_TOKENS tokens. At most a third of a step of 16 tokens or more is padding."""
    largest = min(max_batched_tokens, MAX_TOKENS)
    ladder = (*chain.from_iterable((n, n + n // 2) for n in (16, 32, 64, 128, 256)), 512)
    return (*(count for count in ladder if count < largest), largest)


@dataclass(frozen=True, slots=True)
class _Attention:
    """The call of one layer's attention between two pieces, with all rows."""

    layer_id: int
    qkv: torch.Tensor  #: [T, H + 2 K, D]
    rotation: Rotation | None
    head_norms: HeadNorms | None
    output: torch.Tensor  #: [T, H * channels of a value]


class _Cuts:
    """The AttentionStep of a recording: computes nothing, but cuts the recording and notes the call."""

    def __init__(
        self,
        cut: Callable[[], None],
        alias: Callable[[torch.Tensor], torch.Tensor],
        outputs: torch.Tensor,
        widths: tuple[int, ...],
    ) -> None:
        """outputs: memory for the result of any layer. widths: those of the results of each layer."""
        self.calls: list[_Attention] = []
        self._cut = cut
        self._alias = alias
        self._outputs = outputs
        self._widths = widths
        self._rotations: dict[int, Rotation] = {}  # aliases, by the id of the step's rotation

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        self._cut()
        width = self._widths[layer_id]
        output = self._outputs[: len(qkv) * width].view(len(qkv), width)
        if rotation is not None and id(rotation) not in self._rotations:
            self._rotations[id(rotation)] = Rotation(self._alias(rotation.cos), self._alias(rotation.sin))
        turns = None if rotation is None else self._rotations[id(rotation)]
        self.calls.append(_Attention(layer_id, self._alias(qkv), turns, head_norms, output))
        return output


@dataclass(frozen=True, slots=True)
class PromptGraph:
    """The pieces of the steps with one number of tokens."""

    pieces: tuple[Replay, ...]  #: one more than there are layers with attention
    calls: tuple[_Attention, ...]
    hidden: torch.Tensor  #: [T, hidden]: final hidden states

    def run(self, num_tokens: int, attention: DeviceStep) -> torch.Tensor:
        """Queue a step over its first num_tokens rows, whose tokens and positions are in the buffers. Returns their
        final hidden states [num_tokens, hidden], valid until the next step."""
        turned: dict[int, Rotation] = {}
        for piece, call in zip(self.pieces, self.calls, strict=False):
            piece()
            rotation = call.rotation
            if rotation is not None:
                if id(rotation) not in turned:
                    turned[id(rotation)] = Rotation(rotation.cos[:num_tokens], rotation.sin[:num_tokens])
                rotation = turned[id(rotation)]
            qkv, output = call.qkv[:num_tokens], call.output[:num_tokens]
            attention.attend_into(call.layer_id, qkv, rotation, call.head_norms, output)
        self.pieces[-1]()
        return self.hidden[:num_tokens]


class PromptGraphs:
    """Owner of the pieces, and of the buffers that they read."""

    def __init__(self, model: CausalLM, max_batched_tokens: int, dtype: torch.dtype, device: torch.device) -> None:
        """Nothing is recorded yet. dtype: of activations. The model has no recurrent layers."""
        assert not model.state_shapes
        self.counts = token_counts(max_batched_tokens) if model.is_capturable else ()  #: ascending
        largest = max(self.counts, default=0)
        self._model = model
        self._widths = tuple(shape.num_heads * shape.output_dim for shape in model.attention_shapes)
        self._token_ids = torch.zeros(largest, dtype=torch.int64, device=device)
        self._positions = torch.zeros(largest, dtype=torch.int64, device=device)
        #: Result of the layer that runs: the next piece reads it before another layer writes it.
        self._outputs = torch.zeros(largest * max(self._widths, default=0), dtype=dtype, device=device)
        self._graphs: dict[int, PromptGraph] = {}

    @torch.inference_mode()
    def record(self, count: int, recorder: GraphRecorder) -> PromptGraph:
        """Record the pieces of steps of `count` tokens."""
        cuts: list[_Cuts] = []
        hidden: list[torch.Tensor] = []

        def program(cut: Callable[[], None]) -> None:
            cuts[:] = [_Cuts(cut, recorder.alias, self._outputs, self._widths)]
            batch = ForwardBatch(self._token_ids[:count], self._positions[:count], cuts[0])
            hidden[:] = [self._model.forward(batch)]

        pieces = recorder.record_pieces(program)
        return PromptGraph(tuple(pieces), tuple(cuts[0].calls), recorder.alias(hidden.pop()))

    def capture(self, recorder: GraphRecorder) -> None:
        """Record the pieces of all numbers of tokens, largest first: its memory is enough for all."""
        started = time.perf_counter()
        for count in reversed(self.counts):
            self._graphs[count] = self.record(count, recorder)
        if self._graphs:
            numbers = ", ".join(map(str, self.counts))
            seconds = time.perf_counter() - started
            _log.info("captured steps with prompts of up to %s tokens, in pieces: %.1f s", numbers, seconds)

    def find(self, token_ids: torch.Tensor, positions: torch.Tensor) -> Callable[[DeviceStep], torch.Tensor] | None:
        """A step of these tokens, [T] int64 each, as a function of its attention that queues the step and returns final
        hidden states [T, hidden]. None: there are no graphs for it."""
        num_tokens = len(token_ids)
        count = next((count for count in self.counts if count >= num_tokens and count in self._graphs), None)
        if count is None:
            return None
        self._token_ids[:num_tokens].copy_(token_ids)
        self._positions[:num_tokens].copy_(positions)
        return partial(self._graphs[count].run, num_tokens)
