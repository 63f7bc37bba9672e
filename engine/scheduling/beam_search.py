"""One beam search: which continuations of the beams live on, which hypotheses have ended, and when the search is over.

The order of transformers' `generate(num_beams=...)`: of all continuations of all beams the `width` likeliest may end
with a stop token, and the `width` likeliest without one are the next beams. Plain numbers; knows no pages.
"""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass
from typing import NamedTuple

from engine.batch import SampledToken
from engine.request import FinishReason, Request, TokenLogprob


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """An output that has ended."""

    token_ids: tuple[int, ...]  #: a stop token included
    cumulative_logprob: float
    score: float  #: the cumulative log probability divided by length ** length_penalty
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...]  #: one per token where the request asks for them


class Beam(NamedTuple):
    """An output that goes on."""

    parent: int  #: index among the beams before this step
    token_ids: tuple[int, ...]
    cumulative_logprob: float
    logprobs: tuple[TokenLogprob, ...]


class _Candidate(NamedTuple):
    cumulative_logprob: float
    parent: int
    token_id: int
    logprob: float


class BeamSearchState:
    """The beams of one request and its best hypotheses."""

    def __init__(self, request: Request) -> None:
        assert request.params.beam is not None
        self._settings = request.params.beam
        self._num_logprobs = request.params.logprobs
        self._stop_ids = request.stop_ids
        self._max_tokens = request.max_length - request.num_prompt_tokens
        self.beams: list[Beam] = [Beam(0, (), 0.0, ())]
        self.best: list[Hypothesis] = []  #: those that have ended, best first, at most `width`
        self.is_over = False

    def advance(self, reports: ReadOnly[SampledToken]) -> list[Beam]:
        """Take one step: reports has, for each beam, the tokens that it may go on with. Returns the next beams, best
        first; none when the search is over."""
        width = self._settings.width
        candidates = sorted(
            (
                _Candidate(beam.cumulative_logprob + logprob, parent, token_id, logprob)
                for parent, (beam, report) in enumerate(zip(self.beams, reports, strict=True))
                for token_id, logprob in report.top_logprobs
            ),
            key=lambda candidate: candidate.cumulative_logprob,
            reverse=True,
        )
        length = len(self.beams[0].token_ids) + 1
        is_last = length >= self._max_tokens
        for candidate in candidates[:width]:
            is_stop = candidate.token_id in self._stop_ids
            if is_stop or is_last:
                self._end(self._extended(candidate, reports), "stop" if is_stop else "length")
        self.best = sorted(self.best, key=lambda hypothesis: hypothesis.score, reverse=True)[:width]
        going_on = [candidate for candidate in candidates if candidate.token_id not in self._stop_ids][:width]
        self.is_over = is_last or self._is_decided(going_on[0].cumulative_logprob, length)
        self.beams = [] if self.is_over else [self._extended(candidate, reports) for candidate in going_on]
        return self.beams

    def _is_decided(self, best_running: float, length: int) -> bool:
        """Whether the running beams can change nothing more, by the rule of early_stopping."""
        early_stopping, length_penalty = self._settings.early_stopping, self._settings.length_penalty
        if len(self.best) < self._settings.width:
            return False
        if early_stopping is True:
            return True
        if early_stopping == "never" and length_penalty > 0.0:
            length = self._max_tokens
        penalty: float = length**length_penalty
        return best_running / penalty <= self.best[-1].score

    def _extended(self, candidate: _Candidate, reports: ReadOnly[SampledToken]) -> Beam:
        beam = self.beams[candidate.parent]
        logprobs = beam.logprobs
        if self._num_logprobs is not None:
            top = reports[candidate.parent].top_logprobs[: self._num_logprobs]
            logprobs = (*logprobs, TokenLogprob(candidate.token_id, candidate.logprob, top))
        token_ids = (*beam.token_ids, candidate.token_id)
        return Beam(candidate.parent, token_ids, candidate.cumulative_logprob, logprobs)

    def _end(self, beam: Beam, reason: FinishReason) -> None:
        score = beam.cumulative_logprob / len(beam.token_ids) ** self._settings.length_penalty
        self.best.append(Hypothesis(beam.token_ids, beam.cumulative_logprob, score, reason, beam.logprobs))
