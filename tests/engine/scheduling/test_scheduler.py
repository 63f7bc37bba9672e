"""Which tokens a step computes, seen in the plans that reach the runner."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from engine.batch import StepPlan
from engine.config import EngineConfig, ModelLimits
from engine.errors import ContextTooLong
from engine.memory.images import ImageSpan
from engine.memory.kv_cache import KVCache
from engine.memory.spec import LayerSpec
from engine.request import Request, RequestDelta, Sequence
from engine.sampling_params import SamplingParams
from engine.scheduling.admission_control import AdmissionControl
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.waiting_queue import MAX_OVERTAKEN
from tests.engine.fakes import GREEDY, TWO_TYPES, Steps, continuation, make_core, pool_plan, run_all

LONG = list(range(2, 42))  # ten pages of four tokens


def lengths(plan: StepPlan) -> list[int]:
    return [len(sequence.token_ids) for sequence in plan.sequences]


def ids_of(deltas: Iterable[RequestDelta]) -> list[str]:
    return [delta.request_id for delta in deltas]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    core, runner = make_core(max_batched_tokens=16)
    core.add_request("a", LONG, GREEDY)
    run_all(core)
    assert [lengths(plan) for plan in runner.plans[:4]] == [[16], [16], [8], [1]]
    assert [plan.sequences[0].num_samples for plan in runner.plans[:4]] == [0, 0, 1, 1]


@pytest.mark.parametrize("steps", ["in turn", "overlapping", "late"])
def test_only_rows_with_penalties_bring_their_tokens_and_only_where_they_first_draw(steps: Steps) -> None:
    core, runner = make_core(max_batched_tokens=16, steps=steps)
    core.add_request("with", LONG[:20], replace(GREEDY, frequency_penalty=0.5, max_tokens=3))
    core.add_request("without", LONG[20:], replace(GREEDY, max_tokens=3))
    run_all(core)
    histories = [sequence.history for plan in runner.plans for sequence in plan.sequences]
    assert [history for history in histories if history is not None] == [tuple(LONG[:20])]


def test_decodes_get_their_tokens_before_prompts_do() -> None:
    core, runner = make_core(max_batched_tokens=8)
    core.add_request("short", LONG[:4], GREEDY)
    core.step()
    core.add_request("long", LONG, GREEDY)
    core.step()
    assert lengths(runner.plans[-1]) == [1, 7]


def test_what_a_prompt_leaves_of_the_budget_goes_to_the_next_one() -> None:
    core, runner = make_core(max_batched_tokens=16)
    for index in range(3):
        core.add_request(str(index), LONG[10 * index :][:10], GREEDY)
    core.step()
    assert lengths(runner.plans[0]) == [10, 6]
    core.step()
    assert lengths(runner.plans[1]) == [1, 4, 10]


def test_no_step_exceeds_the_budget_or_the_slots() -> None:
    core, runner = make_core(max_batched_tokens=5, max_running=3)
    for index in range(10):
        core.add_request(str(index), LONG[: 3 + index], GREEDY)
    run_all(core)
    assert max(plan.num_tokens for plan in runner.plans) == 5
    assert max(len(plan.sequences) for plan in runner.plans) == 3


def test_a_budget_smaller_than_the_samples_of_a_request_serves_them_in_turn() -> None:
    core, _ = make_core(max_batched_tokens=2)
    params = SamplingParams(n=4, seed=1, max_tokens=5, ignore_eos=True)
    core.add_request("a", LONG[:5], params)
    expected = [continuation(LONG[:5], params, seed=1, index=index) for index in range(4)]
    assert [sample.token_ids for sample in run_all(core)["a"]] == expected


def test_requests_start_in_the_order_of_their_arrival() -> None:
    core, _ = make_core(max_running=1)
    for request_id in "abc":
        core.add_request(request_id, LONG[:4], replace(GREEDY, max_tokens=1))
    assert [ids_of(core.step()) for _ in range(3)] == [["a"], ["b"], ["c"]]


def test_a_request_that_does_not_fit_now_does_not_hold_up_smaller_ones() -> None:
    core, _ = make_core(num_pages=12)
    core.add_request("running", LONG[:8], GREEDY)
    core.step()
    core.add_request("large", LONG, GREEDY)
    core.add_request("small", LONG[:3], GREEDY)
    assert set(ids_of(core.step())) == {"running", "small"}
    assert set(run_all(core)) == {"running", "small", "large"}


def test_a_request_is_not_overtaken_for_ever() -> None:
    core, _ = make_core(num_pages=14, max_queued_requests=1000, enable_prefix_caching=False)
    one_token = replace(GREEDY, max_tokens=1)
    core.add_request("running", LONG[:8], replace(GREEDY, max_tokens=MAX_OVERTAKEN * 2 // 3))
    core.step()
    core.add_request("large", LONG, one_token)
    for index in range(300):
        core.add_request(str(index), LONG[:3], one_token)
    finished = []
    while not core.is_idle:
        finished += [delta.request_id for delta in core.step() if delta.finish_reason]
    assert MAX_OVERTAKEN <= finished.index("large") <= MAX_OVERTAKEN + 1


def test_the_youngest_request_is_preempted_first_and_the_oldest_never() -> None:
    core, runner = make_core(num_pages=9, enable_prefix_caching=False)
    params = replace(GREEDY, max_tokens=20)
    for request_id in ("old", "middle", "young"):
        core.add_request(request_id, LONG[:3], params)
    finished = []
    starts = []
    while not core.is_idle:
        finished += [delta.request_id for delta in core.step() if delta.finish_reason]
        if runner.plans:
            starts += [sequence.sequence_id for sequence in runner.plans[-1].sequences if sequence.start == 0]
    assert core.stats().preemptions_total > 0
    assert finished[0] == "old"
    assert starts.count(0) == 1
    assert starts.count(2) > 1


def test_all_samples_of_a_preempted_request_leave_together() -> None:
    core, runner = make_core(num_pages=14, enable_prefix_caching=False)
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=44))
    core.add_request("young", LONG[:10], SamplingParams(n=3, seed=2, max_tokens=12, ignore_eos=True))
    run_all(core)
    assert core.stats().preemptions_total > 0
    present = [[sequence.sequence_id for sequence in plan.sequences if sequence.sequence_id] for plan in runner.plans]
    assert sorted(present[1]) == [1, 2, 3]
    first_after = next(ids for ids in present[present.index([]) :] if ids)
    assert first_after == [1], "one sequence computes the prompt again for all"


def test_a_preempted_request_finds_its_own_pages_in_the_prefix_cache() -> None:
    core, runner = make_core(num_pages=12)
    core.add_request("old", LONG[:10], replace(GREEDY, max_tokens=24))
    core.add_request("young", LONG[20:30], replace(GREEDY, max_tokens=24))
    run_all(core)
    assert core.stats().preemptions_total == 1
    resumed = [
        sequence.start
        for plan in runner.plans[1:]
        for sequence in plan.sequences
        if sequence.sequence_id == 1 and len(sequence.token_ids) > 1
    ]
    assert resumed[0] > 0


def test_admission_leaves_a_page_for_every_running_sequence() -> None:
    core, _ = make_core(num_pages=6)
    core.add_request("a", LONG[:8], GREEDY)
    core.add_request("b", LONG[20:24], GREEDY)
    core.add_request("c", LONG[30:34], GREEDY)
    core.step()
    # a has two pages and b one. c needs a page now, one for its next token, and would leave one for both others.
    assert core.stats().running == 2


def test_a_request_alone_gets_the_whole_pool() -> None:
    core, _ = make_core(num_pages=4)
    core.add_request("a", LONG[:15], replace(GREEDY, max_tokens=1))
    assert ids_of(core.step()) == ["a"]


def test_the_longest_requests_that_are_accepted_are_served() -> None:
    core, _ = make_core(num_pages=6, layers=TWO_TYPES, max_batched_tokens=3)
    longest = core.limits.max_model_len
    for request_id, num_prompt in (("a", longest - 3), ("b", longest - 1), ("c", 2)):
        core.add_request(request_id, LONG[:num_prompt], replace(GREEDY, max_tokens=100))
    outputs = run_all(core)
    for request_id, num_prompt in (("a", longest - 3), ("b", longest - 1), ("c", 2)):
        (sample,) = outputs[request_id]
        params = replace(GREEDY, max_tokens=longest - num_prompt)
        assert sample.token_ids == continuation(LONG[:num_prompt], params)


@pytest.mark.parametrize("num_pages", [6, 9, 13])
def test_crowded_pools_of_two_types_serve_every_request(num_pages: int) -> None:
    core, _ = make_core(num_pages, layers=TWO_TYPES, max_batched_tokens=9, max_running=6)
    params = [replace(GREEDY, max_tokens=1 + 5 * index % 12) for index in range(14)]
    prompts = [LONG[index : index + 1 + 7 * index % 11] for index in range(14)]
    for index in range(14):
        core.add_request(str(index), prompts[index], params[index])
    outputs = run_all(core)
    for index in range(14):
        assert outputs[str(index)][0].token_ids == continuation(prompts[index], params[index])


SEEING = (LayerSpec("full", 32, "float32"), LayerSpec("cross", 32, "float32"))
IMAGE = ImageSpan(position=0, num_tokens=24, key=b"cat", num_text_tokens=1)


@pytest.fixture
def seeing() -> tuple[AdmissionControl, Scheduler]:
    """A scheduler without an engine around it: no served model takes images yet. Ten pages of four tokens."""
    cache = KVCache(pool_plan(10, layers=SEEING), max_step_tokens=16)
    limits = ModelLimits(64, 128)
    admission = AdmissionControl(cache.rule, limits, max_running=4, max_requests=None, max_tokens=None)
    return admission, Scheduler(EngineConfig("fake", page_tokens=4, max_batched_tokens=16), cache, admission)


def test_a_request_whose_images_never_fit_is_refused(seeing: tuple[AdmissionControl, Scheduler]) -> None:
    admission, _ = seeing
    prompt = tuple(LONG[:16])
    admission.check_request(prompt, GREEDY)
    with pytest.raises(ContextTooLong, match="page pool"):
        admission.check_request(prompt, GREEDY, images=(IMAGE,))  # 7 pages of text, 6 of the image
    admission.check_request(prompt, replace(GREEDY, max_tokens=1), images=(replace(IMAGE, num_tokens=16),))


def test_a_request_waits_until_the_pages_of_its_images_fit(seeing: tuple[AdmissionControl, Scheduler]) -> None:
    _, scheduler = seeing
    for index, images in enumerate([(IMAGE,), (replace(IMAGE, key=b"dog"),), ()]):
        request = Request(str(index), index, (5, 6), GREEDY, [Sequence(index, 0, 0, [5, 6], 2)])
        scheduler.enqueue_request(request, 0, images)
    plan = scheduler.schedule()
    assert plan is not None
    assert [sequence.sequence_id for sequence in plan.sequences] == [0, 2], "two images of six pages do not fit"
