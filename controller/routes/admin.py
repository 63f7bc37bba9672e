"""What the administrator sees and sets: models, workers, notices, terms, votes, failures, and the log of actions.

Judgements, invitations and model cards have routes of their own; those are logged as actions, too.
"""

import secrets
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response, StreamingResponse

from controller.access.addresses import Addresses
from controller.access.rate_limits import Rates
from controller.admin.action_log import ActionLog, actor_of
from controller.admin.arena_state import ArenaState
from controller.admin.failure_log import FailureLog
from controller.routes.path_ids import NOTICE_ID, WORKER_ID, NoticeInPath, WorkerInPath
from controller.routes.replies import json_reply
from controller.routes.votes import NDJSON, checked_entry_id
from controller.votes.boards.model_cards import ModelCards
from controller.votes.recent_votes import RecentVotes
from controller.workers.registry import WorkerRegistry
from controller.workers.routing_table import RoutingTable
from service_kit.bodies import Bodies
from service_kit.route_docs import Answer, documented
from wire.admin import (
    Action,
    ActionList,
    AdminModel,
    AdminView,
    AdminVotes,
    AdminWorker,
    CreateNotice,
    DrainWorker,
    FailuresView,
    ModelSwitch,
    SetModel,
    SetTerms,
)
from wire.entry_ids import LOG_START, EntryId
from wire.errors import ApiError, ErrorCode
from wire.ids import NoticeId
from wire.notices import Notice

MAX_ROWS = 200

_Count = Annotated[int, Query(ge=1, le=MAX_ROWS)]
_PAGE = {"before": "an id: the page before it; default: the newest", "count": "rows of the page"}


@dataclass(frozen=True)
class AdminParts:
    """What the routes read and change."""

    addresses: Addresses
    state: ArenaState
    actions: ActionLog
    failures: FailureLog
    rates: Rates
    table: RoutingTable
    registry: WorkerRegistry
    cards: ModelCards
    votes: RecentVotes


def add_admin_routes(router: APIRouter, bodies: Bodies, parts: AdminParts) -> None:
    """Add all of them; `router` is the admin's."""
    _add_view_routes(router, parts)
    _add_service_routes(router, bodies, parts)
    _add_visitor_routes(router, bodies, parts)


def _add_view_routes(router: APIRouter, parts: AdminParts) -> None:
    @router.get("/arena/admin")
    @documented("Administration", "What is in force", answer=AdminView, errors=(ErrorCode.STORE_UNAVAILABLE,))
    async def view(request: Request) -> Response:
        """Models with their switches, workers, notices, terms and rate limits."""
        await parts.state.refresh()
        return json_reply(_view(request, parts))

    @router.get("/arena/admin/votes")
    @documented(
        "Administration",
        "The newest votes with their flags",
        parameters=_PAGE,
        answer=AdminVotes,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def votes(before: str | None = None, count: _Count = 50) -> Response:
        """`POST /arena/integrity/judgements` takes votes out of the ratings, or back in."""
        return json_reply(await parts.votes.page(_position(before, "before"), count))

    @router.get("/arena/admin/failures")
    @documented(
        "Administration", "Failures of the last day", answer=FailuresView, errors=(ErrorCode.STORE_UNAVAILABLE,)
    )
    async def failures() -> Response:
        """By cause, model and worker: attempts at workers that failed, and requests that were answered with an error of
        the service. Kinds beyond 500 in an hour are not counted."""
        return json_reply(await parts.failures.view())

    @router.get("/arena/admin/actions")
    @documented(
        "Administration",
        "The newest actions of administrators",
        parameters=_PAGE,
        answer=ActionList,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def actions(before: str | None = None, count: _Count = 50) -> Response:
        """Who did what, when and why. The log is only appended to."""
        found = await parts.actions.newest(_position(before, "before"), count)
        return json_reply(ActionList(actions=tuple(found), next=found[-1].id if len(found) == count else None))

    @router.get("/arena/admin/actions/export")
    @documented(
        "Administration",
        "Export the log of actions",
        parameters={"after": "an id: the log after this action"},
        answer=Answer(lines=Action),
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def export(after: str = str(LOG_START)) -> Response:
        """One action per line, oldest first."""
        first = await parts.actions.read(checked_entry_id(after, "after"))
        return StreamingResponse(_lines(parts.actions, first), media_type=NDJSON)


def _add_service_routes(router: APIRouter, bodies: Bodies, parts: AdminParts) -> None:
    @router.put("/arena/admin/models/{model:path}")
    @documented(
        "Administration",
        "Switch a model on or off, and weigh it",
        parameters={"model": "name of the model; it may hold slashes"},
        request=SetModel,
        example={"is_on": True, "weight": 2.0, "reason": "new on the board"},
        answer=ModelSwitch,
        errors=(ErrorCode.MODEL_NOT_FOUND, ErrorCode.STORE_UNAVAILABLE),
    )
    async def set_model(request: Request, model: str) -> Response:
        """A model that is off begins no battle and answers no chat and no request of `/v1`; battles under way are
        finished with it. All controllers follow within two seconds."""
        wanted = await bodies.parse(request, SetModel)
        if model not in {row.model for row in _models(parts)}:
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, "There is no such model.", param="model")
        return json_reply(await parts.state.set_model(model, wanted, actor_of(request, parts.addresses)))

    @router.post("/arena/admin/workers/{worker_id}/drain")
    @documented(
        "Administration",
        "Drain a worker, or let it work again",
        parameters=WORKER_ID,
        request=DrainWorker,
        example={"is_drained": True, "reason": "new GPU driver"},
        answer=AdminWorker,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def drain(request: Request, worker_id: WorkerInPath) -> Response:
        """A drained worker finishes its answers and gets no new ones, also after a restart. Its `in_flight` is 0 when
        it may be stopped."""
        wanted = await bodies.parse(request, DrainWorker)
        actor = actor_of(request, parts.addresses)
        await parts.state.drain_worker(worker_id, wanted.is_drained, wanted.reason, actor)
        known = {worker.worker_id: worker for worker in _workers(parts)}
        return json_reply(known.get(worker_id) or AdminWorker(worker_id=worker_id, is_drained=wanted.is_drained))


def _add_visitor_routes(router: APIRouter, bodies: Bodies, parts: AdminParts) -> None:
    @router.post("/arena/admin/notices")
    @documented(
        "Administration",
        "Show visitors a notice",
        request=CreateNotice,
        example={"text": "The arena is being updated tonight at 20:00 UTC.", "severity": "warning"},
        answer=Answer(json=Notice, status=201),
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def add_notice(request: Request) -> Response:
        """On every page of the web UI, within a minute."""
        wanted = await bodies.parse(request, CreateNotice)
        notice_id, now = NoticeId(secrets.token_hex(6)), parts.table.store_time()
        notice = await parts.state.add_notice(notice_id, wanted, now, actor_of(request, parts.addresses))
        return json_reply(notice, status=201)

    @router.delete("/arena/admin/notices/{notice_id}")
    @documented(
        "Administration",
        "Remove a notice",
        parameters={**NOTICE_ID, "reason": "why; it is kept in the log of actions"},
        answer=Notice,
        errors=(ErrorCode.NOTICE_NOT_FOUND, ErrorCode.STORE_UNAVAILABLE),
    )
    async def remove_notice(
        request: Request, notice_id: NoticeInPath, reason: Annotated[str, Query(max_length=500)] = ""
    ) -> Response:
        """Pages that are open stop showing it within a minute."""
        return json_reply(await parts.state.remove_notice(notice_id, reason, actor_of(request, parts.addresses)))

    @router.put("/arena/admin/terms")
    @documented(
        "Administration",
        "Set the terms of the arena",
        request=SetTerms,
        example={"text": "Be kind, and write nothing that must stay private.", "reason": "first version"},
        answer=AdminView,
        errors=(ErrorCode.STORE_UNAVAILABLE,),
    )
    async def set_terms(request: Request) -> Response:
        """Every visitor accepts them before the next battle or chat. They go before those of `AGON_TERMS_FILE`; an
        empty text ends the gate. Answers with what is in force."""
        await parts.state.set_terms(await bodies.parse(request, SetTerms), actor_of(request, parts.addresses))
        return json_reply(_view(request, parts))


def _view(request: Request, parts: AdminParts) -> AdminView:
    return AdminView(
        actor=actor_of(request, parts.addresses).name,
        models=_models(parts),
        workers=_workers(parts),
        notices=parts.state.notices,
        terms=parts.state.terms,
        rates=parts.rates.in_force(),
    )


def _models(parts: AdminParts) -> tuple[AdminModel, ...]:
    """Models with a worker, a card or a switch, by name."""
    workers = list(parts.table.live())
    serving = [worker.card.name for worker in workers]
    ready = [worker.card.name for worker in workers if worker.state == "ready"]
    names = {*serving, *parts.cards.cards, *parts.state.switches, *parts.table.snapshot.models}
    return tuple(
        AdminModel(
            model=name,
            is_on=not parts.state.is_off(name),
            weight=parts.state.weight(name),
            is_retired=parts.cards.is_retired(name),
            ready_workers=ready.count(name),
            workers=serving.count(name),
        )
        for name in sorted(names)
    )


def _workers(parts: AdminParts) -> tuple[AdminWorker, ...]:
    """Registered workers, then drained ones that are away."""
    views = parts.registry.views()
    registered = [
        AdminWorker(
            worker_id=view.worker_id,
            model=view.model,
            state=view.state,
            is_drained=parts.state.is_drained(view.worker_id),
            in_flight=view.in_flight or 0,
            last_heartbeat_age_s=view.last_heartbeat_age_s,
        )
        for view in views
    ]
    away = sorted(parts.state.drained - {view.worker_id for view in views})
    return (*registered, *(AdminWorker(worker_id=worker_id, is_drained=True) for worker_id in away))


def _position(text: str | None, param: str) -> EntryId | None:
    return None if text is None else checked_entry_id(text, param)


async def _lines(log: ActionLog, actions: list[Action]) -> AsyncGenerator[bytes, None]:
    while actions:
        for action in actions:
            yield action.model_dump_json().encode() + b"\n"
        actions = await log.read(EntryId(actions[-1].id))
