"""A model on pages gives what transformers' own attention gives: compared once, when the model is loaded.

Two short sequences are computed in chunks, side by side, as in serving, with plain attention in place of pages. The
reference has each sequence for itself, with transformers' eager attention and masks. So a model is refused that takes
positions from somewhere else, mixes neighbouring tokens outside of attention, or shares heads in another order.
"""

from collections.abc import Sequence
from typing import Any

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms
from engine.attention.rotation import Rotation
from engine.errors import CheckpointError
from engine.models.causal_lm import CausalLM
from engine.models.through_transformers.attention import SERVED

_LENGTHS = (5, 11)
#: (sequence, number of its next tokens) of each step
_STEPS = (((0, 3), (1, 4)), ((1, 6),), ((0, 1), (1, 1)), ((0, 1),))
#: Error of a token's logits, as a share of their norm, that rounding explains; in bfloat16 an expert may be chosen
#: otherwise, so some tokens may have more.
_FLOAT32_ERROR, _BFLOAT16_ERROR, _BFLOAT16_SHARE = 1e-3, 0.1, 0.25


class Expected:
    """The logits of short sequences by transformers' own attention."""

    def __init__(self, sequences: list[torch.Tensor], logits: list[torch.Tensor], dtype: torch.dtype) -> None:
        self._sequences = sequences
        self._logits = logits
        self._is_exact = dtype == torch.float32

    @classmethod
    @torch.no_grad()
    def of(cls, loaded: Any) -> "Expected":
        """The logits of a loaded model, before anything in it is exchanged."""
        generator = torch.Generator().manual_seed(0)
        parameter = next(loaded.parameters())
        size = loaded.get_input_embeddings().weight.shape[0]
        sequences = [torch.randint(size, (length,), generator=generator).to(parameter.device) for length in _LENGTHS]
        loaded.set_attn_implementation("eager")
        logits = [loaded(input_ids=ids[None], use_cache=False).logits[0].float() for ids in sequences]
        loaded.set_attn_implementation(SERVED)
        return cls(sequences, logits, parameter.dtype)

    @torch.no_grad()
    def compare(self, model: CausalLM, *, is_rounded: bool = False) -> None:
        """Raise CheckpointError where the model gives other logits on pages. is_rounded: its weights are, too, so that
        it only has to run."""
        found = torch.cat(_in_chunks(model, self._sequences))
        expected = torch.cat(self._logits)
        if found.shape != expected.shape:
            raise CheckpointError(f"on pages its logits have the shape {list(found.shape)}, not {list(expected.shape)}")
        errors = (found - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(1e-9)
        is_wrong = ~(errors <= (_FLOAT32_ERROR if self._is_exact else _BFLOAT16_ERROR))
        if not is_rounded and float(is_wrong.float().mean()) > (0.0 if self._is_exact else _BFLOAT16_SHARE):
            raise CheckpointError(
                "on pages its logits differ from those of transformers' own attention, by "
                f"{float(errors.max()):.2g} of their norm"
            )


def _in_chunks(model: CausalLM, sequences: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    attention = _PlainAttention(model.attention_shapes, len(sequences))
    logits: list[list[torch.Tensor]] = [[] for _ in sequences]
    starts = [0] * len(sequences)
    for step in _STEPS:
        spans = [(which, starts[which], starts[which] + count) for which, count in step]
        ids = torch.cat([sequences[which][start:end] for which, start, end in spans])
        positions = torch.cat([torch.arange(start, end, device=ids.device) for _, start, end in spans])
        attention.spans = spans
        rows = model.logits(model.forward(ForwardBatch(ids, positions, attention)))
        parts = rows.split([end - start for _, start, end in spans])
        for (which, _, end), part in zip(spans, parts, strict=True):
            logits[which].append(part.float())
            starts[which] = end
    return [torch.cat(each) for each in logits]


class _PlainAttention:
    """An AttentionStep that keeps the keys and values of a few tokens in lists."""

    def __init__(self, shapes: tuple[AttentionShape, ...], num_sequences: int) -> None:
        self._shapes = shapes
        self._stored: list[list[list[torch.Tensor]]] = [[[] for _ in range(num_sequences)] for _ in shapes]
        self.spans: list[tuple[int, int, int]] = []  #: (sequence, first position, end) of the step's tokens, in order

    def attend(
        self, layer_id: int, qkv: torch.Tensor, rotation: Rotation | None, head_norms: HeadNorms | None
    ) -> torch.Tensor:
        """As AttentionStep.attend."""
        shape = self._shapes[layer_id]
        assert qkv.is_contiguous()
        assert qkv.shape[1:] == (shape.num_heads + 2 * shape.num_kv_heads, shape.head_dim)
        outputs = []
        for (which, start, end), heads in zip(self.spans, qkv.split([e - s for _, s, e in self.spans]), strict=True):
            stored = self._stored[layer_id][which]
            stored.append(heads[:, shape.num_heads :])
            keys, values = torch.cat(stored).transpose(0, 1).float().chunk(2)  # [K, end, D]
            queries = heads[:, : shape.num_heads].transpose(0, 1).float()
            scores = queries @ keys.repeat_interleave(shape.group_size, 0).transpose(1, 2) * shape.scale
            if shape.softcap is not None:
                scores = shape.softcap * torch.tanh(scores / shape.softcap)
            distance = torch.arange(start, end, device=qkv.device)[:, None] - torch.arange(end, device=qkv.device)
            hidden = (distance < 0) | (distance >= (shape.window or end + 1))
            scores = scores.masked_fill(hidden, float("-inf"))
            if shape.sinks is not None:
                sinks = torch.tensor(shape.sinks, device=qkv.device)[:, None, None].expand(-1, end - start, 1)
                scores = torch.cat((scores, sinks), dim=-1)
            weights = scores.softmax(-1)[..., :end]
            result = weights @ values.repeat_interleave(shape.group_size, 0)
            outputs.append(result.transpose(0, 1).flatten(1).to(qkv.dtype))
        return torch.cat(outputs)
