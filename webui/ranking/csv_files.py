"""The data of every plot of the leaderboard page as CSV files, and the links to them. Made from the same views as the
page, so that a browser need not reach the controller."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Final
from urllib.parse import urlencode

from webui import texts
from webui.client import BoardQuery
from webui.links import link_to
from webui.ranking.predicted import predicted_rates
from wire.leaderboard import HistoryView, LeaderboardView

PATH: Final = "/leaderboard/data"
Row = Sequence[str | float | int | None]


def link(name: str, query: BoardQuery) -> str:
    """A link to a file of this board, with its name and settings."""
    given = {"board": query.board, "style_control": query.style_control, "fit": query.fit, "weighting": query.weighting}
    usual = BoardQuery()
    changed = {key: str(value).lower() for key, value in given.items() if value != getattr(usual, key)}
    target = link_to(f"{PATH}/{name}.csv") + (f"?{urlencode(changed)}" if changed else "")
    title = texts.CSV_FILES[name]
    return f' <a class="agon-csv" id="csv-{name}" href="{escape(target)}" download aria-label="{title}">{texts.CSV}</a>'


def of_board(name: str, view: LeaderboardView) -> str:
    """The file `name` of a board, one of NAMES but HISTORY."""
    return _file(_FILES[name](view))


def of_history(view: HistoryView) -> str:
    """A row for each day and model; `votes_of_day` are those of the whole board."""
    head = ("day", "model", "rating", "lower", "upper", "votes", "votes_of_day")
    rows = (
        (day.day, row.model, row.rating, row.lower, row.upper, row.votes, day.num_votes)
        for day in view.days
        for row in day.rows
    )
    return _file((head, *rows))


def _file(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _ratings(view: LeaderboardView) -> Iterable[Row]:
    columns = ("model", "revision", "rank", "worst_rank", "rating", "lower", "upper")
    counts = ("votes", "wins", "losses", "ties", "both_bad", "win_rate", "votes_to_flip")
    cards = ("provider", "released", "retired", "licence", "num_parameters", "link")
    yield (*columns, *counts, "flags", "state", *cards)
    for row in view.rows:
        card = view.cards.get(row.model)
        values = [getattr(row, name) for name in (*columns, *counts)]
        made = [None if card is None else getattr(card, name) for name in cards]
        yield (*values, " ".join(row.flags), view.states.get(row.model), *made)


def _statements(view: LeaderboardView) -> Iterable[Row]:
    columns = ("above", "below", "is_decided", "lower", "upper", "votes_needed")
    yield columns
    for said in view.statements:
        yield [getattr(said, name) for name in columns]


def _matrix(view: LeaderboardView, values: Sequence[Sequence[float | int | None]]) -> Iterable[Row]:
    names = [row.model for row in view.rows]
    yield ("model", *names)
    for name, cells in zip(names, values, strict=False):
        yield (name, *cells)


_FILES: Final[Mapping[str, Callable[[LeaderboardView], Iterable[Row]]]] = {
    "ratings": _ratings,
    "statements": _statements,
    "win-rates": lambda view: _matrix(view, view.win_rate),
    "predicted": lambda view: _matrix(view, predicted_rates(view)),
    "battles": lambda view: _matrix(view, view.battle_count),
}
HISTORY: Final = "history"
NAMES: Final = (*_FILES, HISTORY)
