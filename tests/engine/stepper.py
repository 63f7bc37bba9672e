"""A scheduler for tests: no queue and no prefix cache, but any chunk size, page size and mixture of prefill and decode.
What falls out of a window is handed out again at once."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.batch import PageTableUpdate, SampledToken, ScheduledSequence, StepPlan
from engine.runner.runner import Runner, run_step
from engine.sampling_params import SamplingParams

GREEDY = SamplingParams(temperature=0.0)


@dataclass
class Running:
    """One sequence in a slot of the runner."""

    slot: int
    prompt: list[int]
    params: SamplingParams = GREEDY
    seed: int = 0
    num_computed: int = 0
    drawn: list[SampledToken] = field(default_factory=list)

    @property
    def tokens(self) -> list[int]:
        return self.prompt + self.output

    @property
    def output(self) -> list[int]:
        return [token.token_id for token in self.drawn]


class Stepper:
    """Plans steps for a runner with randomly scattered pages, page 0 left alone."""

    def __init__(self, runner: Runner, *, chunk: int, seed: int = 0) -> None:
        self._runner = runner
        self._chunk = chunk
        self._step = 0
        self._free: dict[str, list[int]] = {}
        types = runner.pool_plan.types
        for which, layer_type in enumerate(types):
            ratio = runner.pool_plan.ratio(layer_type)
            large_pages = range(1 + which, runner.pool_plan.num_large_pages, len(types))
            pages = [page for large in large_pages for page in range(large * ratio, (large + 1) * ratio)]
            random.Random(seed).shuffle(pages)
            self._free[layer_type.name] = pages
        self._pages: dict[tuple[int, str], list[int]] = {}

    def step(self, running: Sequence[Running]) -> None:
        """Compute the next chunk, or the next token, of every sequence."""
        updates = []
        scheduled: list[tuple[Running, ScheduledSequence]] = []
        for sequence in running:
            first = sequence.num_computed
            last = min(len(sequence.tokens), first + self._chunk)
            updates += self._grow(sequence.slot, first, last)
            is_complete = last == len(sequence.tokens)
            scheduled.append(
                (
                    sequence,
                    ScheduledSequence(
                        sequence_id=sequence.slot,
                        slot=sequence.slot,
                        token_ids=tuple(sequence.tokens[first:last]),
                        start=first,
                        num_samples=int(is_complete),
                        params=sequence.params,
                        seeds=(sequence.seed,) if is_complete else (),
                        output_index=len(sequence.drawn),
                        history=tuple(sequence.tokens) if is_complete and self._is_first_draw(sequence) else None,
                    ),
                )
            )
        scheduled.sort(key=lambda pair: len(pair[1].token_ids))
        plan = StepPlan(self._step, tuple(updates), (), tuple(share for _, share in scheduled))
        self._step += 1
        output = run_step(self._runner, plan)
        for (sequence, share), tokens in zip(scheduled, output.samples, strict=True):
            sequence.num_computed += len(share.token_ids)
            sequence.drawn += tokens

    @staticmethod
    def _is_first_draw(sequence: Running) -> bool:
        return sequence.params.needs_history and not sequence.drawn

    def _grow(self, slot: int, num_computed: int, num_tokens: int) -> list[PageTableUpdate]:
        updates = []
        for layer_type in self._runner.pool_plan.types:
            free, pages = self._free[layer_type.name], self._pages.setdefault((slot, layer_type.name), [])
            if layer_type.spec.kind == "window":
                num_dead = max(0, num_computed - layer_type.spec.span + 1) // layer_type.page_tokens
                free += [page for page in pages[:num_dead] if page]
                pages[:num_dead] = [0] * num_dead
            start = len(pages)
            pages += [free.pop() for _ in range(-(-num_tokens // layer_type.page_tokens) - start)]
            if len(pages) > start:
                updates.append(PageTableUpdate(slot, layer_type.name, start, tuple(pages[start:])))
        return updates


def generate(
    runner: Runner, prompts: Sequence[list[int]], num_tokens: int, *, chunk: int, params: SamplingParams = GREEDY
) -> list[list[int]]:
    """Continue all prompts side by side; short ones decode while long ones are still in prefill."""
    stepper = Stepper(runner, chunk=chunk)
    running = [Running(slot, prompt, params, seed=slot) for slot, prompt in enumerate(prompts)]
    while any(len(sequence.drawn) < num_tokens for sequence in running):
        stepper.step([sequence for sequence in running if len(sequence.drawn) < num_tokens])
    return [sequence.output for sequence in running]


def random_prompt(seed: int, length: int, vocab_size: int = 300) -> list[int]:
    generator = random.Random(seed)
    return [generator.randrange(vocab_size) for _ in range(length)]
