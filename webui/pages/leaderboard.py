"""The leaderboard page: ratings, statements, history and cards of every board. A new vote appears within seconds.

What it shows is made in webui/ranking; this module asks for the views, and sends a part of the page only if it has
changed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeVar

import gradio as gr

from webui import plots, sentences, texts
from webui.boards import Boards
from webui.client import BoardQuery
from webui.controllers import ControllerUnreachable
from webui.links import link_to
from webui.ranking import history, sections, words
from webui.ranking.csv_files import link
from webui.ranking.predicted import predicted_rates
from webui.ranking.table import Known, ranking, waiting_models
from webui.seats import Seat
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE, header, notice
from wire.errors import ApiError
from wire.leaderboard import CohortView, FitModel, HistoryView, LeaderboardView, Weighting
from wire.workers import ModelCard

T = TypeVar("T")

REFRESH_S = 2.5
MAX_HEAT_MAP = 16  #: models in one heat map: 60 would take three megabytes


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows now: its parts as markup, and the boards that it offers."""

    parts: tuple[str, str, str] = ("", "", "")  #: ranking, statements, figures
    boards: tuple[str, ...] = (words.USUAL_BOARD,)


def build(page: Any, boards: Boards) -> None:
    """Create the page's components and bind their events; the board is refreshed every REFRESH_S."""
    header("/leaderboard")
    shown = gr.State(Seat(Shown()))
    gr.HTML(
        f'<div class="agon-board-head"><h1>{texts.LEADERBOARD_TITLE}</h1><p>{texts.LEADERBOARD_LEAD}</p></div>',
        apply_default_css=False,
    )
    inputs, offering = _filters()
    notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
    board = gr.HTML(f'<p class="agon-quiet">{texts.LOADING}</p>', elem_id="board", apply_default_css=False)
    decided = gr.HTML("", elem_id="decided", apply_default_css=False)
    figures = gr.HTML("", elem_id="figures", apply_default_css=False)
    timer = gr.Timer(REFRESH_S)

    async def refresh(
        request: gr.Request,
        wanted: str,
        least: float | None,
        kind: str | None,
        adjusted: bool,
        fit: FitModel | None,
        weighting: Weighting | None,
        versus: str | None,
        shown: Seat[Shown],
    ) -> list[Any]:
        visitor, now = visitor_of(request), shown.value
        name = kind if kind in now.boards else now.boards[0]
        query = BoardQuery(name, adjusted, fit or "bradley_terry", weighting or "votes")
        try:
            view, served, days, compared = await asyncio.gather(
                boards.leaderboard(visitor, query),
                _served(boards, visitor),
                boards.history(visitor, name),
                _comparison(boards, visitor, name, versus if versus in now.boards else None),
            )
        except (ApiError, ControllerUnreachable):
            sentence = texts.STALE if now.parts[0] else texts.UNREACHABLE_BOARD
            return [gr.skip(), gr.skip(), gr.skip(), gr.skip(), gr.skip(), notice(sentence)]
        parts = render(view, wanted, int(least or 0), served, days, query, compared)
        shown.value = Shown(parts, view.boards or now.boards)
        changed = [gr.skip() if new == old else new for new, old in zip(parts, now.parts, strict=True)]
        if shown.value.boards == now.boards:
            return [*changed, gr.skip(), gr.skip(), ""]
        offered = words.boards(shown.value.boards)
        others = [(texts.NO_VERSUS, ""), *offered]
        return [*changed, gr.update(choices=offered, value=name), gr.update(choices=others, value=versus or ""), ""]

    gr.on(
        [page.load, timer.tick, *(component.input for component in inputs)],
        refresh,
        inputs=[*inputs, shown],
        outputs=[board, decided, figures, *offering, notice_box],
        concurrency_limit=None,
        trigger_mode="always_last",
        **PRIVATE,
    )


def _filters() -> tuple[list[Any], list[gr.Dropdown]]:
    """The inputs of `refresh` in their order, and those of them that offer boards."""
    with gr.Row(elem_classes=["agon-filters"]):
        kind = gr.Dropdown(
            words.boards(tuple(texts.BOARDS)[:1]),
            value=next(iter(texts.BOARDS)),
            label=texts.BOARD,
            elem_id="kind",
            filterable=False,
            scale=2,
        )
        search = gr.Textbox(label=texts.SEARCH, elem_id="search", max_length=100, scale=2)
        least = gr.Number(0, label=texts.MIN_VOTES, elem_id="min-votes", minimum=0, precision=0, scale=1)
    style = gr.Checkbox(False, label=texts.STYLE_CONTROL, container=False, elem_id="style")
    with (
        gr.Accordion(texts.METHOD, open=False, elem_classes=["agon-fold", "agon-method"]),
        gr.Row(elem_classes=["agon-filters"]),
    ):
        fits = [(title, name) for name, title in texts.FITS.items()]
        fit = gr.Dropdown(fits, value=fits[0][1], label=texts.FIT, elem_id="fit", filterable=False)
        weightings = [(title, name) for name, title in texts.WEIGHTINGS.items()]
        weighting = gr.Dropdown(
            weightings, value=weightings[0][1], label=texts.WEIGHTING, elem_id="weighting", filterable=False
        )
        versus = gr.Dropdown([(texts.NO_VERSUS, "")], value="", label=texts.VERSUS, elem_id="versus", filterable=False)
    for offering in (kind, versus):
        # Any value is accepted, because only the controller knows the boards; `refresh` takes those that it offers. As
        # an argument it would make the choice a text box.
        offering.allow_custom_value = True
    return [search, least, kind, style, fit, weighting, versus], [kind, versus]


async def _comparison(boards: Boards, visitor: Visitor, first: str, second: str | None) -> CohortView | None:
    """The comparison of two boards; None for one and the same."""
    return None if second is None or first == second else await boards.comparison(visitor, first, second)


async def _served(boards: Boards, visitor: Visitor) -> dict[str, ModelCard]:
    """The cards of all models that are served now, by name; empty if the workers cannot be read, the board works
    without them."""
    try:
        return {worker.model: worker.card for worker in await boards.workers(visitor)}
    except (ApiError, ControllerUnreachable):
        return {}


def render(
    view: LeaderboardView,
    wanted: str = "",
    min_votes: int = 0,
    served: Mapping[str, ModelCard] | None = None,
    days: HistoryView | None = None,
    query: BoardQuery | None = None,
    compared: CohortView | None = None,
) -> tuple[str, str, str]:
    """The board as markup: ranking, statements, figures. `wanted` filters by a part of the name; `served` holds the
    models that are served now, `days` the board's history, `query` what the board was asked with, `compared` another
    board beside it."""
    known = Known.of(view, served)
    if not view.rows or not view.num_votes:
        nothing = (
            f'<section class="agon-nothing"><h2>{texts.LEADERBOARD_EMPTY_TITLE}</h2><p>{texts.LEADERBOARD_EMPTY}</p>'
            f'<a class="agon-action" href="{link_to("/")}">{texts.START_BATTLE}</a></section>'
        )
        return nothing + waiting_models((), known), "", ""
    asked = query or BoardQuery(view.board)
    sought = wanted.strip().lower()
    kept = [index for index, row in enumerate(view.rows) if sought in row.model.lower() and row.votes >= min_votes]
    if not kept:
        return f'<section class="agon-nothing"><p>{texts.LEADERBOARD_NO_MATCH}</p></section>', "", ""
    kept.sort(key=lambda index: view.rows[index].lower is None)  # a model without a rank stands below those with one
    rows = [view.rows[index] for index in kept]
    table = ranking(rows, known, shows_flip=not view.statements)
    top = sections.summary(view, asked, link("ratings", asked)) + table + waiting_models(view.rows, known)
    names = {row.model for row in rows}
    said = sections.statements(view, names, link("statements", asked)) + sections.comparison(compared, names)
    return top, said, _figures(view, kept, days, asked)


def _figures(view: LeaderboardView, kept: list[int], days: HistoryView | None, asked: BoardQuery) -> str:
    """The pictures of the models at the places `kept`, of those with votes."""
    kept = [index for index in kept if view.rows[index].votes]
    models = [view.rows[index].model for index in kept]
    wide = ""
    if days is not None and (picture := history.over_time(days, models)):
        hint = sentences.in_a_row(texts.RATINGS_HINT, words.part(min(len(models), history.MAX_LINES), len(models)))
        wide = _figure(texts.RATINGS_TITLE, hint, picture, link("history", asked), " agon-figure-wide")
    part = words.part(MAX_HEAT_MAP, len(kept))
    kept = kept[:MAX_HEAT_MAP]
    names = models[:MAX_HEAT_MAP]
    figures = ""
    if view.win_rate and len(kept) > 1:
        picture = plots.win_rates(names, _cells(view.win_rate, kept))
        figures += _figure(
            texts.WIN_RATE_PLOT, sentences.in_a_row(texts.WIN_RATE_PLOT_HINT, part), picture, link("win-rates", asked)
        )
    if view.battle_count and len(kept) > 1:
        picture = plots.predicted_rates(names, _cells(predicted_rates(view), kept))
        figures += _figure(
            texts.PREDICTED_PLOT, sentences.in_a_row(texts.PREDICTED_PLOT_HINT, part), picture, link("predicted", asked)
        )
        picture = plots.battle_counts(names, _cells(view.battle_count, kept))
        figures += _figure(
            texts.COUNT_PLOT, sentences.in_a_row(texts.COUNT_PLOT_HINT, part), picture, link("battles", asked)
        )
    figures += sections.more(view)
    return wide + (f'<div class="agon-figures">{figures}</div>' if figures else "")


def _cells(matrix: Sequence[Sequence[T]], kept: Sequence[int]) -> list[list[T]]:
    """The rows and columns at the places `kept`."""
    return [[matrix[i][j] for j in kept] for i in kept]


def _figure(title: str, hint: str, picture: str, csv: str, more_classes: str = "") -> str:
    return (
        f'<figure class="agon-figure{more_classes}"><figcaption><h2>{title}</h2><p>{escape(hint)}{csv}</p></figcaption>'
        f"{picture}</figure>"
    )
