"""The runner's slots: rows of its buffers, of which every running sequence holds one."""

from collections.abc import Iterable

from engine.request import Sequence


class Slots:
    """Owner of the free slots."""

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Sequences that could be given a slot."""
        return len(self._free)

    @property
    def num_taken(self) -> int:
        """Sequences with a slot."""
        return self._num_slots - len(self._free)

    def take(self, sequences: Iterable[Sequence]) -> None:
        """Give each sequence a slot. The runner knows neither its page tables nor its tokens yet."""
        for sequence in sequences:
            sequence.slot = self._free.pop()
            sequence.is_table_sent = sequence.is_history_sent = False

    def release(self, sequence: Sequence) -> None:
        """Take the slot of a sequence back, if it holds one."""
        if sequence.slot is not None:
            self._free.append(sequence.slot)
            sequence.slot = None
            sequence.is_table_sent = sequence.is_history_sent = False
