"""The leaderboard page: ratings, intervals, win rates and battle counts. A new vote appears within seconds."""

import asyncio
from collections.abc import Mapping
from html import escape
from typing import Any

import gradio as gr

from webui import plots, texts
from webui.battle_page import visitor_of
from webui.boards import Boards
from webui.components import PRIVATE, header, notice
from webui.controllers import ControllerUnreachable
from webui.session import Seat
from wire.errors import ApiError
from wire.leaderboard import LeaderboardRow, LeaderboardView
from wire.workers import ModelCard

REFRESH_S = 2.5
RESTORED_SHOWN_S = 7 * 86_400  #: for how long the page says that votes were restored


def build(page: Any, boards: Boards) -> None:
    """Create the page's components and bind their events; the board is refreshed every REFRESH_S."""
    header("/leaderboard")
    shown = gr.State(Seat(""))
    gr.HTML(
        f'<div class="agon-board-head"><h1>{texts.LEADERBOARD_TITLE}</h1><p>{texts.LEADERBOARD_LEAD}</p></div>',
        apply_default_css=False,
    )
    with gr.Row(elem_classes=["agon-filters"]):
        search = gr.Textbox(label=texts.SEARCH, elem_id="search", max_length=100, scale=2)
        min_votes = gr.Number(0, label=texts.MIN_VOTES, elem_id="min-votes", minimum=0, precision=0, scale=1)
        names = [(title, name) for name, title in texts.BOARDS.items()]
        kind = gr.Dropdown(names, value=names[0][1], label=texts.BOARD, elem_id="kind", filterable=False, scale=2)
    style = gr.Checkbox(False, label=texts.STYLE_CONTROL, container=False, elem_id="style")
    notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
    board = gr.HTML(f'<p class="agon-quiet">{texts.LOADING}</p>', elem_id="board", apply_default_css=False)
    timer = gr.Timer(REFRESH_S)

    async def refresh(
        request: gr.Request, wanted: str, least: float | None, kind: str, adjusted: bool, shown: Seat[str]
    ) -> list[Any]:
        try:
            visitor = visitor_of(request)
            view, cards = await asyncio.gather(
                boards.leaderboard(visitor, kind, style_control=adjusted), _cards(boards, visitor)
            )
        except (ApiError, ControllerUnreachable):
            return [gr.skip(), notice(texts.STALE)] if shown.value else ["", notice(texts.UNREACHABLE_BOARD)]
        markup = render(view, wanted, int(least or 0), cards)
        if markup == shown.value:
            return [gr.skip(), ""]
        shown.value = markup
        return [markup, ""]

    gr.on(
        [page.load, timer.tick, search.input, min_votes.input, kind.input, style.input],
        refresh,
        inputs=[search, min_votes, kind, style, shown],
        outputs=[board, notice_box],
        concurrency_limit=None,
        trigger_mode="always_last",
        **PRIVATE,
    )


async def _cards(boards: Boards, visitor: str) -> dict[str, ModelCard]:
    """The cards of all models that are served now, by name; empty if the workers cannot be read, the board works
    without them."""
    try:
        return {worker.model: worker.card for worker in await boards.workers(visitor)}
    except (ApiError, ControllerUnreachable):
        return {}


def render(
    view: LeaderboardView, wanted: str = "", min_votes: int = 0, cards: Mapping[str, ModelCard] | None = None
) -> str:
    """The whole board as markup. `wanted` filters by a part of the name; `cards` holds the models that are served
    now."""
    if not view.rows or not view.num_votes:
        return (
            f'<section class="agon-nothing"><h2>{texts.LEADERBOARD_EMPTY_TITLE}</h2><p>{texts.LEADERBOARD_EMPTY}</p>'
            f'<a class="agon-action" href="/">{texts.START_BATTLE}</a></section>'
        )
    sought = wanted.strip().lower()
    kept = [index for index, row in enumerate(view.rows) if sought in row.model.lower() and row.votes >= min_votes]
    if not kept:
        return f'<section class="agon-nothing"><p>{texts.LEADERBOARD_NO_MATCH}</p></section>'
    rows = [view.rows[index] for index in kept]
    names = [row.model for row in rows]
    sections = [f'<p class="agon-live"><span></span>{texts.num_votes(view.num_votes)}</p>', _table(rows, cards or {})]
    if view.restored_at is not None and view.updated_at - view.restored_at < RESTORED_SHOWN_S:
        restored = escape(texts.votes_restored(view.num_restored, view.restored_at))
        sections.insert(1, f'<p class="agon-quiet">{restored}</p>')
    figures = ""
    if view.win_rate and len(rows) > 1:
        rates = [[view.win_rate[i][j] for j in kept] for i in kept]
        figures += _figure(texts.WIN_RATE_PLOT, texts.WIN_RATE_PLOT_HINT, plots.win_rates(names, rates))
    if view.battle_count and len(rows) > 1:
        counts = [[view.battle_count[i][j] for j in kept] for i in kept]
        figures += _figure(texts.PREDICTED_PLOT, texts.PREDICTED_PLOT_HINT, plots.predicted_rates(rows))
        figures += _figure(texts.COUNT_PLOT, texts.COUNT_PLOT_HINT, plots.battle_counts(names, counts))
    sections.append(f'<div class="agon-figures">{figures}</div>')
    return "".join(sections)


def _table(rows: list[LeaderboardRow], cards: Mapping[str, ModelCard]) -> str:
    scale = plots.rating_scale(rows)
    heads = (
        ("rank", texts.COLUMN_RANK),
        ("model", texts.COLUMN_MODEL),
        ("rating", texts.COLUMN_RATING),
        ("interval", texts.COLUMN_INTERVAL),
        ("votes", texts.COLUMN_VOTES),
        ("rate", texts.COLUMN_WIN_RATE),
    )
    head = "".join(
        f'<th scope="col" role="columnheader" class="agon-col-{name}">{title}'
        f"{plots.axis(scale) if name == 'interval' else ''}</th>"
        for name, title in heads
    )
    body = "".join(_row(row, scale, cards.get(row.model)) for row in rows)
    return (
        f'<table class="agon-ranking" role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>'
    )


def _row(row: LeaderboardRow, scale: plots.Scale, card: ModelCard | None) -> str:
    flags = "".join(f'<span class="agon-flag">{escape(texts.flag(name))}</span>' for name in row.flags)
    bounds = texts.NO_INTERVAL if row.lower is None or row.upper is None else f"{row.lower:.0f} \u2013 {row.upper:.0f}"
    rate = "\u2013" if row.win_rate is None else f"{row.win_rate:.0%}"
    place = f"{row.rank}" if row.lower is not None else f'<span title="{texts.NO_RANK}">\u2013</span>'
    if row.lower is not None and row.worst_rank is not None and row.worst_rank > row.rank:
        place += f"\u2013{row.worst_rank}"
    flip = "" if row.votes_to_flip is None else f"<small>{escape(texts.votes_to_flip(row.votes_to_flip))}</small>"
    facts = "" if card is None else f"<small>{escape(texts.model_facts(card))}</small>"
    cells = (
        ("rank", place),
        ("model", f"<strong>{escape(row.model)}</strong>{flags}{facts}{flip}"),
        ("rating", f"<b>{row.rating:.0f}</b><small>{bounds}</small>"),
        ("interval", plots.interval(row, scale)),
        ("votes", f"{row.votes:,}<span>{texts.COLUMN_VOTES.lower()}</span>"),
        ("rate", f"{rate}<span>{texts.COLUMN_WIN_RATE.lower()}</span>"),
    )
    tds = "".join(f'<td role="cell" class="agon-col-{name}">{content}</td>' for name, content in cells)
    return f'<tr role="row">{tds}</tr>'


def _figure(title: str, hint: str, picture: str) -> str:
    return f'<figure class="agon-figure"><figcaption><h2>{title}</h2><p>{hint}</p></figcaption>{picture}</figure>'
