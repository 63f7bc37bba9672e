"""Time stamps of pages that a running sequence no longer reads (behind its window): whether they are evicted early.

Such pages are evicted before all pages that a sequence was using when it ended. Otherwise pages behind the windows of
running sequences would look younger than the ends of waiting conversations, and the conversations would be lost first.
Three exceptions: pages behind which requests have branched off; in text seen for the first time the last pages before
the live ones, because the next request may differ from this text a little before its end; and images. Hit rates are in
docs/memory.md.
"""

from engine.memory.lockstep import LockstepGroup
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE

#: Subtracted from the time stamp of a page that is to be evicted early.
_DEMOTION = 1 << 40


def drop(tables: SequenceTables, group: LockstepGroup, first_live: int, step: int) -> list[tuple[int, int]]:
    """Set the table entries before first_live to NULL_PAGE. Returns the pages they held, each with the time stamp to
    release it with."""
    first, pages, pool = tables.first_live[group.index], tables.pages[group.index], group.pool
    branch, images = tables.branch, tables.images
    kept = range(0)
    if branch:
        kept = range(group.policy.first_live_page(branch, images), group.policy.num_entries(branch, images))
    edge = first_live - _num_edge_pages(group) if tables.is_new_text else first_live
    tables.first_live[group.index] = first_live
    dropped = []
    for index in range(first, first_live):
        page = pages[index]
        if page == NULL_PAGE:
            continue
        if index in kept:
            pool.keep(page)
        is_worth_more = index >= edge or group.has_images or pool.is_kept(page)
        stamp = step if is_worth_more else step - _DEMOTION
        if group.kind == "recurrent":
            stamp = _replace_checkpoint(tables, group, index, stamp, step)
        pages[index] = NULL_PAGE
        dropped.append((page, stamp))
    return dropped


def _replace_checkpoint(tables: SequenceTables, group: LockstepGroup, index: int, stamp: int, step: int) -> int:
    """The newest checkpoint gets the time stamp of a page in use, and the previous one the stamp of a dropped page."""
    chain = tables.chains[group.page_tokens]
    if index >= len(chain.names):  # nothing is published: caching is off
        return stamp
    last = tables.checkpoints.get(group.index)
    if last is not None and not group.pool.is_kept(last[0]):
        group.pool.restamp(*last, stamp)
    tables.checkpoints[group.index] = tables.pages[group.index][index], chain.names[index]
    return step


def _num_edge_pages(group: LockstepGroup) -> int:
    return 2 if group.kind == "recurrent" else group.span // (4 * group.page_tokens)
