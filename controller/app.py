"""The composition root: builds every part of the controller from its settings, and adds the routes that use them.

Nothing is global: two apps in one process share nothing but the Redis that their settings name.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import cast

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import Scope

from controller.access.addresses import Addresses
from controller.access.auth import Guard
from controller.access.cache_salts import CacheSalts
from controller.access.captcha import Captcha
from controller.access.identity import Identities
from controller.access.invitations import Invitations
from controller.access.rate_limits import Rate, RateLimiter, Rates
from controller.admin.action_log import ActionLog
from controller.admin.arena_state import REFRESH_S as ADMIN_STATE_S
from controller.admin.arena_state import ArenaState
from controller.admin.failure_log import FLUSH_S, FailureLog
from controller.admin.terms import Terms
from controller.battles.battle_store import BattleStore
from controller.battles.battles import Battles
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import WEIGH_S, Matchmaker
from controller.battles.sharing import Sharing
from controller.battles.turn_run import TurnTools
from controller.battles.turn_runner import TurnRunner
from controller.battles.turn_stream import TurnStream
from controller.battles.turn_takeover import ROUND_S, TurnTakeover
from controller.battles.turn_taking import TurnTaking
from controller.battles.voters import Voters
from controller.chats.chat_store import ChatStore
from controller.chats.chats import ChatBounds, Chats
from controller.config import Settings
from controller.metrics import Metrics
from controller.routes.admin import AdminParts, add_admin_routes
from controller.routes.battles import add_battle_routes
from controller.routes.chats import add_chat_routes
from controller.routes.feedback import add_feedback_routes
from controller.routes.health import add_health_routes, add_metrics_route
from controller.routes.history import add_history_routes
from controller.routes.integrity import add_integrity_routes
from controller.routes.leaderboard import add_leaderboard_route
from controller.routes.model_cards import add_model_card_admin_route, add_model_cards_route
from controller.routes.notices import add_notice_routes
from controller.routes.openai import add_openai_routes
from controller.routes.service_doc import CONTROLLER_DOC
from controller.routes.turns import add_turn_routes
from controller.routes.vote_import import add_vote_import_route
from controller.routes.voters import add_invitation_routes, add_join_route
from controller.routes.votes import add_vote_export_route, add_vote_route
from controller.routes.workers import add_internal_worker_routes, add_pools_route, add_worker_list_route
from controller.store.durability import check_durability
from controller.store.keys import Keys
from controller.store.store import Store
from controller.votes.boards.checkpoints import Checkpoints
from controller.votes.boards.fitter import Fitter
from controller.votes.boards.history import FittedDays
from controller.votes.boards.leaderboards import BACKGROUND_S, CHECKPOINT_S, Leaderboards
from controller.votes.boards.model_cards import REFRESH_S as CARDS_S
from controller.votes.boards.model_cards import ModelCards
from controller.votes.feedback import Feedback
from controller.votes.integrity.findings import Rules
from controller.votes.integrity.judge import Judge
from controller.votes.journal import follower, transcripts
from controller.votes.journal.follower import VoteJournal
from controller.votes.journal.journal_file import JournalFile
from controller.votes.journal.restore import LogRestorer
from controller.votes.journal.transcripts import Archiver, TranscriptFiles
from controller.votes.rated import ReadingPace
from controller.votes.recent_votes import RecentVotes
from controller.votes.vote_casting import VoteCasting
from controller.votes.vote_log import VoteLog
from controller.workers.breaker import CircuitBreaker
from controller.workers.dispatch import Dispatcher
from controller.workers.pools import Pools
from controller.workers.registry import WorkerRegistry
from controller.workers.relay import Relay
from controller.workers.routing_table import RoutingTable
from controller.workers.upstream import Upstream
from controller.workers.worker_hosts import WorkerHosts
from controller.workers.worker_http import WorkerHttp
from service_kit.app import bare_app
from service_kit.background import BackgroundTasks
from service_kit.bodies import Bodies
from service_kit.cancellation import cancel
from service_kit.docs_page import add_api_docs
from service_kit.origins import Hosts, OriginGuard, is_loopback
from service_kit.route_docs import Access
from wire.errors import ApiError, ErrorCode
from wire.voters import VoterCookies

ErrorHandler = Callable[[Request, Exception], Awaitable[Response]]

#: Requests that begin work for models; all others belong to work that was accepted, or cost little.
_NEW_WORK = re.compile(r"/v1/(chat/)?completions|/arena/(battles|chats)(/[^/]+/(turns|regenerate))?")


@dataclass(frozen=True)
class _Base:
    """Collaborators that all other parts share."""

    metrics: Metrics
    keys: Keys
    store: Store
    background: BackgroundTasks
    actions: ActionLog
    state: ArenaState
    failures: FailureLog


@dataclass(frozen=True)
class _WorkerParts:
    """Parts that route a request to a worker of its model and relay the answer."""

    http: WorkerHttp
    table: RoutingTable
    registry: WorkerRegistry
    dispatcher: Dispatcher
    relay: Relay


@dataclass(frozen=True)
class _BattleParts:
    """Parts that run battles, record votes and fit leaderboards."""

    store: BattleStore
    runner: TurnRunner
    takeover: TurnTakeover
    matchmaker: Matchmaker
    tools: TurnTools
    battles: Battles
    stream: TurnStream
    sharing: Sharing
    votes: VoteCasting
    feedback: Feedback
    log: VoteLog
    boards: Leaderboards
    cards: ModelCards
    judge: Judge
    voters: Voters
    journal: "_JournalParts | None"


@dataclass(frozen=True)
class _ChatParts:
    """Parts that run chats."""

    runner: TurnRunner
    takeover: TurnTakeover
    chats: Chats
    stream: TurnStream


@dataclass(frozen=True)
class _JournalParts:
    """Parts that keep votes and transcripts in files beside the store."""

    journal: VoteJournal
    archiver: Archiver
    files: TranscriptFiles


def create_app(settings: Settings, *, host: str = "127.0.0.1", bodies: Bodies | None = None) -> FastAPI:
    """The app of one controller. It connects to nothing before its lifespan begins.

    `host`: the address that it will listen on. `bodies`: how request bodies are read, by default up to the limit of the
    settings. Raises ConfigurationError when the settings cannot work, JournalDamaged.
    """
    settings.require_tokens()
    metrics = Metrics()
    store = Store(settings.redis_url, timeout_s=settings.store_timeout_s, metrics=metrics)
    base = _build_base(settings, metrics, store)
    workers = _build_worker_parts(settings, base)
    battles = _build_battle_parts(settings, base, workers)
    chats = _build_chat_parts(settings, base, workers, battles)
    _add_background_work(settings, base, workers, battles, chats)
    app = bare_app("Agon controller", lifespan=_lifespan(base, workers, battles, chats))
    _count_failures(app, base.failures)

    def end_streams() -> None:
        battles.stream.close()
        chats.stream.close()

    app.state.end_streams = end_streams  # for a shutdown: before the lifespan ends, the server cuts them
    _add_routes(app, settings, bodies or Bodies(settings.max_body_bytes), base, workers, battles, chats)
    hosts = Hosts(settings.allowed_hosts, is_open_locally=is_loopback(host) and not settings.api_keys)
    app.add_middleware(OriginGuard, hosts=hosts)
    return app


def _build_base(settings: Settings, metrics: Metrics, store: Store) -> _Base:
    keys = Keys(settings.key_prefix)
    actions = ActionLog(store, keys)
    state = ArenaState(store, keys, actions, file_terms=settings.terms())
    return _Base(metrics, keys, store, BackgroundTasks(), actions, state, FailureLog(store, keys))


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


def is_new_work(scope: Scope) -> bool:
    """Whether a request may be shed under overload (service_kit/shedding.py)."""
    return scope["method"] == "POST" and _NEW_WORK.fullmatch(scope["path"]) is not None


def _build_worker_parts(settings: Settings, base: _Base) -> _WorkerParts:
    table = RoutingTable(base.store, base.keys, base.state)
    breaker = CircuitBreaker()
    http = WorkerHttp(settings.worker_token.get_secret_value(), settings.connect_timeout_s)
    upstream = Upstream(
        http,
        table,
        first_token_timeout_s=settings.first_token_timeout_s,
        token_timeout_s=settings.token_timeout_s,
    )
    return _WorkerParts(
        http=http,
        table=table,
        registry=WorkerRegistry(
            base.store,
            base.keys,
            table,
            WorkerHosts(settings.worker_hosts),
            heartbeat_s=settings.heartbeat_s,
            lease_s=settings.worker_lease_s,
        ),
        dispatcher=Dispatcher(base.store, base.keys, table, breaker, lease_s=settings.slot_lease_s),
        relay=Relay(
            upstream,
            table,
            breaker,
            base.metrics,
            base.failures.note,
            max_attempts=settings.max_attempts,
            replay_wait_s=settings.replay_wait_s,
        ),
    )


def _cache_salts(settings: Settings) -> CacheSalts:
    """A controller without a voter key takes the admin token: all controllers of the arena have it."""
    return CacheSalts(settings.voter_key.get_secret_value() or settings.admin_token.get_secret_value())


def _cookie_secret(settings: Settings) -> str:
    """What the key of voters' cookies is derived from: the proxy token, which web UIs have too. Without one no web UI
    makes cookies, and the controllers take what all of them have."""
    secrets = (settings.proxy_token, settings.voter_key, settings.admin_token)
    return next(secret.get_secret_value() for secret in secrets if secret.get_secret_value())


def _build_battle_parts(settings: Settings, base: _Base, workers: _WorkerParts) -> _BattleParts:
    metrics, keys, store = base.metrics, base.keys, base.store
    table, dispatcher = workers.table, workers.dispatcher
    salts = _cache_salts(settings)
    voters = Voters.from_settings(settings.voter_key.get_secret_value(), settings.admin_token.get_secret_value())
    log = VoteLog(store, keys)
    cards = ModelCards(store, keys, table.store_time)
    boards = Leaderboards(
        log,
        metrics,
        cards,
        models=lambda: table.snapshot.models,
        clock=table.store_time,
        refresh_s=settings.board_refresh_s,
        fitter=Fitter(settings.boards_dir),
        days=FittedDays(settings.boards_dir),
        anchor=settings.board_anchor,
        checkpoints=None if settings.boards_dir is None else Checkpoints(settings.boards_dir),
    )
    matchmaker = Matchmaker(
        lambda: cards.in_service(table.ready_models()),
        dispatcher.has_room,
        lambda: boards.counts,
        lambda models: dispatcher.refused_for_room(models, "battle"),
        mode=settings.pairing,
        weight=base.state.weight,
    )
    battle_store = BattleStore(store, keys, battle_ttl_s=settings.battle_ttl_s, ownership_s=settings.owner_lease_s)
    tools = TurnTools(
        relay=workers.relay,
        dispatcher=dispatcher,
        matchmaker=matchmaker,
        identity=IdentityGuard(lambda: table.snapshot.models),
        metrics=metrics,
        prompt_key=voters.prompt_key,
        cache_salt=salts.of_battle,
        max_tokens=settings.battle_max_tokens,
        admission_wait_s=settings.admission_wait_s,
        replay_wait_s=settings.replay_wait_s,
        paced=settings.paced,
    )
    runner = TurnRunner(battle_store, tools, flush_s=settings.flush_s, patience_s=settings.store_patience_s)
    battles = Battles(
        battle_store,
        table,
        dispatcher,
        matchmaker,
        TurnTaking(battle_store, runner),
        voters,
        metrics,
        is_withdrawn=lambda model: cards.is_retired(model) or base.state.is_off(model),
        max_turns=settings.max_turns,
        max_content_chars=settings.max_content_chars,
    )
    journal = None if settings.journal_dir is None else _build_journal(settings, base, log, battle_store)
    return _BattleParts(
        store=battle_store,
        runner=runner,
        takeover=TurnTakeover(battle_store, runner, ownership_s=settings.owner_lease_s),
        matchmaker=matchmaker,
        tools=tools,
        battles=battles,
        stream=TurnStream(battle_store, patience_s=settings.store_patience_s),
        sharing=Sharing(
            store,
            keys,
            battle_store,
            voters,
            kept_s=settings.kept_voted_s,
            shared_s=settings.shared_battle_ttl_s,
        ),
        votes=VoteCasting(
            store,
            keys,
            battle_store,
            voters,
            metrics,
            None if journal is None else journal.journal,
            # With a journal the archiver sets the lifetime, once the texts are archived.
            voted_battle_ttl_s=settings.kept_voted_s if journal is None else 0,
            pace=ReadingPace(settings.min_read_s, settings.max_read_chars_per_s),
        ),
        feedback=Feedback(store, keys, battle_store, voters, None if journal is None else journal.journal),
        log=log,
        boards=boards,
        cards=cards,
        judge=_build_judge(settings, base, log, boards, journal, clock=table.store_time),
        voters=voters,
        journal=journal,
    )


def _build_chat_parts(settings: Settings, base: _Base, workers: _WorkerParts, battles: _BattleParts) -> _ChatParts:
    store = ChatStore(
        base.store,
        base.keys,
        ttl_s=settings.chat_ttl_s,
        most=settings.chats_per_visitor,
        ownership_s=settings.owner_lease_s,
    )
    tools = replace(battles.tools, kind="chat", max_tokens=settings.chat_max_tokens)
    runner = TurnRunner(store, tools, flush_s=settings.flush_s, patience_s=settings.store_patience_s)
    bounds = ChatBounds(settings.chat_max_turns, settings.chat_max_chars, settings.max_content_chars)
    return _ChatParts(
        runner=runner,
        takeover=TurnTakeover(store, runner, ownership_s=settings.owner_lease_s),
        chats=Chats(store, workers.table, workers.dispatcher, TurnTaking(store, runner), battles.voters, bounds),
        stream=TurnStream(store, patience_s=settings.store_patience_s),
    )


def _build_judge(
    settings: Settings,
    base: _Base,
    log: VoteLog,
    boards: Leaderboards,
    journal: "_JournalParts | None",
    *,
    clock: Callable[[], float],
) -> Judge:
    rules = Rules(
        surprise_limit=settings.surprise_limit,
        voter_cap=settings.voter_cap,
        address_cap=settings.address_cap,
        prompt_cap=settings.prompt_cap,
        probation_votes=settings.probation_votes,
    )
    return Judge(base.store, base.keys, log, boards, journal.journal if journal else None, rules, clock=clock)


def _build_journal(settings: Settings, base: _Base, log: VoteLog, battles: BattleStore) -> _JournalParts:
    assert settings.journal_dir is not None
    restorer = LogRestorer(base.store, base.keys, log, battle_ttl_s=settings.battle_ttl_s)
    file = JournalFile.open(settings.journal_dir)
    files = TranscriptFiles(settings.journal_dir / "transcripts")
    return _JournalParts(
        journal=VoteJournal(file, log, restorer, base.metrics),
        archiver=Archiver(
            base.store,
            base.keys,
            log,
            battles,
            files,
            ttl_s=settings.kept_voted_s,
            shared_ttl_s=settings.shared_battle_ttl_s,
        ),
        files=files,
    )


def _add_background_work(
    settings: Settings, base: _Base, workers: _WorkerParts, battles: _BattleParts, chats: _ChatParts
) -> None:
    background = base.background
    background.add("admin_state", base.state.refresh_round, every_s=ADMIN_STATE_S)
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
    base: _Base, workers: _WorkerParts, battles: _BattleParts, chats: _ChatParts
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        """Starts even without a store: the app answers 503 until the store is reachable."""
        workers.http.start()
        base.background.start()
        durability = asyncio.create_task(check_durability(base.store, has_journal=battles.journal is not None))
        yield
        await cancel(durability)
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

    return lifespan


def _add_routes(
    app: FastAPI,
    settings: Settings,
    bodies: Bodies,
    base: _Base,
    workers: _WorkerParts,
    battles: _BattleParts,
    chats: _ChatParts,
) -> None:
    addresses = Addresses(settings.trusted_proxies, settings.proxy_token.get_secret_value())
    guard = Guard(
        worker_token=settings.worker_token.get_secret_value(),
        admin_token=settings.admin_token.get_secret_value(),
        api_keys=settings.api_keys,
        addresses=addresses,
        admin_users=settings.admin_users,
    )
    open_, user, worker, admin = (guard.router(access) for access in ("open", "user", "worker", "admin"))
    cookies = VoterCookies(_cookie_secret(settings))
    invitations = Invitations(base.store, base.keys, cookies)
    captcha = None
    if settings.captcha_verify_url:
        captcha = Captcha(settings.captcha_verify_url, settings.captcha_secret.get_secret_value())
    identities = Identities(addresses, cookies, invitations, settings.identity, captcha)
    rates = Rates(
        requests=Rate(settings.rate_per_minute, settings.rate_burst),
        battles=Rate(settings.battle_rate_per_minute, settings.battle_rate_burst),
        votes=Rate(settings.vote_rate_per_minute, settings.vote_rate_burst),
        local=Rate(settings.local_rate_per_minute, settings.local_rate_burst),
    )
    limits = RateLimiter(base.store, base.keys, base.metrics, rates, base.failures.note_rate_limited)
    clock = workers.table.store_time
    terms = Terms(base.store, base.keys, base.state, battles.voters.lasting, clock)
    add_health_routes(open_, base.store, base.background, workers.table, settings.processes_file)
    runners = (battles.runner, chats.runner)
    add_metrics_route(open_ if settings.public_metrics else admin, base.metrics, workers.table, runners)
    salts = _cache_salts(settings)
    add_openai_routes(
        user, bodies, addresses, limits, salts, workers.table, workers.dispatcher, workers.relay, identities, terms
    )
    add_battle_routes(user, bodies, identities, limits, battles.battles, terms)
    add_chat_routes(user, bodies, identities, limits, chats.chats, chats.stream, terms)
    add_history_routes(user, identities, limits, battles.sharing)
    add_notice_routes(user, bodies, identities, limits, base.state, terms, clock)
    add_turn_routes(user, bodies, addresses, limits, battles.battles, battles.stream)
    add_vote_route(user, bodies, identities, limits, battles.votes)
    add_feedback_routes(user, bodies, identities, limits, battles.feedback)
    add_join_route(user, bodies, identities, limits)
    add_invitation_routes(admin, bodies, invitations, addresses, base.actions)
    add_leaderboard_route(user, addresses, limits, battles.boards)
    add_model_cards_route(user, addresses, limits, battles.cards)
    add_model_card_admin_route(admin, bodies, battles.cards, addresses, base.actions)
    add_integrity_routes(user, admin, bodies, addresses, limits, battles.judge, base.actions)
    add_worker_list_route(user if settings.public_workers else admin, guard, workers.registry)
    add_pools_route(admin, Pools(workers.http, workers.table))
    files = None if battles.journal is None else battles.journal.files
    add_vote_export_route(admin, battles.log, battles.store, files)
    journal = None if battles.journal is None else battles.journal.journal
    add_vote_import_route(
        admin, bodies, battles.log, journal, addresses, base.actions, patience_s=settings.store_patience_s
    )
    parts = AdminParts(
        addresses=addresses,
        state=base.state,
        actions=base.actions,
        failures=base.failures,
        rates=rates,
        table=workers.table,
        registry=workers.registry,
        cards=battles.cards,
        votes=RecentVotes(battles.log, battles.boards),
    )
    add_admin_routes(admin, bodies, parts)
    add_internal_worker_routes(worker, bodies, workers.registry)
    for router in (open_, user, worker, admin):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", open_),
        ("user", user),
        ("worker", worker),
        ("admin", admin),
    )
    add_api_docs(app, CONTROLLER_DOC, routers, is_served=settings.api_docs)
