"""Random engines under random loads, against the oracle: samples, resumptions, aborts, scarce pools, mixed types."""

import random
from dataclasses import replace

import pytest

from engine.drafts.proposer import Proposer
from engine.errors import InvalidRequest, QueueFull
from engine.memory.spec import LayerSpec
from engine.sampling_params import SamplingParams
from tests.engine.fakes import ONE_TYPE, TWO_TYPES, VOCAB_SIZE, Steps, continuation, make_core
from tests.engine.late_runner import ForgetfulInFlight, LateRunner

pytestmark = pytest.mark.measured_swap_costs  # the fake runner says what it measured

MIXES = [ONE_TYPE, TWO_TYPES, (LayerSpec("full", 40, "float32"), LayerSpec("full", 8, "float32"))]
NUM_STEPS_WITH_ARRIVALS = 40


class RandomLoad:
    """One engine, and for each accepted sample what it must bring and what it has brought."""

    def __init__(
        self, seed: int, *, is_crowded: bool = False, steps: Steps = "in turn", proposer: Proposer | None = None
    ) -> None:
        """is_crowded: answers grow long in a pool that holds two or three of them. steps, proposer: as in make_core."""
        self.random = random.Random(seed)
        self.longest = 40 if is_crowded else 20
        self.core, _ = make_core(
            self.random.choice([30, 40, 60] if is_crowded else [2, 3, 5, 8, 12, 20, 40]),
            layers=self.random.choice(MIXES),
            page_tokens=self.random.choice([1, 2] if is_crowded else [1, 2, 4, 8]),
            max_batched_tokens=self.random.choice([5, 16, 64] if is_crowded else [1, 2, 5, 16, 64]),
            max_running=self.random.choice([6, 12] if is_crowded else [1, 2, 4, 8]),
            enable_prefix_caching=self.random.random() < 0.7,
            num_mirror_pages=self.random.choice([20, 80] if is_crowded else [0, 1, 3, 10, 40]),
            seconds_per_byte=self.random.choice([0.0, 0.001, 1.0]),
            steps=steps,
            proposer=proposer,
            seconds_per_step=0.0 if proposer is None else 20.0,
        )
        self.expected: dict[tuple[str, int], list[int]] = {}
        self.brought: dict[tuple[str, int], list[int]] = {}
        self.reasons: dict[tuple[str, int], str] = {}

    def arrive(self, request_id: str) -> None:
        choose = self.random
        prompt = choose.choice([[5, 6, 7, 8, 9, 10], [9] * 4, [3]]) * choose.randint(1, 4)
        prompt += [choose.randrange(2, 100) for _ in range(choose.randint(0, 6))]
        seed = choose.randrange(5)
        params = SamplingParams(
            n=choose.choice([1, 1, 2, 4]),
            seed=seed,
            temperature=choose.choice([0.0, 1.0]),
            max_tokens=choose.randint(1, self.longest),
            ignore_eos=True,
            stop_token_ids=choose.choice([(), tuple(range(0, VOCAB_SIZE, 16)), tuple(range(0, VOCAB_SIZE, 5))]),
        )
        params = replace(params, min_tokens=choose.choice([0, 0, params.max_tokens // 2]))
        room = self.core.limits.max_model_len - len(prompt)
        whole = [
            until_stopped(continuation(prompt, params, seed=seed, index=index)[:room], params)
            for index in range(params.n)
        ]
        num_done = choose.choice([0, 0, choose.randint(0, len(whole[0]))]) if params.n == 1 else 0
        try:
            self.core.add_request(request_id, prompt, params, resume_token_ids=whole[0][:num_done])
        except (InvalidRequest, QueueFull):
            return
        for index, tokens in enumerate(whole):
            self.expected[request_id, index], self.brought[request_id, index] = tokens[num_done:], []

    def step(self) -> None:
        for delta in self.core.step():
            key = delta.request_id, delta.index
            assert key not in self.reasons, "a delta after the last one"
            self.brought[key] += delta.token_ids
            if delta.finish_reason is not None:
                self.reasons[key] = delta.finish_reason
        self.core.check_integrity()

    def run(self) -> None:
        for number in range(NUM_STEPS_WITH_ARRIVALS):
            if self.random.random() < 0.5:
                self.arrive(str(number))
            if self.random.random() < 0.05:
                self.core.abort(str(self.random.randrange(number + 1)))
            self.step()
        for _ in range(5000):
            if self.core.is_idle:
                return
            self.step()
        raise AssertionError("the engine does not finish")


def until_stopped(token_ids: list[int], params: SamplingParams) -> list[int]:
    ends = (i for i, token_id in enumerate(token_ids) if i >= params.min_tokens and token_id in params.stop_token_ids)
    return token_ids[: next(ends, len(token_ids)) + 1]


@pytest.mark.parametrize("steps", ["in turn", "overlapping", "late"])
@pytest.mark.parametrize("is_crowded", [False, True], ids=["any pool", "crowded"])
@pytest.mark.parametrize("seed", range(24))
def test_every_sample_brings_its_tokens_or_is_aborted(seed: int, is_crowded: bool, steps: Steps) -> None:
    load = RandomLoad(seed, is_crowded=is_crowded, steps=steps)
    load.run()
    assert load.reasons.keys() == load.expected.keys()
    for key, reason in load.reasons.items():
        if reason == "abort":
            assert load.expected[key][: len(load.brought[key])] == load.brought[key]
        else:
            assert load.brought[key] == load.expected[key]
    assert load.core.stats().queued_tokens == 0


@pytest.mark.parametrize("steps", ["in turn", "late"])
@pytest.mark.parametrize("seed", [1093, 1549])
def test_a_request_that_needs_the_whole_pool_ends_wherever_cached_pages_lie(seed: int, steps: Steps) -> None:
    # In these loads it came to a point where it had no room, again and again.
    load = RandomLoad(seed, steps=steps)
    load.run()
    assert load.core.stats().preemptions_total <= 2
    assert all(load.brought[key] == load.expected[key] for key, reason in load.reasons.items() if reason != "abort")


def test_crowded_loads_swap_and_recompute() -> None:
    counts = {"swap": 0, "recompute": 0}
    for seed in range(24):
        load = RandomLoad(seed, is_crowded=True)
        load.run()
        stats = load.core.stats()
        counts["swap"] += stats.swap_preemptions_total
        counts["recompute"] += stats.preemptions_total - stats.swap_preemptions_total
    assert min(counts.values()) > 10


def test_pages_that_are_handed_out_while_a_step_in_flight_writes_them_are_noticed() -> None:
    num_noticed = num_early = 0
    for seed in range(24):
        load = RandomLoad(seed, is_crowded=True, steps="late")
        core = load.core
        core._in_flight = core._scheduler._in_flight = ForgetfulInFlight(core._cache, 2)
        try:
            load.run()
            num_noticed += any(
                load.brought[key] != load.expected[key] for key, reason in load.reasons.items() if reason != "abort"
            )
        except (AssertionError, KeyError):
            num_noticed += 1
        assert isinstance(core._runner, LateRunner)
        num_early += core._runner.num_early
    assert num_noticed > 3
    assert num_early > 100
