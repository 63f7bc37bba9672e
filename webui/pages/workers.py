"""The workers page: the model of each worker, and for the operator, who enters the admin token, load and page pool.

A load that every visitor saw would tell which models are in a battle. The token stays in the browser's page; it is sent
with each refresh and kept nowhere.
"""

import asyncio
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import gradio as gr

from webui import number_formats, plots, sentences, texts
from webui.boards import Boards
from webui.controllers import ControllerUnreachable
from webui.number_formats import whole
from webui.ranking.words import card_facts
from webui.seats import Seat
from webui.visitors import Visitor, visitor_of
from webui.widgets import PRIVATE, header, notice
from wire.errors import ApiError, ErrorCode
from wire.workers import Capacity, Load, PageCounts, PoolPicture, WorkerView

REFRESH_S = 2.0
SILENT_AFTER_S = 3.0  #: a healthy worker sends a heartbeat every second


def build(page: Any, boards: Boards) -> None:
    """Create the page's components and bind their events; the workers are refreshed every REFRESH_S."""
    header("/workers")
    shown = gr.State(Seat(""))
    gr.HTML(
        f'<div class="agon-board-head"><h1>{texts.WORKERS_TITLE}</h1><p>{texts.WORKERS_LEAD}</p></div>',
        apply_default_css=False,
    )
    with gr.Accordion(texts.OPERATOR, open=False, elem_classes=["agon-fold"]):
        token = gr.Textbox(  # with a value: a box that was never shown would send none
            "", label=texts.ADMIN_TOKEN, info=texts.ADMIN_TOKEN_INFO, type="password", elem_id="token", max_length=512
        )
    notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
    waiting = f'<p class="agon-quiet">{texts.LOADING_WORKERS}</p>'
    board = gr.HTML(waiting, elem_id="board", apply_default_css=False)
    timer = gr.Timer(REFRESH_S)

    async def refresh(request: gr.Request, shown: Seat[str], entered: str) -> list[Any]:
        visitor, token = visitor_of(request), entered.strip()
        if not (token.isascii() and token.isprintable()):
            return [gr.skip(), notice(texts.WRONG_ADMIN_TOKEN)]
        try:
            workers, pictures = await asyncio.gather(boards.workers(visitor, token), _pictures(boards, visitor, token))
        except ControllerUnreachable:
            return [gr.skip(), notice(texts.STALE)] if shown.value else ["", notice(texts.UNREACHABLE_BOARD)]
        except ApiError as error:
            is_wrong = token and error.code in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN)
            return [gr.skip(), notice(texts.WRONG_ADMIN_TOKEN if is_wrong else sentences.failure(error.code))]
        markup = render(workers, pictures)
        if markup == shown.value:
            return [gr.skip(), ""]
        shown.value = markup
        return [markup, ""]

    gr.on(
        [page.load, timer.tick, token.submit],
        refresh,
        inputs=[shown, token],
        outputs=[board, notice_box],
        concurrency_limit=None,
        **PRIVATE,
    )


async def _pictures(boards: Boards, visitor: Visitor, token: str) -> dict[str, PoolPicture]:
    """Page pools by worker id; empty without a token. Raises ApiError UNAUTHORIZED for a wrong one, and nothing else:
    the page works without the pictures."""
    try:
        return {pool.worker_id: pool.picture for pool in await boards.pools(visitor, token)} if token else {}
    except ControllerUnreachable:
        return {}
    except ApiError as error:
        if error.code in (ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN):
            raise
        return {}


def render(workers: Sequence[WorkerView], pictures: Mapping[str, PoolPicture]) -> str:
    """All workers as markup. `pictures` has the page pools by worker id."""
    if not workers:
        return (
            f'<section class="agon-nothing"><h2>{texts.WORKERS_EMPTY_TITLE}</h2><p>{texts.WORKERS_EMPTY}</p></section>'
        )
    ordered = sorted(workers, key=lambda worker: (worker.model, worker.worker_id))
    cards = "".join(_worker(worker, pictures.get(worker.worker_id)) for worker in ordered)
    legend = _legend() if any(worker.load is not None for worker in ordered) else ""
    return f'{legend}<div class="agon-workers">{cards}</div>'


def _worker(worker: WorkerView, picture: PoolPicture | None) -> str:
    card = worker.card
    details: tuple[str, ...] = tuple(map(escape, card_facts(None, card)))
    if card.runs_on != "remote":  # of another server no data type is known
        details += (escape(card.dtype),)
    figures = ""
    if worker.load is not None:
        figures = _numbers(worker.load, worker.capacity) + _pool(worker.load.pages, picture)
        details += _counts(worker.load)
    age_s = worker.last_heartbeat_age_s or 0.0
    silence = f" &middot; {sentences.seconds_ago(age_s)}" if age_s >= SILENT_AFTER_S else ""
    return (
        f'<article class="agon-worker"><header><h2>{escape(worker.model)}</h2>'
        f'<span class="agon-state agon-state-{worker.state}">{texts.WORKER_STATES[worker.state]}</span></header>'
        f'<p class="agon-quiet">{escape(worker.worker_id)}{silence}</p>{figures}'
        f'<p class="agon-details">{" &middot; ".join(details)}</p></article>'
    )


def _numbers(load: Load, capacity: Capacity) -> str:
    facts = (
        (f"{load.running}", f"/{capacity.max_running}", texts.LOAD["running"]),
        (f"{load.waiting}", "", texts.LOAD["waiting"]),
        (whole(load.tokens_per_s), "", texts.LOAD["speed"]),
    )
    rows = "".join(f"<div><dt>{name}</dt><dd>{number}<i>{of}</i></dd></div>" for number, of, name in facts)
    return f"<dl>{rows}</dl>"


def _counts(load: Load) -> tuple[str, ...]:
    counts = (
        sentences.fact("hits", whole(load.prefix_hit_tokens_total)),
        sentences.fact("preemptions", whole(load.preemptions_total)),
    )
    return (*counts, sentences.fact("swapped", whole(load.swapped))) if load.swapped else counts


def _pool(pages: Sequence[PageCounts], picture: PoolPicture | None) -> str:
    """The picture of the pool, with a line for each family of layer types below it as legend."""
    by_family: dict[str, list[PageCounts]] = {}
    for counts in pages:
        by_family.setdefault(plots.family(counts.layer_type), []).append(counts)
    if not by_family:
        return f'<p class="agon-quiet">{texts.NO_PAGES}</p>'
    names = [*by_family, *(plots.family(name) for name in (picture.layer_types if picture is not None else ()))]
    colours = {name: number for number, name in enumerate(dict.fromkeys(names))}
    lines = "".join(
        _family(name, parts, colours[name] if picture is not None else None) for name, parts in by_family.items()
    )
    drawing = plots.page_pool(picture, colours) if picture is not None else ""
    return f'<section class="agon-pool-box">{drawing}<ul>{lines}</ul></section>'


def _family(name: str, parts: Sequence[PageCounts], colour: int | None) -> str:
    used, evictable, empty = (sum(getattr(p, state) for p in parts) for state in ("used", "evictable", "empty"))
    total = used + evictable + empty
    key = "" if colour is None else f'<span class="agon-key agon-pool-type-{colour % plots.NUM_POOL_COLOURS}"></span>'
    sentence = escape(sentences.pages_sentence(used, evictable, empty))
    share = texts.SHARE_USED.format(share=number_formats.percent(used / max(1, total)))
    return (
        f'<li title="{sentence}">{key}<b>{escape(sentences.layer_kind(name))}</b> '
        f"<span>{share} &middot; {number_formats.counted(texts.NUM_PAGES, total)} &middot; "
        f"{sentences.page_size(parts[0].page_bytes)}</span></li>"
    )


def _legend() -> str:
    keys = "".join(
        f'<li><span class="agon-key agon-key-{state}"></span>{name}</li>' for state, name in texts.PAGE_STATES.items()
    )
    return f'<ul class="agon-legend">{keys}</ul>'
