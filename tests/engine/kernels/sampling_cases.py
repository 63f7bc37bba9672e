"""Logits, sampling parameters and expected tokens, for tests of every implementation of sampling."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from engine.kernels.step_kernels import SamplingWorkspace
from engine.kernels.torch_operators import TorchOperators
from engine.sampling.sampler import SamplingRow
from engine.sampling.sampler import sample as sample_on_cpu
from engine.sampling_params import SamplingParams

PLAIN = SamplingParams(temperature=1.0)
#: Each truncation alone and combined, at temperatures below and above 1.
PARAMS = (
    SamplingParams(temperature=0.0),
    PLAIN,
    replace(PLAIN, temperature=0.05),
    replace(PLAIN, temperature=7.0),
    replace(PLAIN, top_k=1),
    replace(PLAIN, top_k=5),
    replace(PLAIN, top_k=100_000),
    replace(PLAIN, top_p=1e-6),
    replace(PLAIN, top_p=0.5),
    replace(PLAIN, top_p=0.95, temperature=1.5),
    replace(PLAIN, top_p=0.999),
    replace(PLAIN, min_p=0.1),
    replace(PLAIN, min_p=1.0),
    replace(PLAIN, top_k=7, top_p=0.6),
    replace(PLAIN, top_k=40, top_p=0.9, min_p=0.02, temperature=0.7),
)


def random_rows(vocab_size: int, params: Sequence[SamplingParams] = PARAMS, seed: int = 0) -> torch.Tensor:
    """Logits [len(params), vocab_size], flat in the first rows and peaked in the last ones."""
    generator = torch.Generator().manual_seed(seed)
    widths = torch.linspace(0.5, 6.0, len(params))[:, None]
    return torch.randn(len(params), vocab_size, generator=generator) * widths


def special_rows(vocab_size: int) -> torch.Tensor:
    """Five rows of logits: all equal; all but one -inf; many ties; every second one -inf; huge gaps."""
    generator = torch.Generator().manual_seed(1)
    equal = torch.full((vocab_size,), 3.0)
    one_hot = torch.full((vocab_size,), float("-inf"))
    one_hot[vocab_size // 2] = -4.0
    pairs = torch.randn(vocab_size, generator=generator).mul(2).round().div(2)
    halved = torch.randn(vocab_size, generator=generator)
    halved[::2] = float("-inf")
    gaps = torch.randn(vocab_size, generator=generator)
    gaps[3], gaps[-1] = 1e30, -1e30
    return torch.stack((equal, one_hot, pairs, halved, gaps))


def draw(
    sample: Callable[..., None],
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    index: int,
) -> list[int]:
    """Tokens sampled by a StepKernels.sample function: one row per seed, each with random number `index` of its
    seed."""

    def column(values: list[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    device = logits.device
    token_ids = torch.full((len(params),), -7, device=device)
    sample(
        logits,
        column([p.temperature for p in params]),
        column([p.top_k for p in params], torch.int32),
        column([p.top_p for p in params]),
        column([p.min_p for p in params]),
        torch.tensor([seed - 2**64 if seed >= 2**63 else seed for seed in seeds], device=device),
        torch.full((len(params),), index, device=device),
        token_ids,
        SamplingWorkspace.allocate(len(params), logits.shape[1], logits.device),
    )
    return token_ids.tolist()


def expected(logits: torch.Tensor, params: Sequence[SamplingParams], seeds: Sequence[int], index: int) -> list[int]:
    """Tokens that the CPU sampler draws for the same arguments."""
    rows = [SamplingRow(p, seed, index) for p, seed in zip(params, seeds, strict=True)]
    return [token.token_id for token in sample_on_cpu(logits.cpu(), rows, frozenset(), TorchOperators().argmax)]
