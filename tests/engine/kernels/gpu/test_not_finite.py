"""Rows of logits that are not finite get no token, whatever unwritten memory holds, and change no other row. With
AGON_NOT_FINITE_ROWS=1000 so many such rows are placed; the gate places fewer."""

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from engine.batch import NO_TOKEN
from engine.kernels import gpu, reference
from engine.kernels.step_kernels import SamplingWorkspace, StepKernels
from engine.sampling_params import SamplingParams
from tests.engine.kernels.sampling_cases import PARAMS, PLAIN, random_rows
from tests.engine.sampling.unsound_rows import spoil

NUM_ROWS = int(os.environ.get("AGON_NOT_FINITE_ROWS", "20"))
EACH = (*PARAMS, SamplingParams(temperature=0.0), replace(PLAIN, top_k=3))
V = 130  # three spans


def poisoned(vocab_size: int, device: torch.device, chance: random.Random) -> SamplingWorkspace:
    """A workspace of content that nobody wrote."""
    workspace = SamplingWorkspace.allocate(len(EACH), vocab_size, device)
    for memory in (workspace.maxima, workspace.masses, workspace.candidates):
        memory.fill_(chance.choice([float("nan"), float("inf"), -1e30, 1e30, 0.5]))
    workspace.chosen.fill_(chance.choice([-3, 1_000_003, -(2**31), 2**31 - 1]))
    return workspace


def sampled(
    kernels: StepKernels, logits: torch.Tensor, workspace: SamplingWorkspace
) -> tuple[list[int], list[int], list[float]]:
    """Tokens, the newest tokens of their slots, and log probabilities of these tokens."""
    num_rows, device = len(logits), logits.device

    def column(values: list[float], kind: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.tensor(values, dtype=kind, device=device)

    tokens, newest = torch.full((num_rows,), -7, device=device), torch.full((num_rows + 1,), -7, device=device)
    columns = [column([getattr(p, name) for p in EACH]) for name in ("temperature", "top_p", "min_p")]
    kernels.sample(
        logits,
        columns[0],
        column([p.top_k for p in EACH], torch.int32),
        columns[1],
        columns[2],
        torch.arange(num_rows, device=device),
        torch.full((num_rows,), 5, device=device),
        tokens,
        workspace,
        torch.arange(num_rows, dtype=torch.int32, device=device),
        newest,
    )
    chosen, top = torch.empty(num_rows, device=device), torch.empty(num_rows, 3, device=device)
    top_ids = torch.empty(num_rows, 3, dtype=torch.int64, device=device)
    kernels.top_logprobs(logits, tokens, chosen, top_ids, top, workspace)
    return tokens.tolist(), newest.tolist()[:num_rows], chosen.tolist()


def changed(kernels: StepKernels, logits: torch.Tensor) -> torch.Tensor:
    """Under masks, biases and penalties, each on some rows."""
    num_rows, device = len(logits), logits.device
    logits = logits.clone()
    masked = torch.full((num_rows,), -1, device=device)
    masked[::4] = 0
    words = torch.full((1, -(-V // 32)), 0x7FFFFFF5, dtype=torch.int32, device=device)
    kernels.mask_tokens(logits, masked, words)
    biased = torch.full((num_rows, 2), -1, dtype=torch.int32, device=device)
    biased[1::4] = torch.tensor([3, V - 1], dtype=torch.int32, device=device)
    kernels.add_biases(logits, biased, torch.tensor([[1.5, float("-inf")]], device=device).repeat(num_rows, 1))
    slots = torch.full((num_rows,), -1, device=device)
    slots[2::4] = torch.arange(len(slots[2::4]), device=device)
    counts = torch.randint(0, 4, (num_rows, V), dtype=torch.int32, generator=torch.Generator().manual_seed(2))
    factors = [torch.full((num_rows,), value, device=device) for value in (1.4, 0.3, 0.2)]
    kernels.penalise(logits, slots, counts.to(device), *factors)
    return logits


@pytest.mark.first_minutes(4)
@pytest.mark.parametrize("change", [lambda kernels, logits: logits, changed], ids=["as they are", "changed"])
@pytest.mark.parametrize("kernels", [gpu, reference], ids=["triton", "reference"])
def test_a_row_that_is_not_finite_gets_no_token_and_changes_no_other_row(
    kernels: StepKernels,
    change: Callable[[StepKernels, torch.Tensor], torch.Tensor],
    device: torch.device,
) -> None:
    chance = random.Random(1)
    logits = random_rows(V, EACH).to(device)
    wanted = sampled(kernels, change(kernels, logits), poisoned(V, device, chance))
    assert NO_TOKEN not in wanted[0]
    num_placed = 0
    while num_placed < NUM_ROWS // 2:
        spoilt = chance.sample(range(len(EACH)), chance.randint(4, 12))
        num_placed += len(spoilt)
        rows = logits.clone()
        for row in spoilt:
            spoil(rows[row], chance, visible=[0, 2, 4, 6])  # tokens that the mask allows and no bias forbids
        tokens, newest, logprobs = sampled(kernels, change(kernels, rows), poisoned(V, device, chance))
        for row in range(len(EACH)):
            if row in spoilt:
                assert tokens[row] == NO_TOKEN
                assert 0 <= newest[row] < V, "the step that is in flight looks it up"
                assert logprobs[row] != logprobs[row]
            else:
                assert (tokens[row], newest[row], logprobs[row]) == tuple(part[row] for part in wanted)
