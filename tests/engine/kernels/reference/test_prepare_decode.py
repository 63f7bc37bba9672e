"""Inputs of a decode step: token, position, context length and places of every row."""

import torch

from engine.kernels.reference import prepare_decode


def test_each_row_gets_its_token_position_context_and_places_and_padding_gets_nothing() -> None:
    slots = torch.tensor([3, -1, 0, 2], dtype=torch.int32)
    starts = torch.tensor([0, 7, 9, 4], dtype=torch.int32)
    last_tokens = torch.tensor([50, 51, 52, 53])
    tables = (torch.arange(16, dtype=torch.int32).view(4, 4) + 1, torch.arange(8, dtype=torch.int32).view(4, 2) + 30)
    token_ids, positions, places = torch.full((4,), 9), torch.full((4,), 9), [torch.full((4,), 9) for _ in tables]
    context_lengths = torch.full((4,), 9, dtype=torch.int32)
    prepare_decode(slots, starts, last_tokens, tables, (4, 8), token_ids, positions, context_lengths, places)
    assert token_ids.tolist() == [53, 0, 50, 52]
    assert positions.tolist() == [0, 0, 9, 4]
    assert context_lengths.tolist() == [1, 0, 10, 5]
    assert places[0].tolist() == [13 * 4, -1, 3 * 4 + 1, 10 * 4]
    assert places[1].tolist() == [36 * 8, -1, 31 * 8 + 1, 34 * 8 + 4]
