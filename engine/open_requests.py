"""The requests that are open: what their tokens mean as text, when their sequences end, and the deltas that say so.

Used by the core, in its thread. Knows neither pages nor steps.
"""

import logging
from collections.abc import Sequence as ReadOnly

from engine.batch import SampledToken
from engine.constraints.steering import Steering
from engine.deltas import delta_of, prompt_logprobs_of, stop_reason
from engine.prompt_reading import PromptPooling, PromptScores
from engine.ranked_samples import Rankings
from engine.request import FinishReason, Request, RequestDelta, Sequence, StopStrings, TokenLogprob
from engine.scheduling.beam_search import Hypothesis
from engine.scheduling.scheduler import Scheduler
from engine.served_adapters import ServedAdapters
from engine.stats import Tally
from engine.text.sequence_text import DetokenizerFactory, SequenceText
from engine.text.thoughts import Said, ThoughtSplitter
from engine.text.tool_calls.parser import ToolCallParser

logger = logging.getLogger(__name__)

_BROKEN_CONSTRAINT = (
    "the constraint allows no further token, or takes more work for each token than its limits allow; make it simpler"
)


class OpenRequests:
    """Owner of the open requests and of the texts of their sequences. Ends a sequence everywhere: scheduler, grammar,
    adapter and counters."""

    def __init__(
        self,
        make_detokenizer: DetokenizerFactory,
        scheduler: Scheduler,
        steering: Steering,
        adapters: ServedAdapters,
        tally: Tally,
    ) -> None:
        self._make_detokenizer = make_detokenizer
        self._scheduler = scheduler
        self._steering = steering
        self._adapters = adapters
        self._tally = tally
        self._by_id: dict[str, Request] = {}
        self._texts: dict[int, SequenceText] = {}  # by sequence id
        self._rankings = Rankings()

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._by_id

    def get(self, request_id: str) -> Request | None:
        """The open request of this id."""
        return self._by_id.get(request_id)

    def all(self) -> list[Request]:
        """All open requests, oldest first."""
        return list(self._by_id.values())

    def open(self, request: Request) -> None:
        """Begin the texts of a new request."""
        params = request.params
        self._by_id[request.request_id] = request
        if params.is_ranked and params.beam is None:
            self._rankings.begin(request.request_id, params)
        marks = params.tool_calls.marks if params.tool_calls is not None else ()
        for sequence in request.sequences:
            self._texts[sequence.sequence_id] = SequenceText(
                self._make_detokenizer(params.skip_special_tokens, marks, request.prompt_token_ids),
                StopStrings(params.stop, is_shown=params.include_stop_str_in_output) if params.stop else None,
                ThoughtSplitter(params.thoughts) if params.thoughts is not None else None,
                ToolCallParser(params.tool_calls, sequence.index) if params.tool_calls is not None else None,
            )
            room = request.max_length - sequence.num_prompt_tokens
            self._steering.open(sequence.sequence_id, params, request.stop_ids, room)

    def replay(self, request: Request, resume_token_ids: tuple[int, ...]) -> list[RequestDelta]:
        """Feed the resumed tokens to the text of the only sequence. They may turn out to end it: then there is a
        delta."""
        [sequence] = request.sequences
        output = self._texts[sequence.sequence_id]
        sequence.token_ids = list(request.prompt_token_ids)
        for token_id in resume_token_ids:
            sequence.token_ids.append(token_id)
            _, reason = self._read_newest(request, sequence, output)
            if reason is not None:
                self._finish(request, sequence, reason)
                delta = delta_of(request, sequence, output, Said("", ""))
                if reason == "abort":
                    _blame_constraint(delta)
                return [delta]
        return []

    def take_token(self, request: Request, sequence: Sequence, sampled: SampledToken) -> RequestDelta:
        """Append a new token and turn it into a delta; end the sequence if the token does."""
        sequence.token_ids.append(sampled.token_id)
        output = self._texts[sequence.sequence_id]
        said, reason = self._read_newest(request, sequence, output)
        logprobs = None
        if sampled.logprob is not None:
            sequence.cumulative_logprob += sampled.logprob
        if request.params.logprobs is not None:
            assert sampled.logprob is not None
            logprobs = (TokenLogprob(sampled.token_id, sampled.logprob, sampled.top_logprobs),)
        if reason is not None:
            self._finish(request, sequence, reason)
        delta = delta_of(request, sequence, output, said, (sampled.token_id,), logprobs)
        if reason == "abort":
            _blame_constraint(delta)
        if sequence.index == 0 and isinstance(request.reading, PromptScores):
            delta.prompt_logprobs = prompt_logprobs_of(request, request.reading)
            request.reading = None  # told; all rows have been read
        return delta

    def end_search(self, request: Request, best: ReadOnly[Hypothesis]) -> list[RequestDelta]:
        """The deltas of a beam search that is over: one for each answer, likeliest first."""
        deltas: list[RequestDelta] = []
        for index, (sequence, hypothesis) in enumerate(zip(list(request.sequences), best, strict=True)):
            sequence.index, sequence.cumulative_logprob = index, hypothesis.cumulative_logprob
            sequence.token_ids = [*request.prompt_token_ids, *hypothesis.token_ids]
            output = self._texts[sequence.sequence_id]
            is_stopped = hypothesis.finish_reason == "stop"
            said = output.say_all(hypothesis.token_ids[:-1] if is_stopped else hypothesis.token_ids)
            self._finish(request, sequence, stop_reason(output) if is_stopped else "length")
            if index < request.params.n:
                logprobs = hypothesis.logprobs if request.params.logprobs is not None else None
                deltas.append(delta_of(request, sequence, output, said, hypothesis.token_ids, logprobs))
        if isinstance(request.reading, PromptScores):
            deltas[0].prompt_logprobs = prompt_logprobs_of(request, request.reading)
        return deltas

    def end_prompt(self, request: Request) -> list[RequestDelta]:
        """End a request that wants no output: its only deltas, one for each sample."""
        deltas: list[RequestDelta] = []
        for sequence in request.unfinished:
            output = self._texts[sequence.sequence_id]
            self._finish(request, sequence, "stop" if isinstance(request.reading, PromptPooling) else "length")
            deltas.append(delta_of(request, sequence, output, Said("", "")))
        match request.reading:
            case PromptScores():
                deltas[0].prompt_logprobs = prompt_logprobs_of(request, request.reading)
            case PromptPooling():
                deltas[0].embedding = request.reading.vector()
        return deltas

    def fail(self, request: Request, sentence: str) -> list[RequestDelta]:
        """End a request of which nothing can be sampled: its last deltas, which say why. Where its constraint allows no
        token any more, that is the reason, and not `sentence`."""
        steered = [self._steering.get(sequence.sequence_id) for sequence in request.unfinished]
        deltas = self.abort(request)
        if any(each is not None and each.is_broken for each in steered):
            for delta in deltas:
                _blame_constraint(delta)
            return deltas
        logger.warning("request %s failed: %s", request.request_id, sentence)
        for delta in deltas:
            delta.error = sentence
        return deltas

    def abort(self, request: Request) -> list[RequestDelta]:
        """End a request at once: its last deltas."""
        deltas: list[RequestDelta] = []
        for sequence in request.unfinished:
            output = self._texts[sequence.sequence_id]
            said = output.flush()
            self._finish(request, sequence, "abort")
            if sequence.index < request.params.n or request.params.beam is None:  # other beams have no answer
                deltas.append(delta_of(request, sequence, output, said))
        return deltas

    def rank(self, deltas: list[RequestDelta]) -> list[RequestDelta]:
        """These deltas, where ranked samples are held back until all have ended (SamplingParams.best_of)."""
        return self._rankings.rank(deltas) if self._rankings else deltas

    def _read_newest(
        self, request: Request, sequence: Sequence, output: SequenceText
    ) -> tuple[Said, FinishReason | None]:
        """What the newest token completes, and whether it ends the sequence: with "abort" only where its constraint
        allows no token any more. A stop token has no text."""
        steered = self._steering.get(sequence.sequence_id)
        if steered is not None and steered.is_broken:
            return output.flush(), "abort"
        reason = request.finish_reason_after(sequence)
        if reason == "stop":
            return output.flush(), stop_reason(output)
        may_stop = output.stops is not None and sequence.num_output_tokens > request.params.min_tokens
        said = output.push(sequence.token_ids[-1], may_stop=may_stop)
        if output.is_complete:
            return said, stop_reason(output)
        if steered is not None:
            newest = sequence.token_ids[-1]
            reason = steered.advance(newest, is_thinking=output.is_thinking, text=output.answered) or reason
        if reason is not None:
            said = said.then(output.flush())
        return said, stop_reason(output) if reason == "stop" else reason

    def _finish(self, request: Request, sequence: Sequence, reason: FinishReason) -> None:
        self._scheduler.finish_sequence(request, sequence, reason)
        del self._texts[sequence.sequence_id]
        self._steering.close(sequence.sequence_id)
        if not request.unfinished:
            del self._by_id[request.request_id]
            self._adapters.close(request.adapter)
            if reason == "abort":
                self._tally.num_aborted += 1
            else:
                self._tally.num_finished += 1


def _blame_constraint(delta: RequestDelta) -> None:
    """Note in the last delta of a sample that the request's own constraint has ended it."""
    delta.error, delta.error_param = _BROKEN_CONSTRAINT, "constraint"
