"""The layers of a decoder, one after the other: attention and feed-forward parts around a residual stream.

Parts that the operators can record run in one call, however many layers that are; a part that they cannot (a mixture
of experts, a product that is summed over processes) runs by itself, operator by operator. Results are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from engine.attention.backend import AttentionStep, RunsRecordings
from engine.attention.rotation import Rotation
from engine.kernels.operators import Operators, Recorder
from engine.layers.attention import SelfAttention
from engine.layers.mlp import MLP, FeedForward, GatedMLP
from engine.layers.norm import LayerNorm, RMSNorm

Norm = RMSNorm | LayerNorm
#: (stream, update, rotations, attention) -> the part's own update, after adding the last one's to the stream
_Part = Callable[[torch.Tensor, torch.Tensor | None, Sequence[Rotation], AttentionStep], torch.Tensor]


@dataclass(frozen=True)
class DecoderLayer:
    """attention(norm(stream)), then mlp(norm(stream)), each added to the stream by the norm that comes next."""

    attention_norm: Norm
    attention: SelfAttention
    mlp_norm: Norm
    mlp: FeedForward
    rotation: int | None = None  #: which of the decoder's rotations; None: heads do not turn
    attention_output_norm: Norm | None = None  #: before a part's output goes to the stream (Gemma)
    mlp_output_norm: Norm | None = None
    is_parallel: bool = False  #: both parts read the same stream (GPT-NeoX)

    def attend(
        self,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        attention: AttentionStep,
    ) -> torch.Tensor:
        rotation = None if self.rotation is None else rotations[self.rotation]
        attended = self.attention(self.attention_norm(stream, update), rotation, attention)
        return attended if self.attention_output_norm is None else self.attention_output_norm(attended)

    def feed_forward(
        self,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        attention: AttentionStep,
    ) -> torch.Tensor:
        if self.is_parallel:
            assert update is not None
            return update.add_(self.mlp(self.mlp_norm(stream)))
        x = self.mlp(self.mlp_norm(stream, update))
        return x if self.mlp_output_norm is None else self.mlp_output_norm(x)

    def record_attention(self, recorder: Recorder, *, has_update: bool) -> bool:
        attention, norms, after = self.attention, self.attention.head_norms, self.attention_output_norm
        if attention.output.is_summed:
            return False
        return recorder.attention(
            self.attention_norm.norm,
            attention.qkv.multiply,
            attention.layer_id,
            self.rotation,
            None if norms is None else (norms.query, norms.key, norms.eps),
            attention.output.multiply,
            None if after is None else after.norm,
            has_update=has_update,
        )

    def record_feed_forward(self, recorder: Recorder, *, has_update: bool) -> bool:
        if not isinstance(self.mlp, GatedMLP | MLP) or self.mlp.down.is_summed:
            return False
        mlp, after = self.mlp, self.mlp_output_norm
        return recorder.feed_forward(
            self.mlp_norm.norm,
            mlp.up.multiply,
            mlp.activation,
            mlp.down.multiply,
            None if after is None else after.norm,
            is_parallel=self.is_parallel,
        )


@dataclass
class _Piece:
    """Parts that stand one after the other; with a recorder if they can run as one."""

    recorder: Recorder | None
    parts: list[_Part] = field(default_factory=list)


class Decoder:
    def __init__(self, layers: Sequence[DecoderLayer], operators: Operators) -> None:
        self._pieces: list[_Piece] = []
        recorder = operators.recorder()
        for layer in layers:
            for part, record in (
                (layer.attend, layer.record_attention),
                (layer.feed_forward, layer.record_feed_forward),
            ):
                is_recorded = recorder is not None and record(recorder, has_update=bool(self._pieces))
                if not is_recorded:
                    recorder = operators.recorder()  # what comes behind this part is a recording of its own
                own = recorder if is_recorded else None
                if not self._pieces or self._pieces[-1].recorder is not own:
                    self._pieces.append(_Piece(own))
                self._pieces[-1].parts.append(part)

    def __call__(self, stream: torch.Tensor, rotations: Sequence[Rotation], attention: AttentionStep) -> torch.Tensor:
        """stream [T, hidden], overwritten -> what is still to be added to it. rotations: as the layers number them."""
        runner = attention if isinstance(attention, RunsRecordings) else None
        update: torch.Tensor | None = None
        for piece in self._pieces:
            if runner is not None and piece.recorder is not None:
                update = runner.run_recorded(piece.recorder, stream, update, rotations)
                continue
            for part in piece.parts:
                update = part(stream, update, rotations, attention)
        assert update is not None, "a decoder has layers"
        return update
