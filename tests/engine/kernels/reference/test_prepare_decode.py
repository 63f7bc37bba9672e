"""Inputs of a decode step: token, position, context length, places and sampling parameters of every row."""

import numpy as np
import torch

from engine.kernels.reference import prepare_decode
from engine.kernels.step_kernels import SamplingColumns


def test_each_row_gets_its_token_position_context_and_places_and_padding_gets_nothing() -> None:
    slots = torch.tensor([3, -1, 0, 2], dtype=torch.int32)
    starts = torch.tensor([0, 7, 9, 4], dtype=torch.int32)
    last_tokens = torch.tensor([50, 51, 52, 53])
    tables = (torch.arange(16, dtype=torch.int32).view(4, 4) + 1, torch.arange(8, dtype=torch.int32).view(4, 2) + 30)
    token_ids, positions, places = torch.full((4,), 9), torch.full((4,), 9), [torch.full((4,), 9) for _ in tables]
    context_lengths = torch.full((4,), 9, dtype=torch.int32)
    words = np.zeros((4, 8), np.int32)
    words[:, [0, 2, 3]] = np.array([0.5, 0.25, 0.125], np.float32).view(np.int32)
    words[:, 1] = np.arange(4)
    words.view(np.uint64)[:, 2] = 2**64 - 1 - np.arange(4, dtype=np.uint64)
    words[:, 6] = -np.arange(4)
    sampling = SamplingColumns.allocate(4, torch.device("cpu"))
    inputs = (slots, starts, last_tokens, tables, (4, 8), torch.from_numpy(words))
    prepare_decode(*inputs, token_ids, positions, context_lengths, places, sampling)
    assert token_ids.tolist() == [53, 0, 50, 52]
    assert positions.tolist() == [0, 0, 9, 4]
    assert context_lengths.tolist() == [1, 0, 10, 5]
    assert places[0].tolist() == [13 * 4, -1, 3 * 4 + 1, 10 * 4]
    assert places[1].tolist() == [36 * 8, -1, 31 * 8 + 1, 34 * 8 + 4]
    assert sampling.temperatures.tolist() == [0.5, 0.0, 0.5, 0.5]
    assert sampling.top_k.tolist() == [3, 0, 0, 2]
    assert sampling.top_p.tolist() == [0.25, 1.0, 0.25, 0.25]
    assert sampling.min_p.tolist() == [0.125, 0.0, 0.125, 0.125]
    assert sampling.seeds.tolist() == [-4, 0, -1, -3]
    assert sampling.counters.tolist() == [1 - 3, 0, 10, 5 - 2]
