"""Which running sequences verify proposed tokens in a step, and which wait for the step in flight to do so next."""

from collections.abc import Iterable
from typing import NamedTuple

from engine.batch import SequenceId
from engine.drafts.speculation import Speculation
from engine.request import Request, Sequence
from engine.scheduling.chunks import active_sequences, target_length


class Verification(NamedTuple):
    """What one step verifies."""

    drafts: dict[SequenceId, tuple[int, ...]]  #: proposed tokens; no entry: none
    waiting: set[SequenceId]  #: sequences that stay out of the step, to verify what follows the tokens in flight


NO_VERIFICATION = Verification({}, set())


def choose_verification(
    speculation: Speculation, running: Iterable[Request], budget: int, num_free_slots: int
) -> Verification:
    """Ask for proposed tokens of all decodes. budget: tokens of the step. num_free_slots: the runner's."""
    known: list[tuple[Request, Sequence]] = []
    pending: list[tuple[Request, Sequence]] = []
    num_rows = 0
    for request in running:
        for sequence in active_sequences(request):
            if target_length(request, sequence) - sequence.num_computed != 1:
                continue
            num_rows += 1
            if not request.must_wait:
                (pending if sequence.num_pending else known).append((request, sequence))
    # Every token that is sampled has a slot: the runner has buffers for so many.
    room = min(budget - num_rows, num_free_slots)
    if room <= 0 or not num_rows:
        return NO_VERIFICATION
    return Verification(
        speculation.propose(known, num_rows, room) if known else {},
        speculation.waiting(pending, num_rows, room) if pending else set(),
    )
