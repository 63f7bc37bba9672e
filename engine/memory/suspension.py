"""The tables of a sequence while it is swapped out, and the pages that it gets when it is resumed.

Works on tables that the page cache owns. The content moves in swap.py, which this file does not know.
"""

from collections.abc import Sequence

from engine.memory.admission import Needs
from engine.memory.lockstep import LockstepGroup
from engine.memory.room import Room
from engine.memory.sequence_tables import SequenceTables
from engine.memory.small_pool import RequestKey
from engine.memory.spec import NULL_PAGE


def suspend(tables: SequenceTables) -> None:
    """Mark tables whose pages have been given up; how far they are computed is kept."""
    # Its published pages are cached or evicted now; the pages that it gets on return are published again.
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
    """New pages for all suspended sequences of a request, in tables of this layout (by sequence and layer type):
    entries with the same page share a new page, entries with NULL_PAGE stay NULL_PAGE.

    There must be room for `needs`, the growth of the sequences included: pages that they do not take now stay in whole
    large pages.
    """
    owner = request[0].request
    may_take_large = room.prepare(owner, needs)
    assert may_take_large is not None, "there is room"
    for group, need in zip(groups, needs, strict=True):
        new = {NULL_PAGE: NULL_PAGE}
        for tables, old_tables in zip(request, layout, strict=True):
            _fill_table(tables.pages[group.index], old_tables[group.types[0]], new, owner, group, room, may_take_large)
        assert len(new) - 1 <= need, "admission counts them all"
    if not may_take_large:
        room.give_back_unused(owner)
    for tables in request:
        assert tables.is_suspended
        tables.is_suspended = False


def _fill_table(
    pages: list[int],
    old_pages: Sequence[int],
    new: dict[int, int],
    owner: RequestKey,
    group: LockstepGroup,
    room: Room,
    may_take_large: bool,
) -> None:
    """Append a new page for each old one. new: the pages that this group has for the request already, by old page."""
    for old in old_pages:
        if old not in new:
            new[old] = room.take(owner, group, may_take_large)
        elif old != NULL_PAGE:
            group.pool.share(new[old])
        pages.append(new[old])
