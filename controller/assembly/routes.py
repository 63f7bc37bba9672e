"""Who may call which route, and the parts that it is given."""

from dataclasses import replace

from fastapi import APIRouter, FastAPI

from controller.access.addresses import Addresses
from controller.access.auth import Guard
from controller.access.captcha import Captcha
from controller.access.identity import Identities
from controller.access.invitations import Invitations
from controller.access.rate_limits import Rate, RateLimiter, Rates
from controller.admin.terms import Terms
from controller.assembly.base import Base
from controller.assembly.battles import BattleParts
from controller.assembly.chats import ChatParts
from controller.assembly.workers import WorkerParts
from controller.config import Settings
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
from controller.routes.openai import ArenaBackend
from controller.routes.served_models import add_served_model_routes
from controller.routes.service_doc import CONTROLLER_DOC
from controller.routes.trails import add_trail_route
from controller.routes.turns import add_turn_routes
from controller.routes.vote_import import add_vote_import_route
from controller.routes.voters import add_invitation_routes, add_join_route
from controller.routes.votes import add_vote_export_route, add_vote_route
from controller.routes.workers import add_internal_worker_routes, add_pools_route, add_worker_list_route
from controller.votes.recent_votes import RecentVotes
from controller.workers.pools import Pools
from controller.workers.worker_tokens import WorkerTokens
from service_kit.bodies import Bodies
from service_kit.docs_page import add_api_docs
from service_kit.openai.routes import add_openai_routes
from service_kit.route_docs import Access
from wire.voters import VoterCookies


def add_routes(
    app: FastAPI,
    settings: Settings,
    bodies: Bodies,
    base: Base,
    workers: WorkerParts,
    battles: BattleParts,
    chats: ChatParts,
) -> None:
    """Add every route of the controller, each behind the guard of those who may use it."""
    addresses = Addresses(settings.trusted_proxies, settings.proxy_token.get_secret_value())
    guard = Guard(
        worker_token=settings.worker_token.get_secret_value(),
        admin_token=settings.admin_token.get_secret_value(),
        api_keys=settings.api_keys,
        addresses=addresses,
        metrics=base.metrics,
        admin_users=settings.admin_users,
    )
    open_, user, worker, admin = (guard.router(access) for access in ("open", "user", "worker", "admin"))
    cookies = VoterCookies(_cookie_secret(settings))
    invitations = Invitations(base.store, base.keys, cookies)
    captcha = None
    if settings.captcha_verify_url:
        captcha = Captcha(settings.captcha_verify_url, settings.captcha_secret.get_secret_value(), settings.ca_file)
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
    add_health_routes(open_, base.store, base.background, workers.table, addresses, settings.processes_file)
    runners = (battles.runner, chats.runner)
    add_metrics_route(open_ if settings.public_metrics else admin, base.metrics, workers.table, runners)
    arena = ArenaBackend(
        addresses,
        limits,
        base.salts,
        workers.table,
        workers.dispatcher,
        workers.relay,
        identities,
        terms,
        WorkerTokens(workers.http, workers.table),
    )
    add_openai_routes(user, bodies, arena)
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
    add_trail_route(admin, base.trails, battles.store, chats.store)
    add_served_model_routes(admin, bodies, workers.served, base.actions, addresses)
    add_internal_worker_routes(worker, bodies, workers.registry, workers.joining, addresses)
    for router in (open_, user, worker, admin):
        app.include_router(router)
    routers: tuple[tuple[Access, APIRouter], ...] = (
        ("open", open_),
        ("user", user),
        ("worker", worker),
        ("admin", admin),
    )
    about = replace(CONTROLLER_DOC, server=settings.root_path or CONTROLLER_DOC.server)
    add_api_docs(app, about, routers, is_served=settings.api_docs)


def _cookie_secret(settings: Settings) -> str:
    """What the key of voters' cookies is derived from: the proxy token, which web UIs have too. Without one no web UI
    makes cookies, and the controllers take what all of them have."""
    secrets = (settings.proxy_token, settings.voter_key, settings.admin_token)
    return next(secret.get_secret_value() for secret in secrets if secret.get_secret_value())
