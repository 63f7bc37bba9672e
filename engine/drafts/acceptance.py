"""How often proposed tokens are right, for each sequence and each source of proposals. Plain numbers."""

from collections.abc import Sequence as ReadOnly
from dataclasses import dataclass

#: What an older observation still counts, for each newer token of the sequence, and of all sequences.
_KEPT_OF_SEQUENCE = 0.9
_KEPT_OF_ALL = 0.98
#: How many observations of a sequence the mean over all sequences counts as.
_PRIOR_WEIGHT = 2.0
#: What is assumed of a source before it has been observed, as so many right ones of so many.
_FIRST_HITS, _FIRST_TRIALS = 1.0, 2.0


@dataclass(slots=True)
class _Rate:
    hits: float = 0.0
    trials: float = 0.0

    def note(self, hits: int, trials: int, kept: float) -> None:
        self.hits = self.hits * kept + hits
        self.trials = self.trials * kept + trials


class Acceptance:
    """Owner of the rates."""

    def __init__(self, num_sources: int) -> None:
        self._num_sources = num_sources
        self._of_all = [_Rate(_FIRST_HITS, _FIRST_TRIALS) for _ in range(num_sources)]
        self._of_sequences: dict[int, list[_Rate]] = {}

    def note(self, sequence_id: int, source: int, proposed: ReadOnly[int], came: ReadOnly[int]) -> None:
        """The tokens `came` followed where `proposed` were expected; a token after a wrong one tells nothing."""
        hits = 0
        for one, other in zip(proposed, came, strict=False):
            if one != other:
                break
            hits += 1
        trials = hits + (hits < min(len(proposed), len(came)))
        self._of_all[source].note(hits, trials, _KEPT_OF_ALL)
        rates = self._of_sequences.get(sequence_id)
        if rates is None:
            rates = self._of_sequences[sequence_id] = [_Rate() for _ in range(self._num_sources)]
        rates[source].note(hits, trials, _KEPT_OF_SEQUENCE)

    def probability(self, sequence_id: int, source: int) -> float:
        """That the next proposed token of that source is right, if those before it are."""
        of_all = self._of_all[source]
        mean = of_all.hits / of_all.trials
        rates = self._of_sequences.get(sequence_id)
        if rates is None:
            return mean
        rate = rates[source]
        return (rate.hits + _PRIOR_WEIGHT * mean) / (rate.trials + _PRIOR_WEIGHT)

    def forget(self, sequence_id: int) -> None:
        """The sequence has ended."""
        self._of_sequences.pop(sequence_id, None)
