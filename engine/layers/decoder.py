"""The layers of a decoder, one after the other: attention and feed-forward parts around a residual stream.

Consecutive parts that the operators can record run in one call. A part that they cannot record (a mixture of experts, a
product that is summed over processes) runs operator by operator. The results are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from engine.attention.backend import AttentionStep, RunsRecordings
from engine.attention.rotation import Rotation
from engine.kernels.operators import Operators, Recorder
from engine.layers.attention import SelfAttention
from engine.layers.mlp import MLP, FeedForward, GatedMLP
from engine.layers.norm import Norm

#: (stream, the previous part's update, rotations, attention) -> this part's update. Adds the given one to the stream.
_Part = Callable[[torch.Tensor, torch.Tensor | None, Sequence[Rotation], AttentionStep], torch.Tensor]


@dataclass(frozen=True)
class DecoderLayer:
    """attention(norm(stream)), then mlp(norm(stream)); the next norm adds each result to the stream."""

    attention_norm: Norm
    attention: SelfAttention
    mlp_norm: Norm
    mlp: FeedForward
    rotation: int | None = None  #: which of the decoder's rotations; None: heads do not turn
    attention_output_norm: Norm | None = None  #: post-norm: of the attention part's output (Gemma)
    mlp_output_norm: Norm | None = None  #: post-norm of the feed-forward part's output
    is_parallel: bool = False  #: both parts read the same stream (GPT-NeoX)

    def attend(
        self,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        attention: AttentionStep,
    ) -> torch.Tensor:
        """Adds `update` to the stream and returns the attention part's own update, both [T, hidden]."""
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
        """Like attend, for the feed-forward part. In a parallel layer it adds its output to `update` instead."""
        if self.is_parallel:
            assert update is not None
            return update.add_(self.mlp(self.mlp_norm(stream)))
        x = self.mlp(self.mlp_norm(stream, update))
        return x if self.mlp_output_norm is None else self.mlp_output_norm(x)

    def record_attention(self, recorder: Recorder, *, has_update: bool) -> bool:
        """Record what attend does. False, with nothing recorded, where the recorder lacks one of the operators.

        has_update: False for the first part of the network, which has no update to add.
        """
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
        """Like record_attention, for feed_forward."""
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
    """Consecutive parts; with a recorder if they run as one call."""

    recorder: Recorder | None
    parts: list[_Part] = field(default_factory=list)


class Decoder:
    """All layers of a network, cut into recordings and single parts when it is made."""

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
                    recorder = operators.recorder()  # the parts after this one are another recording
                piece_recorder = recorder if is_recorded else None
                if not self._pieces or self._pieces[-1].recorder is not piece_recorder:
                    self._pieces.append(_Piece(piece_recorder))
                self._pieces[-1].parts.append(part)

    def __call__(self, stream: torch.Tensor, rotations: Sequence[Rotation], attention: AttentionStep) -> torch.Tensor:
        """stream [T, hidden], overwritten -> the update that is still to be added to it, [T, hidden].

        rotations: the step's, in the order in which the layers number them.
        """
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
