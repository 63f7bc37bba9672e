"""The workers page: who serves which model, what each is doing, and the pages of its memory."""

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from webui import plots, texts
from webui.arena_page import visitor_of
from webui.boards import Boards
from webui.client import ControllerUnreachable
from webui.components import PRIVATE, header
from webui.session import Seat
from wire.errors import ApiError
from wire.workers import PageCounts, WorkerView

REFRESH_S = 2.0
SILENT_AFTER_S = 3.0  #: a healthy worker is heard every second


def build(page: Any, boards: Boards) -> None:
    header("/workers")
    shown = gr.State(Seat(""))
    gr.HTML(
        f'<div class="agon-board-head"><h1>{texts.WORKERS_TITLE}</h1><p>{texts.WORKERS_LEAD}</p>{_legend()}</div>',
        apply_default_css=False,
    )
    notice = gr.HTML("", elem_id="notice", apply_default_css=False)
    waiting = f'<p class="agon-quiet">{texts.LOADING_WORKERS}</p>'
    board = gr.HTML(waiting, elem_id="board", apply_default_css=False)
    timer = gr.Timer(REFRESH_S)

    async def refresh(request: gr.Request, shown: Seat[str]) -> list[Any]:
        try:
            workers = await boards.workers(visitor_of(request))
        except ControllerUnreachable:
            return [gr.skip(), _notice(texts.STALE)]
        except ApiError as error:
            return [gr.skip(), _notice(texts.failure(error.code))]
        markup = render(workers)
        if markup == shown.value:
            return [gr.skip(), ""]
        shown.value = markup
        return [markup, ""]

    gr.on(
        [page.load, timer.tick],
        refresh,
        inputs=[shown],
        outputs=[board, notice],
        concurrency_limit=None,
        **PRIVATE,
    )


def render(workers: Sequence[WorkerView]) -> str:
    if not workers:
        return (
            f'<section class="agon-nothing"><h2>{texts.WORKERS_EMPTY_TITLE}</h2><p>{texts.WORKERS_EMPTY}</p></section>'
        )
    ordered = sorted(workers, key=lambda worker: (worker.model, worker.worker_id))
    return f'<div class="agon-workers">{"".join(_worker(worker) for worker in ordered)}</div>'


def _worker(worker: WorkerView) -> str:
    load, card = worker.load, worker.card
    facts = (
        (f"{load.running}", f"/{worker.capacity.max_running}", texts.FACTS["running"]),
        (f"{load.waiting}", "", texts.FACTS["waiting"]),
        (f"{load.tokens_per_s:,.0f}", "", texts.FACTS["speed"]),
    )
    numbers = "".join(f"<div><dt>{name}</dt><dd>{number}<i>{of}</i></dd></div>" for number, of, name in facts)
    details = (
        f"{short_count(card.num_parameters)} {texts.FACTS['parameters']}",
        f"{card.context_length:,} {texts.FACTS['context']}",
        escape(card.dtype),
        f"{load.prefix_hit_tokens_total:,} {texts.FACTS['hits']}",
        f"{load.preemptions_total:,} {texts.FACTS['preemptions']}",
    )
    is_silent = worker.last_heartbeat_age_s >= SILENT_AFTER_S
    silence = f" &middot; {texts.seconds_ago(worker.last_heartbeat_age_s)}" if is_silent else ""
    pools = "".join(_pool(pages) for pages in load.pages) or f'<p class="agon-quiet">{texts.NO_PAGES}</p>'
    return (
        f'<article class="agon-worker"><header><h2>{escape(worker.model)}</h2>'
        f'<span class="agon-state agon-state-{worker.state}">{texts.WORKER_STATES[worker.state]}</span></header>'
        f'<p class="agon-quiet">{escape(worker.worker_id)}{silence}</p><dl>{numbers}</dl>{pools}'
        f'<p class="agon-details">{" &middot; ".join(details)}</p></article>'
    )


def _pool(pages: PageCounts) -> str:
    total = pages.used + pages.evictable + pages.empty
    in_use = f"{pages.used / total:.0%}" if total else "0%"
    size = texts.page_size(pages.page_bytes)
    return (
        f'<section class="agon-pool-box"><h3>{escape(pages.layer_type.replace("_", " "))}</h3>'
        f"<p>{in_use} {texts.PAGE_STATES['used']} &middot; {total:,} pages &middot; {size}</p>"
        f"{plots.page_pool(pages)}</section>"
    )


def _legend() -> str:
    keys = "".join(
        f'<li><span class="agon-key agon-key-{state}"></span>{name}</li>' for state, name in texts.PAGE_STATES.items()
    )
    return f'<ul class="agon-legend">{keys}</ul>'


def short_count(number: int) -> str:
    for size, unit in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)


def _notice(sentence: str) -> str:
    return f'<p class="agon-notice" role="alert">{escape(sentence)}</p>'
