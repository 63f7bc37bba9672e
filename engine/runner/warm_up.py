"""The steps that a runner computes before any request: prompts and decodes of sequences in pages that nobody owns,
drawn by all means that there are."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile

from engine.batch import ScheduledSequence, StepPlan
from engine.config import SamplingParams

#: Draws by all means that the sampling kernel knows.
_PARAMS = SamplingParams(temperature=1.0, top_k=50, top_p=0.9, min_p=0.01)
#: And whatever is done behind it.
_ALL = replace(_PARAMS, repetition_penalty=1.1, frequency_penalty=0.1, logit_bias={0: 1.0}, logprobs=20)


def warm_up_steps(num_tokens: int, max_running: int, max_model_len: int) -> Iterator[StepPlan]:
    """Single prompts of all powers of two, since kernels take queries in tiles of such sizes; then the step that takes
    the most memory, of num_tokens tokens and as many sequences as can be prompts; then decodes, at last of the longest
    sequences, and with all that draws can need."""
    longest = min(num_tokens, max_model_len)
    for length in (*takewhile(lambda length: length < longest, (2**i for i in count(1))), longest):
        yield _step([length])
    num_sequences = max(1, min(max_running, num_tokens // 2))
    yield _step([min(longest, num_tokens // num_sequences)] * num_sequences)
    for num_rows in (1, 2, max_running):
        yield _step([1] * min(num_rows, max_running))
    yield _step([1] * max_running, _ALL, start=max_model_len - 1)


def _step(lengths: Sequence[int], params: SamplingParams = _PARAMS, start: int = 0) -> StepPlan:
    history = (0,) if params.needs_history else None
    sequences = (
        ScheduledSequence(slot, slot, (0,) * length, start, 1, params, (0,), 0, history)
        for slot, length in enumerate(lengths)
    )
    return StepPlan(0, (), (), tuple(sequences))
