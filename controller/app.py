"""The composition root: builds every part of the controller from its settings and ties them to routes.

Nothing is global: two apps in one process share nothing but the Redis they are pointed at.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from fastapi import APIRouter, FastAPI

from controller.access.addresses import Addresses
from controller.access.auth import Guard
from controller.access.rate_limits import Rate, RateLimiter
from controller.battles.battle_store import BattleStore
from controller.battles.battles import Battles
from controller.battles.identity_guard import IdentityGuard
from controller.battles.matchmaking import Matchmaker
from controller.battles.turn_run import TurnTools
from controller.battles.turn_runner import TurnRunner
from controller.battles.turn_stream import TurnStream
from controller.battles.voters import Voters
from controller.body import Bodies
from controller.cancellation import cancel
from controller.config import Settings
from controller.errors import install_error_handlers
from controller.metrics import Metrics
from controller.routes.battles import add_battle_routes
from controller.routes.health import add_health_routes, add_metrics_route
from controller.routes.leaderboard import add_leaderboard_route
from controller.routes.openai import add_openai_routes
from controller.routes.service_doc import CONTROLLER_DOC
from controller.routes.votes import add_vote_log_routes, add_vote_route
from controller.routes.workers import add_internal_worker_routes, add_worker_page_routes
from controller.store.durability import check_durability
from controller.store.keys import Keys
from controller.store.store import Store
from controller.votes.leaderboard import Leaderboards
from controller.votes.vote_log import VoteLog
from controller.votes.votes import Votes
from controller.workers.breaker import CircuitBreaker
from controller.workers.dispatch import Dispatcher
from controller.workers.pools import Pools
from controller.workers.registry import WorkerRegistry
from controller.workers.relay import Relay
from controller.workers.routing_table import RoutingTable
from controller.workers.upstream import Upstream
from controller.workers.worker_hosts import WorkerHosts
from controller.workers.worker_http import WorkerHttp
from service_kit.docs_page import add_api_docs
from service_kit.route_docs import Access


def create_app(settings: Settings) -> FastAPI:
    """Raises ConfigurationError when the settings cannot work. Connects to nothing before its lifespan begins."""
    settings.require_tokens()
    worker_token = settings.worker_token.get_secret_value()
    admin_token = settings.admin_token.get_secret_value()

    metrics = Metrics()
    keys = Keys(settings.key_prefix)
    store = Store(settings.redis_url, timeout_s=settings.store_timeout_s, metrics=metrics)
    table = RoutingTable(store, keys, refresh_s=settings.table_refresh_s)
    breaker = CircuitBreaker()
    dispatcher = Dispatcher(store, keys, table, breaker, slot_lease_s=settings.slot_lease_s)
    registry = WorkerRegistry(
        store,
        keys,
        table,
        WorkerHosts(settings.worker_hosts),
        heartbeat_s=settings.heartbeat_s,
        lease_s=settings.worker_lease_s,
    )
    workers = WorkerHttp(worker_token, settings.connect_timeout_s)
    upstream = Upstream(
        workers,
        table,
        first_token_timeout_s=settings.first_token_timeout_s,
        token_timeout_s=settings.token_timeout_s,
    )
    relay = Relay(upstream, table, breaker, metrics, max_attempts=settings.max_attempts)
    voters = Voters.from_settings(settings.voter_key.get_secret_value(), admin_token)
    log = VoteLog(store, keys)
    boards = Leaderboards(
        log, metrics, models=lambda: table.snapshot.models, clock=table.store_time, refresh_s=settings.board_refresh_s
    )
    matchmaker = Matchmaker(table.ready_models, dispatcher.has_room, lambda: boards.counts, mode=settings.pairing)
    battle_store = BattleStore(store, keys, battle_ttl_s=settings.battle_ttl_s, owner_lease_s=settings.owner_lease_s)
    tools = TurnTools(
        relay=relay,
        dispatcher=dispatcher,
        matchmaker=matchmaker,
        identity=IdentityGuard(lambda: table.snapshot.models),
        metrics=metrics,
        prompt_key=voters.prompt_key,
        max_tokens=settings.battle_max_tokens,
        admission_wait_s=settings.admission_wait_s,
    )
    runner = TurnRunner(battle_store, tools, flush_s=settings.flush_s, patience_s=settings.store_patience_s)
    battles = Battles(
        battle_store,
        table,
        dispatcher,
        matchmaker,
        runner,
        voters,
        metrics,
        max_turns=settings.max_turns,
        max_content_chars=settings.max_content_chars,
    )
    votes = Votes(store, keys, battle_store, voters, metrics, voted_battle_ttl_s=settings.voted_battle_ttl_s)
    stream = TurnStream(battle_store, patience_s=settings.store_patience_s)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        """Starts without a store, too: it then answers 503 until the store is there."""
        workers.start()
        await table.start()
        await dispatcher.start()
        await boards.start()
        durability = asyncio.create_task(check_durability(store))
        yield
        await cancel(durability)
        await runner.close()
        await boards.stop()
        await dispatcher.stop()
        await table.stop()
        await workers.stop()
        await store.close()

    app = FastAPI(
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # None of the framework's own: it may export exception messages, which quote what users write.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    install_error_handlers(app)

    guard = Guard(worker_token=worker_token, admin_token=admin_token, api_keys=settings.api_keys)
    bodies = Bodies(settings.max_body_bytes)
    addresses = Addresses(settings.trusted_proxies)
    limits = RateLimiter(
        store,
        keys,
        metrics,
        rate=Rate(settings.rate_per_minute, settings.rate_burst),
        local_rate=Rate(settings.local_rate_per_minute, settings.local_rate_burst),
    )
    open_, user, worker, admin = (guard.router(access) for access in ("open", "user", "worker", "admin"))
    add_health_routes(open_, store, table)
    add_metrics_route(open_ if settings.public_metrics else admin, metrics, table, runner)
    add_openai_routes(user, bodies, addresses, limits, table, dispatcher, relay)
    add_battle_routes(user, bodies, addresses, limits, battles, stream)
    add_vote_route(user, bodies, addresses, limits, votes)
    add_leaderboard_route(user, addresses, limits, boards)
    add_worker_page_routes(user if settings.public_workers else admin, registry, Pools(workers, table))
    add_vote_log_routes(admin, bodies, log, battle_store)
    add_internal_worker_routes(worker, bodies, registry)
    for router in (open_, user, worker, admin):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", open_),
        ("user", user),
        ("worker", worker),
        ("admin", admin),
    )
    add_api_docs(app, CONTROLLER_DOC, routers, is_served=settings.api_docs)
    return app
