"""Sentences that are made of texts and values. Plain words; no model names before a vote, no markup.

Errors are shown by error code. The message of another service is never repeated: it could name a model.
"""

import time
from collections.abc import Sequence

from webui import texts
from webui.number_formats import counted, day, percent, whole
from wire.battles import Outcome, Side
from wire.feedback import Reason, Thumb


def pages() -> tuple[tuple[str, str], ...]:
    """Path and name of each page in the header."""
    return tuple((path, texts.PAGE_NAMES[key]) for path, key in texts.PAGES.items())


def in_a_row(*sentences: str) -> str:
    """Several sentences as one text; empty ones are left out."""
    return texts.SENTENCE_SEPARATOR.join(filter(None, sentences))


def failure(code: str | None) -> str:
    """The sentence for an error code; unknown codes and None get a general one."""
    return texts.FAILURES.get(code or "", texts.FAILURE_OTHER)


def waiting_in_line(num_before: int) -> str:
    """Where a question stands that waits for room, in coarse steps."""
    return texts.WAITING_BEHIND.format(count=whole(num_before)) if num_before else texts.WAITING_FOR_ROOM


def shared_on(date: str) -> str:
    """What stands above a shared battle; `date` is an ISO date."""
    return texts.SHARED_ON.format(day=day(date))


def too_long(length: int, most: int) -> str:
    """Notice for a prompt of `length` characters where `most` are allowed."""
    return texts.TOO_LONG.format(most=whole(most), length=whole(length))


def chosen(outcome: Outcome) -> str:
    """Notice while a vote can still be taken back."""
    return texts.CHOSEN.format(vote=texts.VOTED[outcome])


def revealed(outcome: Outcome, a: str, b: str) -> str:
    """The vote and which model was on which side, for screen readers."""
    return texts.REVEALED.format(vote=texts.VOTED[outcome], a=a, b=b)


def reason(name: Reason, outcome: Outcome) -> str:
    """The words for a reason of a vote."""
    better, tie, bad = texts.REASONS[name]
    return bad if outcome == "both_bad" else tie if outcome == "tie" else better


def thumb(side: Side, direction: Thumb) -> str:
    """The name of the button that gives a side's answers a thumb."""
    return texts.THUMBS[direction].format(side=texts.SIDE_NAME[side])


def rank(place: int, num_models: int) -> str:
    """A model's place on the board."""
    return texts.RANK.format(place=place, count=num_models)


def flag(name: str) -> str:
    """The words for a flag of a leaderboard row."""
    return texts.FLAGS.get(name, name.replace("_", " "))


def votes_to_flip(count: int) -> str:
    """How many votes would change a rank."""
    return counted(texts.VOTES_TO_FLIP, count)


def votes_restored(count: int, time_s: float) -> str:
    """That votes were brought back into the store, and when."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))
    return counted(texts.VOTES_RESTORED, count, when=when)


def rating_sentence(model: str, rating: float, lower: float | None, upper: float | None) -> str:
    """The title of an interval's picture."""
    if lower is None or upper is None:
        return texts.RATING_OF_UNSURE.format(model=model, rating=f"{rating:.0f}")
    return texts.RATING_OF.format(model=model, rating=f"{rating:.0f}", lower=f"{lower:.0f}", upper=f"{upper:.0f}")


def win_rate_sentence(row: str, column: str, rate: float) -> str:
    """The title of a cell of the win rates; `rate` is a share."""
    return texts.WIN_RATE_OF.format(row=row, column=column, rate=percent(rate))


def predicted_sentence(row: str, column: str, rate: float) -> str:
    """The title of a cell of the predicted rates; `rate` is a share."""
    return texts.PREDICTED_OF.format(row=row, column=column, rate=percent(rate))


def count_sentence(row: str, column: str, count: int) -> str:
    """The title of a cell of the battle counts."""
    return counted(texts.COUNT_OF, count, row=row, column=column)


def pool_sentence(num_cells: int, used: float, kept: float, cells_by_type: Sequence[tuple[str, int]]) -> str:
    """The title of a pool's picture; `used` and `kept` are percentages."""
    pool = texts.POOL.format(cells=whole(num_cells), used=percent(used / 100), kept=percent(kept / 100))
    return pool + "".join(texts.POOL_PART.format(name=name, count=count) for name, count in cells_by_type)


def pages_sentence(used: int, evictable: int, empty: int) -> str:
    """Counts of pages by state."""
    return texts.PAGES_BY_STATE.format(used=whole(used), evictable=whole(evictable), empty=whole(empty))


def layer_kind(name: str) -> str:
    """The name that visitors read for one of the engine's kinds of layers; an unknown one is shown unchanged."""
    return texts.LAYER_KINDS.get(name, name.replace("_", " "))


def fact(name: str, number: str) -> str:
    """A number of a worker or a model with what it counts."""
    return texts.FACTS[name].format(number=number)


def page_size(page_bytes: int) -> str:
    """The size of one page in KiB."""
    return texts.PAGE_SIZE.format(size=whole(page_bytes / 1024))


def seconds_ago(age_s: float) -> str:
    """The age of a worker's last heartbeat."""
    return texts.LAST_HEARD.format(seconds=whole(age_s))
