"""The beam searches that run: which sequence computes which beam, and the pages that beams share.

Every step forks pages: a beam that goes on in several ways shares its pages with sequences whose beams have ended, and
each copies a shared last page when it writes to it (PagedAttention section 4.4). The scheduler calls this when it
commits a step, and plans the sequences as it does those of parallel samples.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.batch import SampledToken
from engine.memory.kv_cache import KVCache
from engine.request import Request, Sequence
from engine.scheduling.beam_search import Beam, BeamSearchState


@dataclass(slots=True)
class _Running:
    state: BeamSearchState
    sequences: list[Sequence]  #: that of each beam
    reports: dict[int, SampledToken] = field(default_factory=dict)  #: by sequence id, of this step so far


class Beams:
    """Owner of the searches of open requests."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._running: dict[Request, _Running] = {}

    def begin(self, request: Request) -> None:
        """Begin the search of a new request; its first sequence computes the prompt."""
        self._running[request] = _Running(BeamSearchState(request), request.sequences[:1])

    def take(self, request: Request, sequence: Sequence, report: SampledToken) -> BeamSearchState | None:
        """Note how the beam of a sequence may go on. When all beams have been computed, which may take several steps,
        choose the next ones and fork their pages; then the state of the search is returned."""
        running = self._running[request]
        running.reports[sequence.sequence_id] = report
        if len(running.reports) < len(running.sequences):
            return None
        beams = running.state.advance([running.reports[each.sequence_id] for each in running.sequences])
        running.reports.clear()
        if beams:
            running.sequences = self._continue(request, running.sequences, beams)
            request.is_forked = True
        return running.state

    def has_reports(self, request: Request) -> bool:
        """Whether some beams have been computed and wait for the others: computing the newest token of these again
        would advance a recurrent state twice, so they cannot return as they are."""
        running = self._running.get(request)
        return running is not None and bool(running.reports)

    def forget_reports(self, request: Request) -> None:
        """The request computes all its tokens again."""
        if request in self._running:
            self._running[request].reports.clear()

    def end(self, request: Request) -> None:
        """The request has ended."""
        self._running.pop(request, None)

    def _continue(self, request: Request, parents: list[Sequence], beams: Iterable[Beam]) -> list[Sequence]:
        """The sequence of each beam: for the first one that continues a parent, the parent's own; for others, one whose
        beam has ended."""
        beams = list(beams)
        assert len(beams) == len(request.sequences), "admission leaves enough tokens that go on"
        kept = {beam.parent for beam in beams}
        idle = [sequence for sequence in request.sequences if sequence not in [parents[which] for which in kept]]
        sequences: list[Sequence] = []
        for beam in beams:
            parent = parents[beam.parent]
            if beam.parent in kept:
                kept.remove(beam.parent)
                sequences.append(parent)
            else:
                sequences.append(self._fork(parent, idle.pop()))
        for sequence, beam in zip(sequences, beams, strict=True):
            sequence.token_ids.append(beam.token_ids[-1])
        return sequences

    def _fork(self, parent: Sequence, target: Sequence) -> Sequence:
        self._cache.free(target.sequence_id)
        self._cache.fork(parent.sequence_id, target.sequence_id)
        target.token_ids = list(parent.token_ids)
        target.num_computed = parent.num_computed
        target.is_table_sent = target.is_history_sent = False
        return target
