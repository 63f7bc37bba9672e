"""How old a page looks that its sequence needs no more although it lives on: whether it is evicted early or late.

Such pages go before all that some sequence was using when it ended. Without that, what falls out of the windows of
running sequences looks younger than the ends of waiting conversations, and those are lost first. Three exceptions:
pages behind which requests have branched off; for text seen for the first time the last ones before the live pages,
because the next request may leave this text a little before its end; and images. Hit rates are in docs/memory.md.
"""

from engine.memory.lockstep import LockstepGroup
from engine.memory.sequence_tables import SequenceTables
from engine.memory.spec import NULL_PAGE

#: Subtracted from the time stamp of a page that is to go early.
_DEMOTION = 1 << 40


def drop(tables: SequenceTables, group: LockstepGroup, first_live: int, step: int) -> list[tuple[int, int]]:
    """Empty the entries before first_live; returns the pages that stood there, each with the time stamp with which it
    is to be released."""
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
    """The newest checkpoint counts as in use; the one before it gets the stamp that a dropped page deserves."""
    chain = tables.chains[group.page_tokens]
    if index >= len(chain.names):  # nothing is published: the cache is switched off
        return stamp
    last = tables.checkpoints.get(group.index)
    if last is not None and not group.pool.is_kept(last[0]):
        group.pool.restamp(*last, stamp)
    tables.checkpoints[group.index] = tables.pages[group.index][index], chain.names[index]
    return step


def _num_edge_pages(group: LockstepGroup) -> int:
    return 2 if group.kind == "recurrent" else group.span // (4 * group.page_tokens)
