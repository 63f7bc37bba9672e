"""Proposed tokens in the core: they change how many steps an answer takes, and nothing else."""

from dataclasses import replace

import pytest

from engine.batch import StepPlan
from engine.sampling_params import SamplingParams
from tests.engine.fakes import GREEDY, Oracle, Steps, continuation, make_core, run_all, run_one, text_of
from tests.engine.test_core_at_random import RandomLoad

PROMPT = [5, 9, 17, 33, 65, 2, 4, 8, 16, 32]
LONG = replace(GREEDY, max_tokens=40)
SAMPLED = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True)


def always_right() -> Oracle:
    return Oracle(0, share_right=1.0)


def drafts_of(plans: list[StepPlan]) -> list[int]:
    return [sequence.num_drafts for plan in plans for sequence in plan.sequences]


@pytest.mark.parametrize("steps", ["in turn", "overlapping", "late"])
@pytest.mark.parametrize("is_crowded", [False, True], ids=["any pool", "crowded"])
@pytest.mark.parametrize("seed", range(12))
def test_proposals_right_and_wrong_change_no_token(seed: int, is_crowded: bool, steps: Steps) -> None:
    proposer = Oracle(seed, is_free=bool(seed % 2), share_right=(0.95, 0.8, 0.5)[seed % 3])
    load = RandomLoad(seed, is_crowded=is_crowded, steps=steps, proposer=proposer)
    load.run()
    assert load.reasons.keys() == load.expected.keys()
    for key, reason in load.reasons.items():
        wanted = load.expected[key]
        assert load.brought[key] == (wanted[: len(load.brought[key])] if reason == "abort" else wanted)


def test_such_loads_accept_refuse_and_preempt() -> None:
    counts = {"accepted": 0, "refused": 0, "preempted": 0}
    for seed in range(12):
        load = RandomLoad(seed, is_crowded=True, proposer=Oracle(seed, share_right=0.8))
        load.run()
        stats = load.core.stats()
        counts["accepted"] += stats.accepted_draft_tokens_total
        counts["refused"] += stats.draft_tokens_total - stats.accepted_draft_tokens_total
        counts["preempted"] += stats.preemptions_total
    assert min(counts.values()) > 20


@pytest.mark.parametrize("params", [LONG, SAMPLED])
def test_right_proposals_save_steps_and_are_counted(params: SamplingParams) -> None:
    core, runner = make_core(proposer=always_right(), seconds_per_step=50.0)
    assert run_one(core, PROMPT, params)[0].token_ids == continuation(PROMPT, params, seed=3)
    stats = core.stats()
    assert len(runner.plans) < 20
    assert stats.steps_total + stats.saved_steps_total == 40
    assert stats.draft_tokens_total == stats.accepted_draft_tokens_total == sum(drafts_of(runner.plans))
    assert stats.draft_proposals_total == sum(count > 0 for count in drafts_of(runner.plans))


def test_next_to_nothing_is_verified_where_a_step_costs_by_its_tokens() -> None:
    core, runner = make_core(proposer=always_right())
    run_one(core, PROMPT, LONG)
    counts = drafts_of(runner.plans)
    assert any(counts[:8])  # that a second token costs as much as the first had to be seen
    assert sum(count > 0 for count in counts[8:]) <= 1  # a larger step than any before


def test_no_more_tokens_are_proposed_than_an_answer_may_have() -> None:
    core, runner = make_core(proposer=always_right(), seconds_per_step=50.0, draft_tokens=64)
    run_one(core, PROMPT, replace(GREEDY, max_tokens=6))
    assert all(s.start + len(s.token_ids) < len(PROMPT) + 6 for plan in runner.plans for s in plan.sequences)


def test_a_stop_string_within_proposed_tokens_ends_the_answer_there() -> None:
    whole = continuation(PROMPT, LONG)
    stop = text_of(whole[12:14])
    params = replace(LONG, stop=(stop,))
    (plain,) = run_one(make_core()[0], PROMPT, params)
    core, _ = make_core(proposer=always_right(), seconds_per_step=50.0)
    (sample,) = run_one(core, PROMPT, params)
    assert (sample.token_ids, sample.text, sample.finish_reason) == (plain.token_ids, plain.text, "stop")
    assert core.stats().generation_tokens_total == len(sample.token_ids)


def test_a_stop_token_is_not_verified_but_sampled() -> None:
    whole = continuation(PROMPT, LONG)
    core, runner = make_core(proposer=always_right(), seconds_per_step=50.0)
    (sample,) = run_one(core, PROMPT, replace(LONG, stop_token_ids=(whole[9],)))
    assert sample.token_ids == whole[: whole.index(whole[9]) + 1]
    assert all(whole[9] not in s.drafts for plan in runner.plans for s in plan.sequences)


def test_requests_with_bad_words_of_several_tokens_have_no_proposals() -> None:
    core, runner = make_core(proposer=always_right(), seconds_per_step=50.0)
    run_one(core, PROMPT, replace(LONG, bad_words_ids=((3, 4),)))
    assert not any(drafts_of(runner.plans))


def test_tokens_of_a_step_have_slots_and_a_budget() -> None:
    core, runner = make_core(
        proposer=always_right(), seconds_per_step=500.0, max_running=6, max_batched_tokens=9, draft_tokens=64
    )
    for index in range(4):
        core.add_request(str(index), PROMPT[index:], LONG)
    outputs = run_all(core)
    assert [outputs[str(i)][0].token_ids for i in range(4)] == [continuation(PROMPT[i:], LONG) for i in range(4)]
    assert max(plan.num_tokens for plan in runner.plans) <= 9
    assert max(sum(s.num_samples for s in plan.sequences) for plan in runner.plans) <= 6
    assert any(drafts_of(runner.plans))


def test_a_resumed_answer_goes_on_with_proposals() -> None:
    whole = continuation(PROMPT, SAMPLED, seed=3)
    core, _ = make_core(proposer=always_right(), seconds_per_step=50.0)
    (sample,) = run_one(core, PROMPT, SAMPLED, resume_token_ids=whole[:17])
    assert sample.token_ids == whole[17:]
    assert core.stats().accepted_draft_tokens_total > 0


def test_wrong_tokens_are_in_no_cached_page() -> None:
    core, _ = make_core(proposer=Oracle(5, share_right=0.6), seconds_per_step=50.0, page_tokens=2)
    (first,) = run_one(core, PROMPT, LONG)
    (second,) = run_one(core, [*PROMPT, *first.token_ids], GREEDY)
    assert second.token_ids == continuation([*PROMPT, *first.token_ids], GREEDY)
    assert second.num_cached_tokens >= 40
