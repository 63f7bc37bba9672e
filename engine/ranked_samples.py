"""The best of several samples: their deltas are held back until all have ended, then the likeliest are the answers.

Used by the core for SamplingParams.best_of.
"""

from collections.abc import Iterable
from dataclasses import replace

from engine.request import RequestDelta, gather_delta, merge_deltas
from engine.sampling_params import SamplingParams


class Rankings:
    """The requests whose samples are ranked."""

    def __init__(self) -> None:
        self._open: dict[str, _RankedSamples] = {}  # by request id

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, request_id: str, params: SamplingParams) -> None:
        """Hold back the deltas of a new request."""
        self._open[request_id] = _RankedSamples(params)

    def rank(self, deltas: Iterable[RequestDelta]) -> list[RequestDelta]:
        """These deltas, where those of ranked samples are replaced by the answers once all samples have ended."""
        shown: list[RequestDelta] = []
        for delta in deltas:
            samples = self._open.get(delta.request_id)
            if samples is None:
                shown.append(delta)
            elif samples.push(delta):
                shown += samples.best()
                del self._open[delta.request_id]
        return shown


class _RankedSamples:
    def __init__(self, params: SamplingParams) -> None:
        self._num_answers = params.n
        self._num_open = params.num_sequences
        self._samples: dict[int, list[RequestDelta]] = {}

    def push(self, delta: RequestDelta) -> bool:
        """Take a delta. True: it was the last one of all samples."""
        gather_delta(self._samples.setdefault(delta.index, []), delta)
        self._num_open -= delta.finish_reason is not None
        return self._num_open == 0

    def best(self) -> list[RequestDelta]:
        """The n samples of the highest cumulative log probability, likeliest first, each as one delta; among equal ones
        the first."""
        samples = [merge_deltas(self._samples[index]) for index in sorted(self._samples)]
        prompt_logprobs = samples[0].prompt_logprobs
        samples.sort(key=lambda sample: sample.cumulative_logprob or 0.0, reverse=True)
        best = [
            replace(sample, index=rank, prompt_logprobs=None)
            for rank, sample in enumerate(samples[: self._num_answers])
        ]
        best[0].prompt_logprobs = prompt_logprobs
        return best
