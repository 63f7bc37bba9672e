"""The best of several samples: their deltas are held back until all have ended, then the likeliest are the answers.

Used by the core for SamplingParams.best_of.
"""

from dataclasses import replace

from engine.config import SamplingParams
from engine.request import RequestDelta, gather_delta, merge_deltas


class RankedSamples:
    """The deltas of one request's samples."""

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
        samples.sort(key=lambda sample: -(sample.cumulative_logprob or 0.0))
        return [replace(sample, index=rank) for rank, sample in enumerate(samples[: self._num_answers])]
