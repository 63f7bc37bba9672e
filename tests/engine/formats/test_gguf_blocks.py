"""Blocks of GGUF files mean what the gguf package decodes from them."""

import gguf
import numpy as np
import pytest
import torch

from engine.formats.gguf.blocks import BLOCKS, OTHER_TYPES

QUANTISED = [number for number, block in BLOCKS.items() if block.decode is not None]
#: Weights are scale * code - minimum there, and scale * (code - zero) here: equal up to rounding.
WITH_MINIMA = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")


@pytest.mark.parametrize("number", QUANTISED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_bytes_are_decoded_as_by_the_gguf_package(number: int) -> None:
    block = BLOCKS[number]
    assert block.decode is not None
    raw = np.random.default_rng(number).integers(0, 256, (64, 3 * block.num_bytes), dtype=np.uint8)
    wanted = gguf.dequantize(raw.copy(), gguf.GGMLQuantizationType(number))
    weights = block.decode(torch.from_numpy(raw).view(64, -1, block.num_bytes)).dequantised().numpy()
    is_number = np.isfinite(wanted)  # random scales may be none
    assert is_number.mean() > 0.8
    if block.name not in WITH_MINIMA:
        assert (weights == wanted)[is_number].all()
        return
    scales = np.abs(np.where(is_number, wanted, 0)).reshape(64, -1, 16).max(axis=2).repeat(16, axis=1)
    assert (np.abs(weights - wanted)[is_number] <= 1e-5 * scales[is_number]).all()


def test_all_types_have_a_name() -> None:
    """For messages about those that are not served."""
    names = {number: block.name for number, block in BLOCKS.items()} | OTHER_TYPES
    assert names == {kind.value: kind.name for kind in gguf.GGMLQuantizationType if kind.value in names}
    assert {kind.value for kind in gguf.GGMLQuantizationType} <= names.keys()


def test_sizes_of_blocks() -> None:
    for number, block in BLOCKS.items():
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (block.size, block.num_bytes)
