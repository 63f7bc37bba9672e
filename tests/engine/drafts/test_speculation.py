"""What proposals cost at worst, by a clock that only the simulated machine moves."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from engine.batch import SampledToken, ScheduledSequence, StepOutput, StepPlan
from engine.drafts.proposer import Proposal, Wanted
from engine.drafts.speculation import Speculation
from engine.request import Request
from engine.request import Sequence as RequestSequence
from engine.sampling_params import SamplingParams

RIGHT, WRONG = 7, 8  #: every answer is made of the first
PARAMS = SamplingParams(temperature=0.0, max_tokens=10_000, ignore_eos=True)


@dataclass
class Machine:
    """A step of one token takes a second; every further one costs this share of it. Where it has a period, it is slower
    for every other so many seconds."""

    share_of_token: float
    now: float = 0.0
    period_s: float = math.inf

    def step_s(self, num_tokens: int) -> float:
        slowness = 1.4 if self.now // self.period_s % 2 else 1.0
        return slowness * (1.0 + self.share_of_token * (num_tokens - 1))

    def __call__(self) -> float:
        return self.now


@dataclass
class Guesser:
    """Proposes wrong tokens while `is_right` says no."""

    machine: Machine
    is_right: Callable[[int], bool]
    seconds_per_round: float
    seconds_per_prompt: float = 0.0
    is_free: bool = True
    name: str = "guesser"
    num_sources: int = 1
    max_rows: int | None = None
    seen: set[int] = field(default_factory=set)
    num_rounds: int = 0

    def propose(self, wanted: Sequence[Wanted]) -> list[Proposal | None]:
        self.num_rounds += bool(wanted)
        self.machine.now += self.seconds_per_round * bool(wanted)
        for each in wanted:
            if each.sequence.sequence_id not in self.seen:
                self.seen.add(each.sequence.sequence_id)
                self.machine.now += self.seconds_per_prompt
        return [Proposal(self._tokens(each), 0) for each in wanted]

    def _tokens(self, wanted: Wanted) -> tuple[int, ...]:
        position = len(wanted.sequence.token_ids)
        return tuple(RIGHT if self.is_right(position + place) else WRONG for place in range(wanted.max_tokens))

    def seconds_per_token(self) -> float:
        return 0.0 if self.is_free else self.seconds_per_round / 4

    def free_pages(self) -> bool:
        return False

    def forget(self, sequence_id: int) -> None:
        self.seen.discard(sequence_id)

    def close(self) -> None:
        pass


def seconds_per_token(speculation: Speculation, machine: Machine, *, num_tokens: int, num_rows: int) -> float:
    """Time of `num_tokens` tokens of each of so many answers of 200 tokens, over their time without proposals."""
    sequences = [RequestSequence(row, 0, 0, [RIGHT] * 4, 4) for row in range(num_rows)]
    request = Request("r", 0, (RIGHT,) * 4, PARAMS, sequences)
    num_gained, next_id, plain_s, started = 0, num_rows, 0.0, machine.now
    while num_gained < num_tokens * num_rows:
        drafts: dict[int, tuple[int, ...]] = {}
        if speculation.may_propose(num_rows):
            drafts = speculation.propose([(request, sequence) for sequence in sequences], num_rows, room=64)
        planned, samples = [], []
        num_before = num_gained
        for slot, sequence in enumerate(sequences):
            guessed = drafts.get(sequence.sequence_id, ())
            count = next((place for place, token in enumerate(guessed) if token != RIGHT), len(guessed)) + 1
            token_ids, start = (RIGHT, *guessed), len(sequence.token_ids) - 1
            planned.append(
                ScheduledSequence(
                    sequence.sequence_id,
                    slot,
                    token_ids,
                    start,
                    len(token_ids),
                    PARAMS,
                    (0,),
                    0,
                    num_drafts=len(guessed),
                )
            )
            samples.append((SampledToken(RIGHT),) * len(token_ids))
            sequence.token_ids += [RIGHT] * count
            num_gained += count
        step_s = machine.step_s(sum(len(each.token_ids) for each in planned))
        plain_s += (num_gained - num_before) / num_rows * machine.step_s(num_rows)
        machine.now += step_s
        speculation.note_step(StepPlan(0, (), (), tuple(planned)), StepOutput(0, tuple(samples), step_s))
        for sequence in sequences:
            if len(sequence.token_ids) > 200:
                speculation.forget(sequence.sequence_id)
                sequence.sequence_id, next_id = next_id, next_id + 1
                del sequence.token_ids[4:]
    return (machine.now - started) / plain_s


@pytest.mark.parametrize("num_rows", [1, 4, 13])
@pytest.mark.parametrize("share_of_token", [0.02, 0.2, 1.0])
@pytest.mark.parametrize("is_free", [True, False])
@pytest.mark.parametrize(
    "is_right",
    [lambda position: False, lambda position: position % 3 > 0, lambda position: position % 100 < 50],
    ids=["never", "two of three", "half of the time"],
)
def test_proposals_never_cost_more_than_three_percent(
    is_right: Callable[[int], bool], is_free: bool, share_of_token: float, num_rows: int
) -> None:
    machine = Machine(share_of_token)
    round_s, prompt_s = (0.02, 0.0) if is_free else (0.8, 3.0)
    guesser = Guesser(machine, is_right, round_s, prompt_s, is_free=is_free)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    assert seconds_per_token(speculation, machine, num_tokens=2000, num_rows=num_rows) <= 1.03


@pytest.mark.parametrize("is_free", [True, False])
def test_in_the_long_run_they_cost_half_a_percent_and_are_hardly_asked_for(is_free: bool) -> None:
    machine = Machine(0.2)
    guesser = Guesser(machine, lambda position: False, 0.02, 0.0 if is_free else 3.0, is_free=is_free)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    seconds_per_token(speculation, machine, num_tokens=3000, num_rows=1)
    num_before = guesser.num_rounds
    assert seconds_per_token(speculation, machine, num_tokens=10_000, num_rows=1) <= 1.0055
    assert guesser.num_rounds - num_before < (1500 if is_free else 80)


def test_while_nothing_is_to_be_proposed_nothing_is_asked_nor_learnt() -> None:
    machine = Machine(1.0)
    guesser = Guesser(machine, lambda position: False, 30.0)  # the first round takes more than may be lost
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    seconds_per_token(speculation, machine, num_tokens=20, num_rows=1)
    asked_at = machine.now

    def ask() -> float:
        raise AssertionError("a clock is read")

    speculation._clock = ask
    seconds_per_token(speculation, machine, num_tokens=800, num_rows=1)
    assert machine.now == asked_at + 800
    assert guesser.num_rounds == 1


def test_a_machine_that_becomes_faster_and_slower_hides_no_loss() -> None:
    machine = Machine(0.7, period_s=400.0)
    guesser = Guesser(machine, lambda position: position % 4 > 0, 0.0)
    speculation = Speculation(guesser, 4, lambda sequence_id, drafts: drafts, clock=machine)
    assert seconds_per_token(speculation, machine, num_tokens=10_000, num_rows=4) <= 1.01


def test_text_that_becomes_easy_is_found() -> None:
    machine = Machine(0.1)
    is_easy = False
    guesser = Guesser(machine, lambda position: is_easy, 0.01)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    seconds_per_token(speculation, machine, num_tokens=4000, num_rows=1)
    is_easy = True
    assert seconds_per_token(speculation, machine, num_tokens=2000, num_rows=1) < 0.7


def test_proposals_that_are_right_pay() -> None:
    machine = Machine(0.1)
    guesser = Guesser(machine, lambda position: True, 0.01)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    assert seconds_per_token(speculation, machine, num_tokens=2000, num_rows=1) < 0.4


def test_a_draft_model_that_is_right_pays_although_prompts_cost() -> None:
    machine = Machine(0.1)
    guesser = Guesser(machine, lambda position: True, 0.8, seconds_per_prompt=6.0, is_free=False)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    assert seconds_per_token(speculation, machine, num_tokens=2000, num_rows=1) < 0.6


def test_one_interruption_stops_nothing() -> None:
    machine = Machine(0.1)
    guesser = Guesser(machine, lambda position: True, 0.01)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    seconds_per_token(speculation, machine, num_tokens=300, num_rows=1)
    plan = StepPlan(0, (), (), (ScheduledSequence(0, 0, (RIGHT, RIGHT), 9, 2, PARAMS, (0,), 0, num_drafts=1),))
    speculation.note_step(plan, StepOutput(0, ((SampledToken(RIGHT),) * 2,), 90.0))
    assert seconds_per_token(speculation, machine, num_tokens=300, num_rows=1) < 0.4


def test_a_look_up_that_is_interrupted_stops_nothing() -> None:
    """The thread does not run meanwhile. 50 ms are 100 steps."""
    machine = Machine(0.1)
    guesser = Guesser(machine, lambda position: True, 0.0)

    def allowed_later(sequence_id: int, drafts: tuple[int, ...]) -> tuple[int, ...]:
        time.sleep(0.05)
        return drafts

    speculation = Speculation(guesser, 8, allowed_later)
    request = Request("r", 0, (RIGHT,) * 4, PARAMS, [RequestSequence(0, 0, 0, [RIGHT] * 4, 4)])
    for _ in range(3):
        assert speculation.may_propose(1)
        speculation.propose([(request, request.sequences[0])], 1, room=64)
        plan = StepPlan(0, (), (), (ScheduledSequence(0, 0, (RIGHT,), 3, 1, PARAMS, (0,), 0),))
        speculation.note_step(plan, StepOutput(0, ((SampledToken(RIGHT),),), 0.0005))


def test_a_first_verification_beside_a_prompt_tells_nothing_about_costs() -> None:
    machine = Machine(0.1)
    guesser = Guesser(machine, lambda position: True, 0.01)
    speculation = Speculation(guesser, 8, lambda sequence_id, drafts: drafts, clock=machine)
    verified = ScheduledSequence(0, 0, (RIGHT, RIGHT), 9, 2, PARAMS, (0,), 0, num_drafts=1)
    prompt = ScheduledSequence(1, 1, (1, 2, 3), 0, 1, PARAMS, (1,), 0)
    samples = ((SampledToken(RIGHT),) * 2, (SampledToken(RIGHT),))
    speculation.note_step(StepPlan(0, (), (), (verified, prompt)), StepOutput(0, samples, 1.0))
    assert seconds_per_token(speculation, machine, num_tokens=300, num_rows=1) < 0.4
