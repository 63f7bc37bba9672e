"""The app of one controller: its routes, its background work, and its beginning and end.

Nothing is global: two apps in one process share nothing but the Redis that their settings name.
"""

import asyncio
import contextlib
import re
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import cast

from fastapi import FastAPI, Request, Response
from starlette.types import Scope

from controller.admin.arena_state import REFRESH_S as ADMIN_STATE_S
from controller.admin.failure_log import FLUSH_S, FailureLog
from controller.assembly.base import Base, build_base
from controller.assembly.battles import BattleParts, build_battle_parts
from controller.assembly.chats import ChatParts, build_chat_parts
from controller.assembly.routes import add_routes
from controller.assembly.workers import WorkerParts, build_worker_parts
from controller.battles.matchmaking import WEIGH_S
from controller.battles.trails import FLUSH_S as TRAILS_S
from controller.battles.turn_takeover import ROUND_S
from controller.config import Settings
from controller.errors import ConfigurationError
from controller.metrics import Metrics
from controller.store.store import Store
from controller.votes.boards.leaderboards import BACKGROUND_S, CHECKPOINT_S
from controller.votes.boards.model_cards import REFRESH_S as CARDS_S
from controller.votes.journal import follower, transcripts
from service_kit.app import bare_app
from service_kit.bodies import Bodies
from service_kit.cancellation import cancel
from service_kit.cors import Cors, CrossOrigin
from service_kit.origins import Hosts, OriginGuard, is_loopback
from service_kit.path_prefix import PathPrefix, own_path_under, paths_of
from service_kit.request_ids import RequestIds
from service_kit.route_times import RouteTimes
from service_kit.spellings import Spellings, plain_path
from wire.errors import ApiError, ErrorCode
from wire.releases import FORMAT, newer_than_this, stamp

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]

_STORE_RETRY_S = 0.2
_STORE_PATIENCE_S = 1.0  #: requests are taken after this time, with or without a store
#: Requests that begin work for models; all others belong to work that was accepted, or cost little.
_NEW_WORK = re.compile(
    r"/v1/((chat/)?completions|responses|messages)|/arena/(battles|chats)(/[^/]+/(turns|regenerate))?"
)


def create_app(settings: Settings, *, host: str = "127.0.0.1", bodies: Bodies | None = None) -> FastAPI:
    """The app of one controller. It connects to nothing before its lifespan begins.

    `host`: the address that it will listen on. `bodies`: how request bodies are read, by default up to the limit of the
    settings. Raises ConfigurationError when the settings cannot work, JournalDamaged.
    """
    settings.require_tokens()
    metrics = Metrics()
    store = Store(
        settings.store_address(),
        timeout_s=settings.store_timeout_s,
        metrics=metrics,
        num_replicas=settings.needed_replicas,
    )
    base = build_base(settings, metrics, store)
    workers = build_worker_parts(settings, base)
    battles = build_battle_parts(settings, base, workers)
    chats = build_chat_parts(settings, base, workers, battles)
    _add_background_work(settings, base, workers, battles, chats)
    app = bare_app("Agon controller", lifespan=_lifespan(base, workers, battles, chats))
    _count_failures(app, base.failures)

    def end_streams() -> None:
        battles.stream.close()
        chats.stream.close()

    app.state.problem = None
    app.state.end_streams = end_streams  # for a shutdown: before the lifespan ends, the server cuts them
    add_routes(app, settings, bodies or Bodies(settings.max_body_bytes), base, workers, battles, chats)
    app.add_middleware(RouteTimes, times=metrics.requests)
    hosts = Hosts(settings.allowed_hosts, is_open_locally=is_loopback(host) and not settings.api_keys)
    cross_origin = CrossOrigin(settings.cors_origins)
    app.add_middleware(Cors, cross_origin=cross_origin)
    app.add_middleware(OriginGuard, hosts=hosts, cross_origin=cross_origin)
    app.add_middleware(RequestIds)
    app.add_middleware(Spellings)
    if settings.root_path:
        if own := own_path_under(settings.root_path, paths_of(app.routes)):
            prefix = settings.root_path
            raise ConfigurationError(
                f"AGON_ROOT_PATH: the controller itself has the path {own!r}: choose another prefix than {prefix!r}."
            )
        app.add_middleware(PathPrefix, prefix=settings.root_path)
    return app


def _count_failures(app: FastAPI, failures: FailureLog) -> None:
    """Note every answer that is an error of the service, for the administrator."""
    on_api_error = cast(ErrorHandler, app.exception_handlers[ApiError])
    on_bug = cast(ErrorHandler, app.exception_handlers[Exception])

    async def counted(request: Request, error: Exception) -> Response:
        if isinstance(error, ApiError):
            if error.status >= 500:
                failures.note(error.code.value, "")
            return await on_api_error(request, error)
        failures.note(ErrorCode.INTERNAL_ERROR.value, "")
        return await on_bug(request, error)

    app.add_exception_handler(ApiError, counted)
    app.add_exception_handler(Exception, counted)


def is_new_work(scope: Scope, root_path: str = "") -> bool:
    """Whether a request may be shed under overload (service_kit/shedding.py)."""
    path = plain_path(scope["path"].removeprefix(root_path))
    return scope["method"] == "POST" and _NEW_WORK.fullmatch(path) is not None


def _add_background_work(
    settings: Settings, base: Base, workers: WorkerParts, battles: BattleParts, chats: ChatParts
) -> None:
    background = base.background
    background.add("admin_state", base.state.refresh_round, every_s=ADMIN_STATE_S)
    background.add("trails", base.trails.flush_round, every_s=TRAILS_S)
    background.add("failures", base.failures.flush_round, every_s=FLUSH_S)
    background.add("routing_table", workers.table.refresh_round, every_s=settings.table_refresh_s)
    background.add("leases", workers.dispatcher.renew_leases, every_s=workers.dispatcher.renewal_s)
    background.add("turn_takeover", battles.takeover.claim_round, every_s=ROUND_S)
    background.add("chat_takeover", chats.takeover.claim_round, every_s=ROUND_S)
    background.add("pairing", battles.matchmaker.weigh_round, every_s=WEIGH_S)
    background.add("vote_fold", battles.boards.background_round, every_s=BACKGROUND_S)
    background.add("model_cards", battles.cards.refresh_round, every_s=CARDS_S)
    background.add("board_checkpoint", battles.boards.checkpoint_round, every_s=CHECKPOINT_S)
    if settings.judge_every_s > 0:
        background.add("judge", battles.judge.judge_round, every_s=settings.judge_every_s)
    if battles.journal is not None:
        journal = battles.journal.journal
        background.add("vote_journal", journal.follow_round, every_s=follower.ROUND_S)
        background.add("journal_comparison", journal.comparison_round, every_s=follower.COMPARISON_S)
        background.add("transcripts", battles.journal.archiver.archive_round, every_s=transcripts.ROUND_S)


def _lifespan(
    base: Base, workers: WorkerParts, battles: BattleParts, chats: ChatParts
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        """Starts even without a store: the app answers 503 until the store is reachable. Work in the background begins
        when the store has turned out to have no newer format; where it has one the process ends."""
        workers.http.start()
        begins = asyncio.create_task(_begin(app, base))
        await asyncio.wait({begins}, timeout=_STORE_PATIENCE_S)
        yield
        await cancel(begins)
        battles.takeover.close()
        chats.takeover.close()
        await asyncio.gather(battles.runner.close(), chats.runner.close())
        await base.background.stop()
        await battles.judge.close()
        await battles.boards.close()
        if battles.journal is not None:
            await battles.journal.journal.close()
            battles.journal.archiver.close()
        await workers.dispatcher.close()
        await workers.http.stop()
        await base.store.close()
        if base.traces is not None:
            await asyncio.to_thread(base.traces.close)

    return lifespan


async def _begin(app: FastAPI, base: Base) -> None:
    """Write the format into the store and begin the work in the background; end the process where an older release
    must not touch the store: then `app.state.problem` says why."""
    while True:
        with contextlib.suppress(ApiError):
            found = await base.store.run("stamp_store", [base.keys.format], FORMAT, stamp())
            break
        await asyncio.sleep(_STORE_RETRY_S)
    app.state.problem = newer_than_this(found, "the store")
    if app.state.problem is None:
        base.background.start()
    else:
        signal.raise_signal(signal.SIGTERM)
