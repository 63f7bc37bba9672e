"""The layers of a decoder, one after the other: mixers and feed-forward parts around a residual stream. A mixer reads
other tokens of the sequence: attention, or a recurrent layer.

Of most rows of a prompt nothing is read at the end. A step with a narrowing computes all rows up to the last layer that
stores keys, values or states, and from its mixer on only those that are read: all layers behind it where these share
the keys and values of earlier ones (Gemma 4), else its feed-forward part.

Consecutive parts that the operators can record run in one call. A part that they cannot record (a mixture of experts, a
product that is summed over processes, queries scaled by position) runs operator by operator. The results are the same.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol

import torch

from engine.attention.backend import ForwardBatch, RunsRecordings
from engine.attention.rotation import Rotation
from engine.kernels.operators import HeadNormWeights, Operators, Recorder
from engine.layers.attention import SelfAttention
from engine.layers.mixer import Mixer, narrowed
from engine.layers.mlp import MLP, FeedForward, GatedMLP
from engine.layers.norm import Norm

#: (stream, the previous part's update, rotations, step) -> this part's update. Adds the previous update to the stream.
_Part = Callable[[torch.Tensor, torch.Tensor | None, Sequence[Rotation], ForwardBatch], torch.Tensor]


class LayerEnd(Protocol):
    """The last part of a layer, which reads and changes the residual stream itself (Gemma 4)."""

    def __call__(self, stream: torch.Tensor, update: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        """stream, update [T, hidden], both overwritten -> the update that is then still to be added to the stream."""
        ...


@dataclass(frozen=True)
class DecoderLayer:
    """mixer(norm(stream)), then mlp(norm(stream)); the next norm adds each result to the stream. Either part may be
    missing, with its norm."""

    mixer_norm: Norm | None
    mixer: Mixer | None
    mlp_norm: Norm | None = None
    mlp: FeedForward | None = None
    rotation: int | None = None  #: index into the rotations of a step; None: heads are not rotated
    mixer_output_norm: Norm | None = None  #: post-norm: of the mixer's output (Gemma)
    mlp_output_norm: Norm | None = None  #: post-norm of the feed-forward part's output
    is_parallel: bool = False  #: both parts read the same stream (GPT-NeoX)
    end: LayerEnd | None = None

    @property
    def is_capturable(self) -> bool:
        """Whether a step through the layer can be captured as a CUDA graph: no part reads numbers on the host."""
        return all(getattr(part, "is_capturable", True) for part in (self.mixer, self.mlp))

    @property
    def stores(self) -> bool:
        """Whether the mixer writes to pages."""
        return self.mixer is not None and not (isinstance(self.mixer, SelfAttention) and not self.mixer.stores)

    def mix(
        self, stream: torch.Tensor, update: torch.Tensor | None, rotations: Sequence[Rotation], batch: ForwardBatch
    ) -> torch.Tensor:
        """Adds `update` to the stream and returns the mixer's own update, both [T, hidden]."""
        assert self.mixer is not None
        return self._mixed(self.mixer, stream, update, rotations, batch)

    def mix_narrowed(
        self, stream: torch.Tensor, update: torch.Tensor | None, rotations: Sequence[Rotation], batch: ForwardBatch
    ) -> torch.Tensor:
        """Like mix, but the mixer's update is that of the rows of the batch's narrowing, [R, hidden]."""
        assert self.mixer is not None
        return self._mixed(partial(narrowed, self.mixer), stream, update, rotations, batch)

    def _mixed(
        self,
        mixer: Mixer,
        stream: torch.Tensor,
        update: torch.Tensor | None,
        rotations: Sequence[Rotation],
        batch: ForwardBatch,
    ) -> torch.Tensor:
        assert self.mixer_norm is not None
        rotation = None if self.rotation is None else rotations[self.rotation]
        mixed = mixer(self.mixer_norm(stream, update), rotation, batch)
        return mixed if self.mixer_output_norm is None else self.mixer_output_norm(mixed)

    def feed_forward(
        self, stream: torch.Tensor, update: torch.Tensor | None, rotations: Sequence[Rotation], batch: ForwardBatch
    ) -> torch.Tensor:
        """Like mix, for the feed-forward part. In a parallel layer it adds its output to `update` instead."""
        assert self.mlp is not None
        assert self.mlp_norm is not None
        if self.is_parallel:
            assert update is not None
            return update.add_(self.mlp(self.mlp_norm(stream)))
        x = self.mlp(self.mlp_norm(stream, update))
        return x if self.mlp_output_norm is None else self.mlp_output_norm(x)

    def finish(
        self, stream: torch.Tensor, update: torch.Tensor | None, rotations: Sequence[Rotation], batch: ForwardBatch
    ) -> torch.Tensor:
        """Like mix, for the end of the layer."""
        assert self.end is not None
        assert update is not None
        return self.end(stream, update, batch)

    def record_mixer(self, recorder: Recorder, *, has_update: bool) -> bool:
        """Record what mix does. False, with nothing recorded, where the recorder lacks one of the operators.

        has_update: False for the first part of the network, which has no update to add.
        """
        attention, after = self.mixer, self.mixer_output_norm
        if not isinstance(attention, SelfAttention) or attention.output.is_summed or attention.scales_queries:
            return False
        assert self.mixer_norm is not None
        norms = attention.head_norms
        return recorder.attention(
            self.mixer_norm.norm,
            attention.qkv.operators,
            attention.layer_id,
            self.rotation,
            None if norms is None else HeadNormWeights(norms.query, norms.key, norms.eps, norms.has_values),
            attention.output.operators,
            None if after is None else after.norm,
            has_update=has_update,
        )

    def record_feed_forward(self, recorder: Recorder, *, has_update: bool) -> bool:
        """Like record_mixer, for feed_forward."""
        mlp, after = self.mlp, self.mlp_output_norm
        if not has_update or not isinstance(mlp, GatedMLP | MLP) or mlp.down.is_summed:
            return False
        assert self.mlp_norm is not None
        return recorder.feed_forward(
            self.mlp_norm.norm,
            mlp.up.operators,
            mlp.activation,
            mlp.down.operators,
            None if after is None else after.norm,
            is_parallel=self.is_parallel,
        )


class _Record(Protocol):
    def __call__(self, recorder: Recorder, *, has_update: bool) -> bool: ...


@dataclass
class _Piece:
    """Consecutive parts; with a recorder if they run as one call."""

    recorder: Recorder | None
    parts: list[_Part] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _NarrowingParts:
    """The last layer that stores anything, and what lies on both sides of its mixer."""

    before: list[_Piece]
    last_storing: DecoderLayer
    behind: list[_Piece]


class Decoder:
    """All layers of a network, cut into recordings and single parts when it is made."""

    def __init__(self, layers: Sequence[DecoderLayer], operators: Operators) -> None:
        self.is_capturable = all(layer.is_capturable for layer in layers)
        self._layers, self._operators = layers, operators
        self._pieces = _cut(layers, operators, has_update=False)

    @cached_property
    def _narrowing_parts(self) -> _NarrowingParts:
        """Made for the first narrowed step: on devices there are none."""
        layers, operators = self._layers, self._operators
        last = max(index for index, layer in enumerate(layers) if layer.stores)
        rest = replace(layers[last], mixer=None, mixer_norm=None)
        return _NarrowingParts(
            before=_cut(layers[:last], operators, has_update=False),
            last_storing=layers[last],
            behind=_cut([rest, *layers[last + 1 :]], operators, has_update=True),
        )

    def __call__(
        self, stream: torch.Tensor, rotations: Sequence[Rotation], batch: ForwardBatch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """stream [T, hidden], overwritten -> the stream, and the update that is still to be added to it, [T, hidden].
        Both are those of its rows, [R, hidden], where the batch has a narrowing.

        rotations: those of the step; DecoderLayer.rotation is an index into them.
        """
        narrowing = batch.narrowing
        if narrowing is None:
            update = _run(self._pieces, stream, None, rotations, batch)
            assert update is not None, "a decoder has layers"
            return stream, update
        parts = self._narrowing_parts
        update = _run(parts.before, stream, None, rotations, batch)
        update = parts.last_storing.mix_narrowed(stream, update, rotations, batch)
        stream = stream.index_select(0, narrowing.rows)
        if narrowing.batch is None:
            return stream, update
        inner = narrowing.batch
        if batch.layer_inputs is not None:
            inner = replace(inner, layer_inputs=batch.layer_inputs.index_select(0, narrowing.rows))
        turned = [rotation.of_rows(narrowing.rows) for rotation in rotations]
        update = _run(parts.behind, stream, update, turned, inner)
        assert update is not None
        return stream, update


def _cut(layers: Sequence[DecoderLayer], operators: Operators, *, has_update: bool) -> list[_Piece]:
    """has_update: whether the first part has an update to add to the stream."""
    pieces: list[_Piece] = []
    recorder = operators.recorder()
    for layer in layers:
        parts: list[tuple[_Part, _Record | None]] = []
        if layer.mixer is not None:
            parts.append((layer.mix, layer.record_mixer))
        if layer.mlp is not None:
            parts.append((layer.feed_forward, layer.record_feed_forward))
        if layer.end is not None:
            parts.append((layer.finish, None))
        for part, record in parts:
            is_recorded = recorder is not None and record is not None and record(recorder, has_update=has_update)
            has_update = True
            if not is_recorded:
                recorder = operators.recorder()  # the next part begins another recording
            piece_recorder = recorder if is_recorded else None
            if not pieces or pieces[-1].recorder is not piece_recorder:
                pieces.append(_Piece(piece_recorder))
            pieces[-1].parts.append(part)
    return pieces


def _run(
    pieces: Sequence[_Piece],
    stream: torch.Tensor,
    update: torch.Tensor | None,
    rotations: Sequence[Rotation],
    batch: ForwardBatch,
) -> torch.Tensor | None:
    """Adds updates to the stream; returns the one that is still to be added."""
    runner = batch.attention if isinstance(batch.attention, RunsRecordings) else None
    for piece in pieces:
        recorder = piece.recorder
        if runner is not None and recorder is not None and (batch.adapters is None or recorder.has_adapters):
            update = runner.run_recorded(recorder, stream, update, rotations, batch.adapters)
            continue
        for part in piece.parts:
            update = part(stream, update, rotations, batch)
    return update
