"""Warm-up steps: what the device runner computes before the first request, so that all kernels are compiled. Prompts
and decodes on the null page, with every kind of sampling."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, takewhile

from engine.batch import PageTableUpdate, ScheduledSequence, StepPlan
from engine.sampling_params import SamplingParams

#: Uses every option of the sampling kernel.
_PARAMS = SamplingParams(temperature=1.0, top_k=50, top_p=0.9, min_p=0.01)
#: Uses post-sampling as well: penalties, biases and log probabilities.
_ALL = replace(_PARAMS, repetition_penalty=1.1, frequency_penalty=0.1, logit_bias={0: 1.0}, logprobs=20)
#: Kernels take the queries of a prompt in tiles of up to so many.
_LARGEST_TILE = 128


def warm_up_steps(num_tokens: int, max_running: int, max_model_len: int, layer_type: str) -> Iterator[StepPlan]:
    """Plans, in this order: single prompts of every power of two, since kernels take queries in tiles of such sizes,
    and the small ones again at the end of a context, which may be read in parts; the step that takes most memory, with
    num_tokens tokens and as many prompts as possible; decodes, the last ones at the end of the context and with
    post-sampling. Every sequence is new in its slot. layer_type: one of the pool's."""
    step = partial(_step, layer_type)
    longest = min(num_tokens, max_model_len)
    for length in (*takewhile(lambda length: length < longest, (2**i for i in count(1))), longest):
        yield step([length])
        if 1 < length <= _LARGEST_TILE and length < max_model_len:
            yield step([length], start=max_model_len - length)
    num_sequences = max(1, min(max_running, num_tokens // 2))
    yield step([min(longest, num_tokens // num_sequences)] * num_sequences)
    for num_rows in (1, 2, max_running):
        yield step([1] * min(num_rows, max_running))
    yield step([1] * max_running, _ALL, start=max_model_len - 1)


def _step(layer_type: str, lengths: Sequence[int], params: SamplingParams = _PARAMS, start: int = 0) -> StepPlan:
    history = (0,) if params.needs_history else None
    sequences = (
        ScheduledSequence(slot, slot, (0,) * length, start, 1, params, (0,), 0, history)
        for slot, length in enumerate(lengths)
    )
    tables = (PageTableUpdate(slot, layer_type, 0, (0,)) for slot in range(len(lengths)))
    return StepPlan(0, tuple(tables), (), tuple(sequences))
