"""The composition root of the web UI: a FastAPI app with health, readiness and metrics, and the Gradio pages mounted.

Every outgoing request goes through one ControllerClient. Gradio's routes that no page of ours uses (uploads, files, API
documentation, run history, monitoring) are closed.
"""

import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import gradio as gr
from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from gradio.routes import App
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.routing import Mount

from service_kit.app import bare_app
from service_kit.background import BackgroundTasks
from service_kit.errors import install_error_handlers
from service_kit.origins import Hosts, OriginGuard, is_loopback
from service_kit.path_prefix import PathPrefix, own_path_under, paths_of
from service_kit.request_ids import RequestIds
from webui import sentences, texts
from webui.admin.page import add_admin_page
from webui.battle.pending_votes import PendingVotes, casting
from webui.battle.turn import Turns
from webui.belief import EVERY_S, Belief
from webui.boards import Boards
from webui.captcha import add_check_page
from webui.chat import handlers as chat
from webui.chat.turn import ChatTurns
from webui.client import ControllerClient
from webui.config import Settings
from webui.connection_routes import add_connection_routes
from webui.csv_route import add_csv_route
from webui.doors import MAX_BODY_BYTES, Doors
from webui.event_calls import EventCalls
from webui.event_stream import EventStreams
from webui.feedback.route import add_feedback_route
from webui.history.pages import add_history_pages
from webui.invitations import add_join_page
from webui.joins_once import JoinsOnce
from webui.languages import MARKS, speaking
from webui.light_answers import LightAnswers
from webui.limits import EventRates, Limits, OpenStreams
from webui.links import Links, under
from webui.metrics import Metrics
from webui.notices import add_notice_routes
from webui.page_head import PageHead
from webui.page_sessions import PageSessions
from webui.pages import about, battle, leaderboard, side_by_side, workers
from webui.peers import Peers, ToPeers
from webui.quiet_blocks import QuietBlocks
from webui.starter_prompts import StarterPrompts, read_file
from webui.styles import GRADIO, style_sheet
from webui.theme import ASSETS, build_theme, head
from webui.visitor_language import VisitorLanguage
from webui.visitors import VisitorCookies
from wire.voters import VoterCookies

_LOOK_FOR_EVENTS_S = 0.01  #: Gradio's poll interval; it delays an event by half of it on average
_FORGET_EVERY_S = 5.0  #: between two looks for abandoned sessions


class UnusableRootPath(ValueError):
    """The path prefix is a path of the web UI's own, so that a proxy could not take it off."""


def create_app(settings: Settings) -> FastAPI:
    """The composition root: the FastAPI app of the web UI, with the Gradio pages mounted at `/`. Raises
    UnusableRootPath."""
    proxy_token = settings.proxy_token.get_secret_value()
    client = ControllerClient(
        *settings.controller_urls, api_key=settings.api_key, proxy_token=proxy_token, ca_file=settings.ca_file
    )
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    boards = Boards(client, max_age_s=settings.webui_board_max_age_s)
    peers = Peers(settings.peer_urls, proxy_token)
    pending_votes = PendingVotes(casting(client, boards.leaderboard), settings.webui_undo_s)
    turns = Turns(
        client, settings.webui_update_interval_s, boards.leaderboard, pending_votes, settings.webui_max_prompt_chars
    )

    background = BackgroundTasks()
    belief = Belief(client, has_token=bool(proxy_token))
    background.add("ask controllers for belief", belief.ask_round, every_s=EVERY_S)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background.start()
        yield
        await background.stop()
        await pending_votes.close()
        await peers.aclose()
        await client.aclose()

    app = bare_app(texts.BRAND, lifespan=lifespan)
    app.state.pending_votes = pending_votes
    app.state.waiting_line = client.line

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/ready")
    async def ready() -> JSONResponse:
        is_ready = await client.is_ready()
        state: dict[str, Any] = {"controller": "ready" if is_ready else "unreachable"}
        if not belief.is_whole:
            state["visitors"] = "count as one"
        if background.failing:
            state["failing"] = list(background.failing)
        return JSONResponse(state, 200 if is_ready and not background.failing else 503)

    @app.get("/metrics")
    async def show_metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    cookies = VoterCookies(proxy_token) if proxy_token else None
    add_join_page(app, client, cookies)
    checks = bool(settings.captcha_script_url) and cookies is not None and settings.identity == "cookie"
    if checks and cookies is not None:
        add_check_page(app, client, cookies, settings.captcha_script_url, settings.captcha_site_key)
    add_csv_route(app, boards)
    add_feedback_route(app, client)  # before the forms of the history, which have paths like it
    add_history_pages(app, client)
    add_notice_routes(app, client, max_age_s=settings.webui_board_max_age_s)
    prefix = settings.webui_root_path
    with under(prefix):
        add_admin_page(app, client, peers.own_id)
        with speaking(MARKS):
            ui = build_ui(settings, client, turns, boards)
            page_head = head(peers.own_id)
    streams = OpenStreams()
    event_streams = EventStreams(ui._queue, streams.by_address.__getitem__)
    add_connection_routes(app, peers.own_id, event_streams, lambda session_hash: sessions.keep(session_hash))
    with warnings.catch_warnings():
        # Gradio warns that it cannot render several pages on the server, although ssr_mode is off below.
        warnings.filterwarnings("ignore", "SSR mode is not supported", UserWarning)
        gradio_app = _mount(app, ui, prefix)
    rates = EventRates(settings.webui_events_per_second)
    sessions = PageSessions(gradio_app, settings.webui_max_sessions, streams.is_read)
    background.add("forget abandoned sessions", sessions.forget_abandoned, every_s=_FORGET_EVERY_S)
    background.add("forget quiet addresses", rates.forget_quiet, every_s=_FORGET_EVERY_S)
    app.add_middleware(PageHead, head=page_head)
    app.add_middleware(LightAnswers)
    if cookies is not None:
        app.add_middleware(VisitorCookies, cookies=cookies, gives_new=settings.identity == "cookie", checks=checks)
    app.add_middleware(
        Limits,
        streams=streams,
        rates=rates,
        max_waiting=settings.webui_max_events,
        max_streams=settings.webui_max_streams,
        max_streams_per_address=settings.webui_max_streams_per_address,
        num_waiting=sessions.num_waiting,
    )
    app.add_middleware(JoinsOnce)
    app.add_middleware(Doors, metrics=metrics, calls=EventCalls(ui, max_bytes=MAX_BODY_BYTES))
    app.add_middleware(VisitorLanguage, default=settings.webui_language)
    app.add_middleware(ToPeers, peers=peers, metrics=metrics, max_body_bytes=MAX_BODY_BYTES)
    hosts = Hosts(settings.allowed_hosts, is_open_locally=is_loopback(settings.webui_host))
    app.add_middleware(OriginGuard, hosts=hosts)
    app.add_middleware(RequestIds)
    if prefix:
        if own := own_path_under(prefix, paths_of(app.routes)):
            raise UnusableRootPath(f"the web UI itself has the path {own!r}: choose another prefix than {prefix!r}")
        app.add_middleware(Links, prefix=prefix)
        app.add_middleware(PathPrefix, prefix=prefix)
    return app


def _mount(app: FastAPI, ui: Any, prefix: str) -> App:
    """Mount the pages, with Gradio's errors in the shape of ours: its own answers quote what was sent. Returns Gradio's
    app, which is not `ui.app`."""
    gr.mount_gradio_app(
        app,
        ui,
        path="/",
        root_path=prefix,
        theme=build_theme(),
        css=style_sheet(GRADIO),
        favicon_path=str(ASSETS / "favicon.svg"),
        footer_links=[],
        run_history=False,  # it would store the texts of visitors
        enable_monitoring=False,
        show_error=False,  # the text of an error could name a model
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
        allowed_paths=[],
        max_file_size=0,
    )
    mounted = next(route.app for route in app.routes if isinstance(route, Mount) and isinstance(route.app, App))
    install_error_handlers(mounted)
    return mounted


def build_ui(settings: Settings, client: ControllerClient, turns: Turns, boards: Boards) -> Any:
    """All pages in one Blocks. A browser is sent only the components of its page. No component holds a model's name
    when it is built; events of the pages that may show names fill them in."""
    names = dict(sentences.pages())
    prompts = read_file(settings.starter_prompts)
    starters = StarterPrompts(client, prompts, max_age_s=10 * settings.webui_board_max_age_s)
    with QuietBlocks(title=texts.BRAND, analytics_enabled=False, fill_height=False) as ui:
        battle.build(ui, turns, starters)
    with ui.route(names["/side-by-side"], "/side-by-side"):
        side_by_side.build(ui, turns, client, starters)
    with ui.route(names["/chat"], "/chat"):
        chats = ChatTurns(client, settings.webui_update_interval_s, settings.webui_max_prompt_chars)
        chat.build(ui, chats, client, starters)
    with ui.route(names["/leaderboard"], "/leaderboard"):
        leaderboard.build(ui, boards)
    with ui.route(names["/workers"], "/workers"):
        workers.build(ui, boards)
    with ui.route(texts.ABOUT_TITLE, texts.ABOUT_PATH):
        about.build(ui, settings.terms())
    ui.queue(api_open=False, default_concurrency_limit=None)
    # By default Gradio runs at most 40 events at once, streams included, and mount_gradio_app has no argument for it.
    # Blocks.launch sets these two attributes (gradio 6.31). A test counts the concurrent events of a running page.
    ui.max_threads = settings.webui_max_events
    ui._queue.max_thread_count = settings.webui_max_events
    # By default Gradio polls for work a thousand times a second, which takes a tenth of a core while it is idle.
    ui._queue.sleep_when_free = _LOOK_FOR_EVENTS_S
    ui._queue.progress_update_sleep_when_free = 10 * _LOOK_FOR_EVENTS_S
    # After every event Gradio would tabulate the last 10,000 events for its monitoring page, which is off.
    ui._queue.ANALYTICS_MAX_EVENTS = 1
    ui._queue.ANAYLTICS_CACHE_FREQUENCY = sys.maxsize
    return ui
