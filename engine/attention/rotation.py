"""Rotary position embedding applied to heads (Su et al. 2021), in the half-split form of Llama."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of each token of a step. The first R channels of a head are rotated, in pairs (i, i + R / 2)."""

    cos: torch.Tensor  #: [T, R / 2] float32
    sin: torch.Tensor  #: [T, R / 2] float32
    #: [T, 1, 1] float32: factors that the layer multiplies queries by before it attends; None: none (Ministral 3).
    query_scale: torch.Tensor | None = None

    def of_rows(self, rows: torch.Tensor) -> "Rotation":
        """The rotation of some of the tokens. rows: [R] int64."""
        scale = None if self.query_scale is None else self.query_scale.index_select(0, rows)
        return Rotation(self.cos.index_select(0, rows), self.sin.index_select(0, rows), scale)

    def apply_(self, heads: torch.Tensor) -> None:
        """Rotate heads [T, num_heads, D] in place; a strided view is fine."""
        cos, sin = self.cos[:, None, None].to(heads.dtype), self.sin[:, None, None].to(heads.dtype)
        half = cos.shape[-1]
        halves = heads[..., : 2 * half].view(*heads.shape[:2], 2, half)
        signed = torch.cat((-sin, sin), dim=2)
        torch.addcmul(halves * cos, halves.flip(-2), signed, out=halves)
