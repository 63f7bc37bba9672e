"""Whose turn it is, who gives pages to whom, and a host of one model."""

from collections.abc import Callable, Mapping
from itertools import groupby

import pytest

from engine.hosting.host_core import Bounds, check_floors
from engine.hosting.step_bound import LEAST_TOKENS, MOST_TOKENS, StepBound
from engine.hosting.turns import MAX_FOREIGN_S, MAX_FOREIGN_STEPS, Turns
from engine.memory.spec import LayerSpec
from engine.sampling_params import SamplingParams
from tests.engine.fakes import GREEDY, ONE_TYPE, Steps, continuation, make_core, run_all
from tests.engine.hosting.fake_hosts import FakeHost

OTHER_TYPE = (LayerSpec("full", 96, "bfloat16"),)


def params(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)


def two_models(num_pages: int, *, seconds_per_token: float = 0.001, **options: int | None) -> FakeHost:
    host = FakeHost({"a": ONE_TYPE, "b": ONE_TYPE}, num_pages, seconds_per_token=seconds_per_token)
    for name in host.layers:
        host.add(name, floor=options.get(f"floor_{name}") or 0, ceiling=options.get(f"ceiling_{name}"))
    return host


def submit(host: FakeHost, name: str, *lengths: tuple[int, int]) -> None:
    """Requests with prompts and outputs of these lengths, all different."""
    core = host.models[name].core
    for index, (num_prompt, num_output) in enumerate(lengths):
        prompt = [2 + (index + position) % 90 for position in range(num_prompt)]
        core.add_request(f"{index}", prompt, params(num_output))


@pytest.mark.parametrize("steps", ["in turn", "overlapping"])
def test_a_host_of_one_model_makes_the_plans_of_the_model_alone(steps: Steps) -> None:
    plans = []
    for is_hosted in (True, False):
        settings = {"max_batched_tokens": 16, "max_running": 4}
        if is_hosted:
            host = FakeHost({"main": ONE_TYPE}, 12, steps=steps)
            core = host.add("main", **settings)
        else:
            core, runner = make_core(12, steps=steps, max_batched_tokens=16, max_running=4)
        for index in range(9):
            core.add_request(str(index), [3 + index % 3] * (5 + 3 * index), params(9))
        if is_hosted:
            host.run()
            plans.append(host.models["main"].runners[0].plans)
        else:
            run_all(core)
            plans.append(runner.plans)
    assert plans[0] == plans[1]


@pytest.mark.parametrize(("token_s", "shortest", "longest"), [(0.02, 1, 2), (0.001, 8, 25)])
def test_two_models_with_equal_steps_take_turns_of_10_ms(token_s: float, shortest: int, longest: int) -> None:
    host = two_models(60, seconds_per_token=token_s)
    for name in ("a", "b"):
        submit(host, name, (4, 100))
    host.run()
    both = host.turns[10:150]
    assert abs(both.count("a") - both.count("b")) <= longest
    runs = [len(list(run)) for _, run in groupby(both)][1:-1]
    assert runs
    assert all(shortest <= run <= longest for run in runs)


@pytest.mark.parametrize(("token_s", "most"), [(0.001, round(MAX_FOREIGN_S / 0.001)), (0.02, MAX_FOREIGN_STEPS)])
def test_a_model_with_work_never_waits_longer_than_the_bound(token_s: float, most: int) -> None:
    host = two_models(400, seconds_per_token=token_s)
    submit(host, "a", *[(40, 20)] * 10)  # long steps
    submit(host, "b", (4, 200))
    host.run()
    both = host.turns[: max(i for i, name in enumerate(host.turns) if name == "a")]
    waits = "".join(both).split("a")
    assert max(map(len, waits)) <= most
    assert max(map(len, waits)) > 2, "one with short steps has more of them"


def test_many_models_wait_for_a_few_steps_of_each_other() -> None:
    turns, names = Turns(), [str(index) for index in range(16)]
    since = dict.fromkeys(names, 0)
    for number in range(2000):
        chosen = turns.order(names)[0]
        for name in names:
            since[name] += 1
        since[chosen] = 0
        turns.note_step(chosen)
        turns.charge(chosen, 0.5 if number % 7 else 0.001)
        assert max(since.values()) <= 5 * len(names)


def test_time_is_shared_equally_whatever_a_step_costs() -> None:
    turns = Turns()
    spent = {"slow": 0.0, "fast": 0.0}
    for _ in range(400):
        name = turns.order(["slow", "fast"])[0]
        seconds = 0.02 if name == "slow" else 0.005
        turns.note_step(name)
        turns.charge(name, seconds)
        spent[name] += seconds
    assert 0.9 < spent["slow"] / spent["fast"] < 1.1


def take_turns(
    turns: Turns, step_s: Mapping[str, float], until: Callable[[dict[str, float]], bool]
) -> dict[str, float]:
    """Steps of models that all have work, of so many seconds each; returns the time that each has had."""
    had = dict.fromkeys(step_s, 0.0)
    while not until(had):
        name = turns.order(step_s)[0]
        turns.note_step(name)
        turns.charge(name, step_s[name])
        had[name] += step_s[name]
    return had


def for_seconds(seconds: float) -> Callable[[dict[str, float]], bool]:
    return lambda had: sum(had.values()) >= seconds


@pytest.mark.parametrize("num_busy", [1, 2, 3, 7, 15])
@pytest.mark.parametrize("alone_s", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("step_s", [0.004, 0.02])
def test_a_request_of_an_idle_model_takes_at_most_twice_its_time_alone(
    num_busy: int, alone_s: float, step_s: float
) -> None:
    turns = Turns()
    busy = {f"busy {index}": 0.012 for index in range(num_busy)}
    take_turns(turns, dict.fromkeys(busy, 0.3), for_seconds(40.0 * num_busy))
    had = take_turns(turns, {**busy, "idle": step_s}, lambda had: had["idle"] >= alone_s - 1e-9)
    waited_s = max(busy.values())  # for the step in flight when it came
    assert sum(had.values()) + waited_s <= 2.0 * alone_s


def test_models_with_work_get_equal_parts_in_the_long_run() -> None:
    turns = Turns()
    take_turns(turns, {"a": 1.0}, for_seconds(1000.0))
    both = {"a": 0.02, "b": 0.06}
    total = dict.fromkeys(both, 0.0)
    for _ in range(20):
        had = take_turns(turns, both, for_seconds(10.0))
        assert had["a"] > 2.2, "it goes on meanwhile"
        total = {name: total[name] + had[name] for name in both}
    assert 2 < total["b"] - total["a"] < 8, "some unused time is made up for"
    had = take_turns(turns, both, for_seconds(20.0))
    assert 0.9 < had["a"] / had["b"] < 1.1


def test_answers_of_a_busy_model_go_on_beside_many_light_ones() -> None:
    turns = Turns()
    take_turns(turns, {"busy": 0.1}, for_seconds(60.0))
    names = {"busy": 0.01, **{f"idle {index}": 0.01 for index in range(4)}}
    for _ in range(3):
        assert take_turns(turns, names, for_seconds(5.0))["busy"] > 0.25


def test_a_model_that_was_the_busy_one_is_served_at_once_when_the_load_has_moved() -> None:
    """What it has used when no other model wanted it does not count."""
    turns = Turns()
    take_turns(turns, {"first": 0.05}, for_seconds(60.0))
    take_turns(turns, {"second": 0.05}, for_seconds(1.0))
    for _ in range(20):
        had = take_turns(turns, {"first": 0.001, "second": 0.005}, lambda had: had["first"] >= 0.1)
        assert sum(had.values()) <= 0.17
        take_turns(turns, {"second": 0.005}, for_seconds(0.3))


def test_requests_that_begin_at_once_at_two_idle_models_share_nearly_all_of_the_time() -> None:
    turns = Turns()
    take_turns(turns, {"busy": 0.012}, for_seconds(60.0))
    names = {"busy": 0.012, "one": 0.008, "other": 0.008}
    had = take_turns(turns, names, lambda had: min(had["one"], had["other"]) >= 3.0)
    assert sum(had.values()) <= 2.25 * 3.0


def test_a_model_that_comes_goes_before_several_busy_ones_however_often() -> None:
    turns = Turns()
    busy = {"a": 0.02, "b": 0.03}
    take_turns(turns, busy, for_seconds(20.0))
    for _ in range(40):
        take_turns(turns, busy, for_seconds(1.0))
        assert turns.order([*busy, "idle"])[0] == "idle"
        take_turns(turns, {**busy, "idle": 0.01}, lambda had: had["idle"] >= 0.1)


def test_short_requests_one_by_one_get_no_more_than_a_long_one() -> None:
    """Except for the first seconds: those that it did not use before."""
    turns = Turns()
    both = {"long": 0.01, "short": 0.01}
    total = dict.fromkeys(both, 0.0)
    for number in range(400):
        had = take_turns(turns, both, lambda had: had["short"] >= 0.1)
        alone = take_turns(turns, {"long": 0.01}, for_seconds(0.01))
        if number >= 150:
            total = {name: total[name] + had[name] + alone.get(name, 0.0) for name in both}
    assert total["short"] < 1.05 * total["long"]


def test_a_model_that_comes_back_goes_first_every_time() -> None:
    turns = Turns()
    for _ in range(5):
        take_turns(turns, {"busy": 0.05}, for_seconds(4.0))
        had = take_turns(turns, {"busy": 0.05, "idle": 0.05}, for_seconds(0.4))
        assert had["idle"] > had["busy"] + 0.1


def test_a_model_gains_its_part_back_while_no_model_has_work() -> None:
    turns = Turns()
    take_turns(turns, {"busy": 0.01}, for_seconds(50.0))
    both = {"busy": 0.01, "light": 0.01}
    take_turns(turns, both, for_seconds(60.0))  # until it has had all that it may have beyond its part
    for rest_s, first in [(0.0, "busy"), (2.0, "light")]:
        turns.order([])
        turns.note_rest(rest_s)
        turns.order(["busy"])
        turns.note_step("busy")
        assert turns.order(both)[0] == first


def test_time_that_the_thread_spends_on_a_model_is_charged_to_it() -> None:
    """Texts of one model take as long as three steps: it gets a third of the other's steps."""
    host = two_models(100)
    host.models["a"].text_s = 0.003
    for name in ("a", "b"):
        submit(host, name, (4, 300))
    while host.turns.count("b") < 280:
        host.step()
    assert 0.3 < host.turns.count("a") / host.turns.count("b") < 0.37


def test_prompts_make_steps_no_more_than_half_longer_or_16_ms() -> None:
    bound = StepBound()
    assert bound.max_tokens(has_other_work=True) == MOST_TOKENS
    assert bound.max_tokens(has_other_work=False) is None

    def take_steps(token_s: float, decodes_s: float = 0.1) -> int:
        num_tokens = 0
        for _ in range(20):
            num_tokens = bound.max_tokens(has_other_work=True) or 0
            bound.note_step(10, 0, decodes_s)
            bound.note_step(10, num_tokens, decodes_s + token_s * num_tokens)
        return num_tokens

    assert take_steps(0.001) in (49, 50)
    assert take_steps(0.1) == LEAST_TOKENS
    assert take_steps(0.0001) == MOST_TOKENS
    assert bound.max_tokens(has_other_work=False) == pytest.approx(500, abs=5)
    assert take_steps(0.0001, decodes_s=0.004) in (119, 120)


def test_steps_with_long_prompts_are_bounded_in_a_host_of_several_models() -> None:
    """Also before another one gets work, which then waits for the step that has begun."""
    host = FakeHost({"a": ONE_TYPE, "b": ONE_TYPE}, 400)
    for name in host.layers:
        host.add(name, enable_prefix_caching=False)
    runner = host.models["b"].runners[0]

    def longest(num_prompt: int) -> int:
        num_before = len(runner.plans)
        submit(host, "b", (num_prompt, 4))
        while not host.models["b"].core.is_idle:
            host.step()
        return max(plan.num_tokens for plan in runner.plans[num_before:])

    assert longest(300) == 300, "nothing is known yet"
    longest(300)
    assert longest(300) in range(32, 40), "25 ms, of 1 ms for each token, and no fewer than 32"
    submit(host, "a", (4, 800))
    assert longest(300) in range(32, 40)
    host.run()


def test_cached_pages_of_one_model_are_room_for_another() -> None:
    host = two_models(10)
    submit(host, "a", (30, 8))
    host.run()
    assert host.large_pool.num_evictable > 5
    submit(host, "b", (30, 8))
    assert host.run()["b"]["0"]
    assert host.models["b"].core.stats().preemptions_total == 0


def test_a_model_gets_its_share_back_from_one_that_uses_more() -> None:
    host = two_models(40)
    submit(host, "a", *[(16, 40)] * 8)
    for _ in range(36):
        host.step()
    assert host.models["a"].core.num_used_large_pages > 30
    submit(host, "b", (40, 20))
    for _ in range(3):
        host.step()
    assert host.models["b"].core.stats().running == 1, "it does not wait for a request of the other one to end"
    assert host.models["a"].core.stats().preemptions_total >= 1
    found = host.run()
    whole = continuation([2 + i % 90 for i in range(40)], params(20))
    assert found["b"]["0"] == whole[-len(found["b"]["0"]) :]


def test_a_model_within_its_share_is_not_preempted_for_another() -> None:
    host = two_models(40)
    submit(host, "a", (30, 30))
    for _ in range(10):
        host.step()
    submit(host, "b", *[(30, 30)] * 6)
    host.run()
    assert host.models["a"].core.stats().preemptions_total == 0


def test_a_floor_is_given_back_even_beyond_an_equal_share() -> None:
    host = two_models(40, floor_b=30)
    submit(host, "a", *[(16, 24)] * 4)
    for _ in range(20):
        host.step()
    submit(host, "b", (100, 10))
    for _ in range(6):
        host.step()
    assert host.models["b"].core.stats().running == 1
    host.run()


def test_a_ceiling_is_never_exceeded() -> None:
    host = two_models(40, ceiling_a=10)
    core = host.models["a"].core
    assert core.limits.max_model_len == 40
    submit(host, "a", *[(12, 20)] * 8)
    most = 0
    while host.host.has_work:
        host.step()
        host.check()
        most = max(most, core.num_used_large_pages)
    assert 8 <= most <= 10


def test_floors_beyond_the_pool_are_refused() -> None:
    with pytest.raises(ValueError, match="the floors of all models are 11 large pages, the pool has 10"):
        check_floors([Bounds(5), Bounds(6)], 10)


def test_models_that_wait_for_each_other_go_on() -> None:
    """Each has half of the pool and wants more: neither is above its share."""
    host = two_models(20)
    submit(host, "a", (4, 70))
    submit(host, "b", (4, 70))
    found = host.run()
    assert [len(found[name]["0"]) for name in ("a", "b")] == [70, 70]
    assert sum(model.core.stats().preemptions_total for model in host.models.values()) >= 1


@pytest.mark.parametrize("steps", ["overlapping", "late"])
def test_pages_freed_by_one_model_wait_for_its_step_in_flight(steps: Steps) -> None:
    host = FakeHost({"a": ONE_TYPE, "b": OTHER_TYPE}, 8, steps=steps)
    for name in ("a", "b"):
        host.add(name)
    for index in range(12):
        host.models["a"].core.add_request(str(index), [5 + index] * 9, params(7))
        host.models["b"].core.add_request(str(index), [60 + index] * 9, params(7))
    found = host.run()
    for index in range(12):
        assert found["a"][str(index)] == continuation([5 + index] * 9, params(7))
        assert found["b"][str(index)] == continuation([60 + index] * 9, params(7))


def test_an_abort_while_a_model_sleeps_ends_the_request() -> None:
    host = two_models(20)
    host.models["a"].core.add_request("x", [5] * 8, GREEDY)
    host.step()
    host.sleep("a")
    host.models["a"].core.abort("x")
    found = host.run()
    assert found["a"]["x"] is not None
    assert host.models["a"].core.is_idle
