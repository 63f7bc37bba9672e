"""How a sequence stands while its pages lie elsewhere, and the pages that it comes back with.

Works on tables that the page cache owns. Knows no mirror: who puts the content away and brings it back is swap.py.
"""

from collections.abc import Sequence

from engine.memory.admission import Needs
from engine.memory.lockstep import LockstepGroup
from engine.memory.room import Room
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE


def suspend(tables: SequenceTables) -> None:
    """Its pages have been given up; how far it is computed stays known."""
    # What it has published stays cached or is gone; the pages it comes back with are published anew.
    tables.num_published = [min(pair) for pair in zip(tables.num_published, tables.first_live, strict=True)]
    tables.next_boundary = 0
    tables.is_suspended = True


def resume(
    request: Sequence[SequenceTables],
    layout: Sequence[Sequence[Sequence[int]]],
    needs: Needs,
    groups: Sequence[LockstepGroup],
    room: Room,
) -> None:
    """New pages for all suspended sequences of a request, in tables of this layout (by sequence and layer type): where
    it names the same page twice they share one, where it names NULL_PAGE they have none.

    There must be room for `needs`, the growth of the sequences included: what they do not take now is left in whole
    large pages.
    """
    owner = request[0].request
    may_take_large = room.prepare(owner, needs)
    assert may_take_large is not None, "there is room"
    for group, need in zip(groups, needs, strict=True):
        new = {NULL_PAGE: NULL_PAGE}
        for tables, old_tables in zip(request, layout, strict=True):
            pages = tables.pages[group.index]
            for old in old_tables[group.types[0]]:
                if old not in new:
                    new[old] = room.take(owner, group, may_take_large)
                elif old != NULL_PAGE:
                    group.pool.share(new[old])
                pages.append(new[old])
        assert len(new) - 1 <= need, "admission counts them all"
    if not may_take_large:
        room.give_back_unused(owner)
    for tables in request:
        assert tables.is_suspended
        tables.is_suspended = False
