"""The workers page: the model, the load and the page pool of each worker."""

import asyncio
from collections.abc import Mapping, Sequence
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
from wire.workers import PageCounts, PoolPicture, WorkerView

REFRESH_S = 2.0
SILENT_AFTER_S = 3.0  #: a healthy worker sends a heartbeat every second


def build(page: Any, boards: Boards) -> None:
    """Create the page's components and bind their events; the workers are refreshed every REFRESH_S."""
    header("/workers")
    shown = gr.State(Seat(""))
    gr.HTML(
        f'<div class="agon-board-head"><h1>{texts.WORKERS_TITLE}</h1><p>{texts.WORKERS_LEAD}</p>{_legend()}</div>',
        apply_default_css=False,
    )
    notice_box = gr.HTML("", elem_id="notice", apply_default_css=False)
    waiting = f'<p class="agon-quiet">{texts.LOADING_WORKERS}</p>'
    board = gr.HTML(waiting, elem_id="board", apply_default_css=False)
    timer = gr.Timer(REFRESH_S)

    async def refresh(request: gr.Request, shown: Seat[str]) -> list[Any]:
        visitor = visitor_of(request)
        try:
            workers, pictures = await asyncio.gather(boards.workers(visitor), _pictures(boards, visitor))
        except ControllerUnreachable:
            return [gr.skip(), notice(texts.STALE)] if shown.value else ["", notice(texts.UNREACHABLE_BOARD)]
        except ApiError as error:
            return [gr.skip(), notice(texts.failure(error.code))]
        markup = render(workers, pictures)
        if markup == shown.value:
            return [gr.skip(), ""]
        shown.value = markup
        return [markup, ""]

    gr.on(
        [page.load, timer.tick],
        refresh,
        inputs=[shown],
        outputs=[board, notice_box],
        concurrency_limit=None,
        **PRIVATE,
    )


async def _pictures(boards: Boards, visitor: str) -> dict[str, PoolPicture]:
    """Page pools by worker id; empty if they cannot be read, the page works without them."""
    try:
        return {pool.worker_id: pool.picture for pool in await boards.pools(visitor)}
    except (ControllerUnreachable, ApiError):
        return {}


def render(workers: Sequence[WorkerView], pictures: Mapping[str, PoolPicture]) -> str:
    """All workers as markup. `pictures` has the page pools by worker id."""
    if not workers:
        return (
            f'<section class="agon-nothing"><h2>{texts.WORKERS_EMPTY_TITLE}</h2><p>{texts.WORKERS_EMPTY}</p></section>'
        )
    ordered = sorted(workers, key=lambda worker: (worker.model, worker.worker_id))
    cards = "".join(_worker(worker, pictures.get(worker.worker_id)) for worker in ordered)
    return f'<div class="agon-workers">{cards}</div>'


def _worker(worker: WorkerView, picture: PoolPicture | None) -> str:
    load, card = worker.load, worker.card
    facts = (
        (f"{load.running}", f"/{worker.capacity.max_running}", texts.FACTS["running"]),
        (f"{load.waiting}", "", texts.FACTS["waiting"]),
        (f"{load.tokens_per_s:,.0f}", "", texts.FACTS["speed"]),
    )
    numbers = "".join(f"<div><dt>{name}</dt><dd>{number}<i>{of}</i></dd></div>" for number, of, name in facts)
    details: tuple[str, ...] = (
        f"{texts.short_count(card.num_parameters)} {texts.FACTS['parameters']}",
        f"{card.context_length:,} {texts.FACTS['context']}",
        escape(card.dtype),
        f"{load.prefix_hit_tokens_total:,} {texts.FACTS['hits']}",
        f"{load.preemptions_total:,} {texts.FACTS['preemptions']}",
    )
    if load.swapped:
        details += (f"{load.swapped:,} {texts.FACTS['swapped']}",)
    is_silent = worker.last_heartbeat_age_s >= SILENT_AFTER_S
    silence = f" &middot; {texts.seconds_ago(worker.last_heartbeat_age_s)}" if is_silent else ""
    return (
        f'<article class="agon-worker"><header><h2>{escape(worker.model)}</h2>'
        f'<span class="agon-state agon-state-{worker.state}">{texts.WORKER_STATES[worker.state]}</span></header>'
        f'<p class="agon-quiet">{escape(worker.worker_id)}{silence}</p><dl>{numbers}</dl>{_pool(load.pages, picture)}'
        f'<p class="agon-details">{" &middot; ".join(details)}</p></article>'
    )


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
    sentence = escape(texts.pages_sentence(used, evictable, empty))
    return (
        f'<li title="{sentence}">{key}<b>{escape(texts.layer_kind(name))}</b> '
        f"<span>{used / max(1, total):.0%} {texts.PAGE_STATES['used']} &middot; {total:,} pages &middot; "
        f"{texts.page_size(parts[0].page_bytes)}</span></li>"
    )


def _legend() -> str:
    keys = "".join(
        f'<li><span class="agon-key agon-key-{state}"></span>{name}</li>' for state, name in texts.PAGE_STATES.items()
    )
    return f'<ul class="agon-legend">{keys}</ul>'
