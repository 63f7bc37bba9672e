"""Operators of recurrent layers and mixtures of experts, in the shapes of benchmarks/engine/hybrid_shapes.py: 32 rows
that decode, and a prompt.

States are read and written once; recurrences compute in float32, whatever the activations are, and an exponential
counts as one operation.
"""

from collections.abc import Callable, Iterator

import torch

from benchmarks.operators.cases import Case, operator_sets
from engine.kernels.operators import Operators, Routing
from engine.kernels.state_kernels import DeltaWeights, ScanHeads, StatesInPlace
from engine.layers.experts import chosen_by_host
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP

_ROWS, _PROMPT = 32, 512
_DTYPES = (torch.float32, torch.bfloat16)
Make = Callable[[], Callable[[], object]]


def hybrid_cases(num_threads: int, *, is_quick: bool) -> Iterator[Case]:
    """Every operator for the engine's own choice of operators on this machine."""
    loads = ((3, 1), (1, 5)) if is_quick else ((_ROWS, 1), (1, _PROMPT))
    for dtype in _DTYPES:
        operators = operator_sets(dtype, num_threads)[-1]
        for rows, tokens in loads:
            yield _head_scan(operators, rows, tokens, dtype, *((2, 8, 8) if is_quick else (24, 64, 128)))
            yield _selective_scan(operators, rows, tokens, dtype, *((24, 4) if is_quick else (1536, 16)))
            for is_by_channel in (False, True):
                heads = (2, 8, 8) if is_quick else (8, 128, 128)
                yield _delta(operators, rows, tokens, dtype, *heads, is_by_channel=is_by_channel)
            sizes = (4, 2, 32, 16) if is_quick else (32, 4, 768, 384)
            yield _experts(operators, rows * tokens, dtype, *sizes)


def _head_scan(
    operators: Operators, rows: int, tokens: int, dtype: torch.dtype, heads: int, channels: int, numbers: int
) -> Case:
    """Per number of the state: decay, product and sum of the input, product and sum of the output."""
    count = rows * tokens
    moved = 8 * rows * heads * channels * numbers
    moved += count * (2 * heads * channels + heads + 2 * numbers) * dtype.itemsize

    def make() -> Callable[[], object]:
        x = torch.randn(count, heads * channels).to(dtype)
        dt, b, c = (torch.randn(count, size).to(dtype) for size in (heads, numbers, numbers))
        scan = ScanHeads(-torch.rand(heads), torch.rand(heads), torch.rand(heads), (0.0, float("inf")))
        states = _states(rows, tokens, heads, channels, numbers)
        return lambda: operators.state_kernels.head_scan(x, dt, b, c, scan, states)

    text = f"{_load(rows, tokens)}, {heads} x {channels} x {numbers}"
    return _case("head scan (Mamba-2)", operators, text, dtype, moved, 5 * count * heads * channels * numbers, make)


def _selective_scan(
    operators: Operators, rows: int, tokens: int, dtype: torch.dtype, channels: int, numbers: int
) -> Case:
    """Per number of the state: as a head scan, and the decay's own product and exponential."""
    count = rows * tokens
    moved = 8 * rows * channels * numbers + count * (4 * channels + 2 * numbers) * dtype.itemsize

    def make() -> Callable[[], object]:
        x, dt, gate = (torch.randn(count, channels).to(dtype) for _ in range(3))
        b, c = (torch.randn(count, numbers).to(dtype) for _ in range(2))
        a, d = -torch.rand(channels, numbers), torch.rand(channels)
        states = _states(rows, tokens, channels, numbers)
        return lambda: operators.state_kernels.selective_scan(x, dt, b, c, gate, a, d, states)

    text = f"{_load(rows, tokens)}, {channels} x {numbers}"
    return _case("selective scan (Mamba)", operators, text, dtype, moved, 7 * count * channels * numbers, make)


def _delta(
    operators: Operators,
    rows: int,
    tokens: int,
    dtype: torch.dtype,
    heads: int,
    key_dim: int,
    value_dim: int,
    *,
    is_by_channel: bool,
) -> Case:
    """Per number of the state: decay; product and sum of reading by the key, of the update and of the query.
    is_by_channel: with a decay for every channel of a key (Kimi delta attention)."""
    count = rows * tokens
    state, num_decays = heads * key_dim * value_dim, heads * (key_dim if is_by_channel else 1)
    moved = 8 * rows * state + count * heads * (2 * key_dim + 3 * value_dim + 1) * dtype.itemsize
    moved += count * num_decays * dtype.itemsize

    def make() -> Callable[[], object]:
        qkv = torch.randn(count, heads * (2 * key_dim + value_dim)).to(dtype)
        gate = torch.randn(count, heads * value_dim).to(dtype)
        a, b = (torch.randn(count, size).to(dtype) for size in (num_decays, heads))
        weights = DeltaWeights(-0.1 * torch.rand(heads), torch.zeros(num_decays), torch.ones(value_dim), 1e-6)
        states = _states(rows, tokens, heads, key_dim, value_dim)
        kernels = operators.state_kernels
        read = kernels.channel_delta if is_by_channel else kernels.gated_delta
        return lambda: read(qkv, gate, a, b, weights, states)

    text = f"{_load(rows, tokens)}, {heads} x {key_dim} x {value_dim}"
    name = "delta by channel (Kimi)" if is_by_channel else "gated delta"
    return _case(name, operators, text, dtype, moved, 7 * count * state, make)


def _experts(
    operators: Operators, rows: int, dtype: torch.dtype, experts: int, num_chosen: int, hidden: int, ffn: int
) -> Case:
    """The rows choose the experts in turn, so that as many as possible are read."""
    num_choices, matrices = rows * num_chosen, 3 * hidden * ffn
    moved = (min(num_choices, experts) * matrices + 2 * rows * hidden) * dtype.itemsize

    def make() -> Callable[[], object]:
        def linear(outputs: int, inputs: int) -> Linear:
            return Linear.bind(operators, (torch.randn(outputs, inputs) * inputs**-0.5).to(dtype), None)

        mlps = [GatedMLP(linear(2 * ffn, hidden), linear(hidden, ffn), operators.silu_mul) for _ in range(experts)]
        mix = chosen_by_host(operators, mlps, Routing(num_chosen, sums_to_one=True))
        x = torch.randn(rows, hidden).to(dtype)
        chosen = torch.arange(num_choices).view(rows, num_chosen) % experts
        scores = torch.zeros(rows, experts).scatter_(1, chosen, 1.0).to(dtype)
        return lambda: mix(x, scores)

    text = f"{rows} rows, {num_chosen} of {experts}, {hidden} x {ffn}"
    operations = 2 * num_choices * matrices
    return Case("experts", operators.name, text, dtype, moved, operations, make)


def _case(
    name: str, operators: Operators, text: str, dtype: torch.dtype, moved: int, operations: int, make: Make
) -> Case:
    return Case(name, operators.name, text, dtype, moved, operations, make, arithmetic=torch.float32)


def _load(rows: int, tokens: int) -> str:
    return f"{rows} rows" if tokens == 1 else f"{tokens} tokens"


def _states(rows: int, tokens: int, *shape: int) -> StatesInPlace:
    return StatesInPlace(
        pages=torch.zeros(rows, *shape),
        page_ids=torch.randperm(rows),
        starts=torch.ones(rows, dtype=torch.int32),
        query_starts=torch.arange(0, rows * tokens + 1, tokens, dtype=torch.int32),
        max_queries=tokens,
    )
