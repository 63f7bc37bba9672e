"""Which tokens the sequences of an engine may get next. Belongs to one core and its thread."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.batch import SequenceId, StepPlan, TokenMasks
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.steered_sequence import SteeredSequence
from engine.constraints.thinking import Thinking
from engine.sampling_params import SamplingParams

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_MOST_THREADS = 8


class Steering:
    """Owner of the states of all sequences with a constraint or a thinking budget."""

    def __init__(self, compiler: GrammarCompiler, *, patience_s: float = 0.0005) -> None:
        """patience_s: how long a step's masks are computed one after another, before threads divide the rest."""
        self.compiler = compiler
        self._sequences: dict[SequenceId, SteeredSequence] = {}
        self._patience_s = patience_s
        self._executor: LLExecutor | None = None

    def open(self, sequence_id: SequenceId, params: SamplingParams, stop_ids: frozenset[int], room: int) -> None:
        """Begin a sequence, if its parameters steer it; a constraint that is new is compiled by a thread. stop_ids:
        tokens that end it. room: tokens that fit behind its prompt."""
        if not params.needs_masks:
            return
        vocabulary = self.compiler.vocabulary
        compiled = None if params.constraint is None else self.compiler.start(params.constraint)
        thinking, tags = None, params.thoughts
        if tags is not None:
            begin, end = (vocabulary.encode(tag) for tag in (tags.begin, tags.end))
            # Thoughts that the prompt has closed are not begun again.
            thinking = Thinking(
                () if tags.is_closed else begin, end, is_open=tags.is_open, budget=params.thinking_budget
            )
        self._sequences[sequence_id] = SteeredSequence(
            vocabulary, compiled, thinking, stop_ids, min(params.max_tokens, room)
        )

    def get(self, sequence_id: SequenceId) -> SteeredSequence | None:
        """The state of a sequence; None: nothing steers it."""
        return self._sequences.get(sequence_id)

    def close(self, sequence_id: SequenceId) -> None:
        """Forget a sequence that has ended."""
        self._sequences.pop(sequence_id, None)

    def allowed_drafts(self, sequence_id: SequenceId, drafts: tuple[int, ...]) -> tuple[int, ...]:
        """The leading ones of proposed tokens that may come next in this sequence; none where that is not known."""
        state = self._sequences.get(sequence_id)
        return drafts if state is None else drafts[: state.num_allowed(drafts)]

    def masks(self, plan: StepPlan) -> TokenMasks:
        """The masks of a plan's draws; sequences that have ended are free. All tokens before must be known."""
        steered: list[SteeredSequence] = []
        draws: list[int] = []
        counts: list[int] = []  # draws of each
        verified: list[tuple[int, SteeredSequence, tuple[int, ...]]] = []  # first draw of each, and proposed tokens
        num_draws = 0
        for scheduled in plan.sequences:
            state = self._sequences.get(scheduled.sequence_id)
            if state is not None and scheduled.num_drafts and not state.is_free:
                verified.append((num_draws, state, scheduled.drafts))
            elif state is not None and scheduled.num_samples and not state.is_free:
                steered.append(state)
                draws += range(num_draws, num_draws + scheduled.num_samples)
                counts.append(scheduled.num_samples)
            num_draws += scheduled.num_samples
        words = self.masks_of(steered)
        masks = TokenMasks(
            np.array(draws, np.int64), words if len(draws) == len(words) else words.repeat(counts, axis=0)
        )
        return self._with_drafts(masks, verified) if verified else masks

    def _with_drafts(
        self, masks: TokenMasks, verified: list[tuple[int, SteeredSequence, tuple[int, ...]]]
    ) -> TokenMasks:
        """The masks, with those of verified sequences: one after the newest token and one after each proposed one."""
        vocabulary = self.compiler.vocabulary
        draws = [masks.draws]
        words = [masks.words]
        for first, state, drafts in verified:
            rows = np.zeros((len(drafts) + 1, vocabulary.num_words), np.int32)
            state.fill_masks(rows, drafts)
            draws.append(np.arange(first, first + len(rows), dtype=np.int64))
            words.append(vocabulary.of_step(rows))
        joined = np.concatenate(draws)
        order = np.argsort(joined)
        return TokenMasks(joined[order], np.concatenate(words)[order])

    def masks_of(self, sequences: Sequence[SteeredSequence]) -> NDArray[np.int32]:
        """The masks of sequences, [N, ceil(V / 32)]."""
        vocabulary = self.compiler.vocabulary
        rows = np.zeros((len(sequences), vocabulary.num_words), np.int32)
        jobs: list[tuple[LLMatcher, int]] = []
        by_ends: dict[frozenset[int], list[int]] = {}  # indices of rows by the tokens that end their sequences
        for index, sequence in enumerate(sequences):
            if (grammar := sequence.grammar()) is not None:
                jobs.append((grammar, index))
                by_ends.setdefault(sequence.stop_ids, []).append(index)
        self._compute(jobs, rows)
        for stop_ids, indices in by_ends.items():
            vocabulary.allow_ends(rows, indices, stop_ids)
            for index in indices:
                sequences[index].close(rows[index])
        for index, sequence in enumerate(sequences):
            if sequence.may_think:
                sequence.mask_thoughts(rows[index])
        return vocabulary.of_step(rows)

    def _compute(self, jobs: "list[tuple[LLMatcher, int]]", rows: NDArray[np.int32]) -> None:
        """The grammars' masks, into the rows of these indices. Most take less time than a thread takes to wake up; the
        rest of a step whose masks take long are divided over threads."""
        base, size = rows.ctypes.data, rows.shape[1] * rows.itemsize
        until = time.perf_counter() + self._patience_s
        for num_done, (grammar, index) in enumerate(jobs):
            if time.perf_counter() > until:
                self._threads().unsafe_compute_mask_ptr(jobs[num_done:], base, size, len(rows))
                return
            grammar.unsafe_compute_mask_ptr(base + index * size, size)

    def shut_down(self) -> None:
        """End the thread that compiles."""
        self.compiler.shut_down()

    def _threads(self) -> "LLExecutor":
        if self._executor is None:
            from llguidance import LLExecutor

            self._executor = LLExecutor(min(_MOST_THREADS, os.cpu_count() or 1))
        return self._executor
