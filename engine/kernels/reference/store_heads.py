"""Norm and rotation of query and key heads, and storing keys and values into their pages, quantised if the pages are.

T = tokens of the step, H, K = query and key/value heads, D = head dimension, N = small pages, P = tokens in a page.
"""

import torch

from engine.kernels.reference.places import Places
from engine.kernels.step_kernels import PageScales

#: Largest number of each quantised dtype: a head's largest magnitude is scaled to it.
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


def store_heads(
    qkv: torch.Tensor,
    cos: torch.Tensor | None,
    sin: torch.Tensor | None,
    query_norm: torch.Tensor | None,
    key_norm: torch.Tensor | None,
    norm_eps: float,
    pages: torch.Tensor | None,
    page_places: torch.Tensor,
    scales: PageScales | None = None,
    *,
    norms_values: bool = False,
) -> None:
    """Overwrites the query heads of qkv [T, H + 2 K, D] and writes keys, values and scales into pages, as
    StepKernels.store_heads defines; of pages of one part keys alone. All arithmetic is in float32 and rounded once."""
    if not len(qkv):
        return
    if pages is None:
        qkv.copy_(_rotated(_normed(qkv.float(), query_norm, norm_eps), cos, sin))
        return
    num_parts, num_kv_heads, page_tokens = pages.shape[1:4]
    num_heads = qkv.shape[1] - num_parts * num_kv_heads
    query, key, *values = qkv.float().split([num_heads, *num_parts * [num_kv_heads]], dim=1)
    qkv[:, :num_heads] = _rotated(_normed(query, query_norm, norm_eps), cos, sin).to(qkv.dtype)
    key = _rotated(_normed(key, key_norm, norm_eps), cos, sin)
    if norms_values:
        values = [_normed(value, torch.ones_like(value[0, 0]), norm_eps) for value in values]
    places = Places(page_places, page_tokens)
    for part, heads in enumerate((key, *values)):
        target = pages[:, part]
        if scales is None:
            places.write(target, heads.to(qkv.dtype).to(pages.dtype))
            continue
        token_scales = heads.abs().amax(dim=-1) / LARGEST[pages.dtype]  # [T, K]
        places.write(scales.key if part == 0 else scales.value, token_scales)
        places.write(target, quantised(heads, token_scales[..., None], pages.dtype))


def quantised(heads: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """heads / scale rounded to the nearest numbers of dtype (int8: halves upwards); zeros where the scale is zero. Same
    shape as heads, newly allocated."""
    largest = LARGEST[dtype]
    scaled = torch.where(scale > 0, heads / scale, 0.0).clamp(-largest, largest)
    return torch.floor(scaled + 0.5).to(dtype) if dtype == torch.int8 else scaled.to(dtype)


def _normed(heads: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    if weight is None:
        return heads
    return heads * torch.rsqrt(heads.square().mean(dim=-1, keepdim=True) + eps) * weight.float()


def _rotated(heads: torch.Tensor, cos: torch.Tensor | None, sin: torch.Tensor | None) -> torch.Tensor:
    """heads [T, heads, D]; cos, sin [T, R / 2]."""
    if cos is None or sin is None:
        return heads
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
