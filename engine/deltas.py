"""Makes the deltas of requests from their sequences and texts. Used by the core."""

from engine.prompt_reading import PromptScores
from engine.request import FinishReason, Request, RequestDelta, Sequence, TokenLogprob
from engine.text.sequence_text import SequenceText
from engine.text.thoughts import Said


def prompt_logprobs_of(request: Request, read: PromptScores) -> tuple[TokenLogprob | None, ...]:
    """One entry for each token of the prompt; None for the first."""
    scores = zip(request.prompt_token_ids[1:], read.scores, strict=True)
    return (None, *(TokenLogprob(token_id, score.logprob, score.top) for token_id, score in scores))


def stop_reason(output: SequenceText) -> FinishReason:
    """Why a sequence ended that ended by itself."""
    return "tool_calls" if output.has_tool_calls else "stop"


def delta_of(
    request: Request,
    sequence: Sequence,
    output: SequenceText,
    said: Said,
    token_ids: tuple[int, ...] = (),
    logprobs: tuple[TokenLogprob, ...] | None = None,
) -> RequestDelta:
    """What a sequence has gained: `said` and the tokens of which `output` is the text."""
    thoughts, text, tool_calls = said
    return RequestDelta(  # by position, which takes half the time
        request.request_id,
        sequence.index,
        text,
        token_ids,
        logprobs,
        sequence.finish_reason,
        sequence.num_prompt_tokens,
        request.num_cached_tokens,
        len(sequence.token_ids) - sequence.num_prompt_tokens,
        request.queue_s,
        thoughts,
        output.num_thought_tokens,
        tool_calls,
        cumulative_logprob=None if request.params.num_top_logprobs is None else sequence.cumulative_logprob,
    )
