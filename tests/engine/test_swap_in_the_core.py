"""Swapping as callers, runner and operators see it: tokens stay, pages move, every number adds up."""

from dataclasses import replace

import pytest

from engine.core import EngineCore
from engine.memory.spec import LayerSpec
from engine.sampling_params import SamplingParams
from tests.engine.fakes import GREEDY, ONE_TYPE, TWO_TYPES, PagedFakeRunner, continuation, make_core, run_all

pytestmark = pytest.mark.measured_swap_costs  # the fake runner says what it measured

LONG = list(range(2, 42))  # ten pages of four tokens
FORKED = SamplingParams(n=3, seed=2, max_tokens=12, ignore_eos=True)


def crowded_core(
    num_mirror_pages: int = 20, *, enable_prefix_caching: bool = True, seconds_per_byte: float = 0.0
) -> tuple[EngineCore, PagedFakeRunner]:
    """Room for one request to finish, not for two."""
    core, runner = make_core(
        num_pages=12,
        num_mirror_pages=num_mirror_pages,
        enable_prefix_caching=enable_prefix_caching,
        seconds_per_byte=seconds_per_byte,
    )
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=24))
    core.add_request("young", LONG[20:30], replace(GREEDY, max_tokens=24))
    return core, runner


def step_until_swapped(core: EngineCore) -> None:
    for _ in range(100):
        core.step()
        if core.stats().swapped:
            return
    raise AssertionError("nothing was swapped out")


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_a_swapped_request_computes_no_token_twice(enable_prefix_caching: bool) -> None:
    core, runner = crowded_core(enable_prefix_caching=enable_prefix_caching)
    outputs = run_all(core)
    stats = core.stats()
    assert stats.preemptions_total == stats.swap_preemptions_total == 1
    starts = [sequence.start for plan in runner.plans for sequence in plan.sequences if sequence.sequence_id == 1]
    assert starts == sorted(set(starts))
    assert outputs["young"][0].token_ids == continuation(LONG[20:30], replace(GREEDY, max_tokens=24))
    assert outputs["old"][0].token_ids == continuation(LONG[:10], replace(GREEDY, max_tokens=24))


def test_samples_come_back_together_with_their_shared_pages_shared() -> None:
    core, runner = make_core(num_pages=14, num_mirror_pages=20, enable_prefix_caching=False)
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=44))
    core.add_request("young", LONG[:10], FORKED)
    outputs = run_all(core)
    assert core.stats().swap_preemptions_total > 0
    back = next(plan for plan in runner.plans if plan.swap_ins and plan.sequences)
    assert [sequence.sequence_id for sequence in back.sequences if sequence.sequence_id] == [1, 2, 3]
    assert all(len(sequence.token_ids) == 1 for sequence in back.sequences)
    # Two full pages of the prompt are shared by all three; each has its own from there on.
    slots = {sequence.slot for sequence in back.sequences if sequence.sequence_id}
    tables = [update.page_ids for update in back.page_table_updates if update.slot in slots]
    assert len({table[:2] for table in tables}) == 1
    moved = [move.device_page for move in back.swap_ins]
    assert len(moved) == len(set(moved)) == 2 + sum(len(set(table[2:]) & set(moved)) for table in tables)
    for index, sample in enumerate(outputs["young"]):
        assert sample.token_ids == continuation(LONG[:10], FORKED, seed=2, index=index)


@pytest.mark.parametrize("layers", [ONE_TYPE, TWO_TYPES], ids=["one type", "two types"])
@pytest.mark.parametrize("num_mirror_pages", [1, 4, 40])
@pytest.mark.parametrize("max_batched_tokens", [1, 7, 64])
def test_tokens_do_not_depend_on_how_a_request_was_preempted(
    layers: tuple[LayerSpec, ...], num_mirror_pages: int, max_batched_tokens: int
) -> None:
    core, _ = make_core(
        18, layers=layers, num_mirror_pages=num_mirror_pages, max_batched_tokens=max_batched_tokens, max_running=6
    )
    prompts = [[(7 * i + j * (i + 3)) % 120 + 2 for j in range(3 + 5 * i % 29)] for i in range(8)]
    params = [replace(GREEDY, max_tokens=20) if i % 2 else replace(FORKED, max_tokens=8) for i in range(8)]
    for index, prompt in enumerate(prompts):
        core.add_request(str(index), prompt, params[index])
    outputs = run_all(core)
    for index, prompt in enumerate(prompts):
        for which, sample in enumerate(outputs[str(index)]):
            assert sample.token_ids == continuation(prompt, params[index], seed=params[index].seed or 0, index=which)


def test_what_costs_more_to_move_is_recomputed() -> None:
    core, _ = crowded_core(seconds_per_byte=10.0)
    run_all(core)
    stats = core.stats()
    assert (stats.preemptions_total, stats.swap_preemptions_total, stats.swapped_bytes_total) == (1, 0, 0)


def test_what_the_mirror_has_no_room_for_is_recomputed() -> None:
    core, _ = crowded_core(num_mirror_pages=3)
    outputs = run_all(core)
    assert (core.stats().preemptions_total, core.stats().swap_preemptions_total) == (1, 0)
    assert outputs["young"][0].token_ids == continuation(LONG[20:30], replace(GREEDY, max_tokens=24))


def test_without_a_mirror_nothing_is_swapped() -> None:
    core, _ = crowded_core(num_mirror_pages=0)
    run_all(core)
    stats = core.stats()
    assert (stats.preemptions_total, stats.swap_preemptions_total, stats.mirror_bytes_total) == (1, 0, 0)


def test_numbers_tell_what_lies_in_the_mirror() -> None:
    core, runner = crowded_core()
    step_until_swapped(core)
    stats = core.stats()
    page_bytes = stats.types[0].small_page_bytes
    num_moved = sum(len(plan.swap_outs) for plan in runner.plans if plan.sequences)
    assert (stats.running, stats.waiting, stats.swapped) == (1, 1, 1)
    assert stats.mirror_bytes_used == num_moved * page_bytes == stats.swapped_bytes_total
    assert stats.mirror_bytes_total == 21 * page_bytes
    run_all(core)
    stats = core.stats()
    assert (stats.swapped, stats.mirror_bytes_used) == (0, 0)
    assert stats.swapped_bytes_total == 2 * num_moved * page_bytes


@pytest.mark.parametrize("params", [replace(GREEDY, max_tokens=24), FORKED], ids=["one sample", "three samples"])
def test_an_abort_of_a_swapped_out_request_frees_its_pages_in_the_mirror(params: SamplingParams) -> None:
    core, _ = make_core(num_pages=14, num_mirror_pages=20)
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=44))
    core.add_request("young", LONG[20:30], params)
    step_until_swapped(core)
    core.abort("young")
    stats = core.stats()
    assert (stats.swapped, stats.mirror_bytes_used, stats.waiting) == (0, 0, 0)
    core.check_integrity()
    assert len(run_all(core)["old"][0].token_ids) > 0


def test_the_first_plans_only_measure_what_a_move_costs() -> None:
    core, runner = crowded_core()
    measured = [plan for plan in runner.plans if not plan.sequences]
    assert len(measured) == 2
    assert all(plan.swap_outs == plan.swap_ins != () for plan in measured)
    assert core.stats().swapped_bytes_total == 0
