"""Norm, rotation and storing of heads, against a loop over tokens in float64."""

import math

import pytest
import torch

from engine.kernels.reference import store_heads
from engine.kernels.step_kernels import PageScales

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, PAGE_TOKENS, NUM_PAGES = 4, 2, 16, 4, 5
PLACES = torch.tensor([6, -1, 19, 0, -1])


def _heads(seed: int) -> torch.Tensor:
    return torch.randn(
        len(PLACES), NUM_HEADS + 2 * NUM_KV_HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(seed)
    )


def _pages(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((NUM_PAGES, 2, NUM_KV_HEADS, PAGE_TOKENS, HEAD_DIM), 7).to(dtype)


def _angles(num_channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.rand(len(PLACES), num_channels // 2, generator=torch.Generator().manual_seed(5)) * 6
    return angles.cos(), angles.sin()


@pytest.mark.parametrize(("num_rotated", "norms_values"), [(HEAD_DIM, False), (HEAD_DIM // 2, True)])
def test_queries_and_keys_are_normed_and_turned_and_keys_and_values_stored(
    num_rotated: int, norms_values: bool
) -> None:
    qkv, pages, (cos, sin) = _heads(0), _pages(torch.float32), _angles(num_rotated)
    weights = torch.rand(2, HEAD_DIM)
    before = qkv.double()
    alone = qkv[:, :NUM_HEADS].clone()
    store_heads(qkv, cos, sin, weights[0], weights[1], 1e-6, pages, PLACES, norms_values=norms_values)
    store_heads(alone, cos, sin, weights[0], None, 1e-6, None, PLACES)
    assert torch.equal(alone, qkv[:, :NUM_HEADS])
    for token, place in enumerate(PLACES.tolist()):
        for head in range(NUM_HEADS + NUM_KV_HEADS):
            x = before[token, head]
            x = x / math.sqrt(float(x.square().mean()) + 1e-6) * weights[int(head >= NUM_HEADS)].double()
            half = num_rotated // 2
            turned = x.clone()
            for i in range(half):
                c, s = float(cos[token, i]), float(sin[token, i])
                turned[i], turned[i + half] = x[i] * c - x[i + half] * s, x[i + half] * c + x[i] * s
            if head < NUM_HEADS:
                torch.testing.assert_close(qkv[token, head].double(), turned, atol=1e-5, rtol=1e-5)
            elif place >= 0:
                stored = pages[place // PAGE_TOKENS, 0, head - NUM_HEADS, place % PAGE_TOKENS]
                torch.testing.assert_close(stored.double(), turned, atol=1e-5, rtol=1e-5)
        if place >= 0:
            values = pages[place // PAGE_TOKENS, 1, :, place % PAGE_TOKENS]
            wanted = before[token, NUM_HEADS + NUM_KV_HEADS :]
            if norms_values:
                wanted = wanted / (wanted.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
            torch.testing.assert_close(values.double(), wanted, atol=1e-6 if norms_values else 0, rtol=0)
    assert (pages == 7).all(dim=-1).sum() == 2 * NUM_KV_HEADS * (NUM_PAGES * PAGE_TOKENS - 3)


def test_a_step_of_padding_alone_changes_no_page() -> None:
    pages = _pages(torch.float32)
    store_heads(_heads(0), None, None, None, None, 0.0, pages, torch.full_like(PLACES, -1))
    assert (pages == 7).all()


@pytest.mark.parametrize(("dtype", "error"), [(torch.int8, 0.5 / 127), (torch.float8_e4m3fn, 1 / 16)])
def test_quantised_values_are_near_the_real_ones(dtype: torch.dtype, error: float) -> None:
    qkv, pages = _heads(1), _pages(dtype)
    shape = (NUM_PAGES, NUM_KV_HEADS, PAGE_TOKENS)
    scales = PageScales(torch.zeros(shape), torch.zeros(shape))
    store_heads(qkv.clone(), None, None, None, None, 0.0, pages, PLACES, scales)
    for token, place in enumerate(PLACES.tolist()):
        if place < 0:
            continue
        page, offset = place // PAGE_TOKENS, place % PAGE_TOKENS
        heads = qkv[token, NUM_HEADS:].view(2, NUM_KV_HEADS, HEAD_DIM)
        for part, all_scales in enumerate((scales.key, scales.value)):
            real = pages[page, part, :, offset].float() * all_scales[page, :, offset, None]
            bound = error * heads[part].abs().amax(-1, keepdim=True)
            assert ((real - heads[part]).abs() <= bound + 1e-6).all()
