"""What an administrator sees and sets at the fake controller, and what visitors get of it."""

import hashlib
import itertools
import time
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from wire.admin import (
    Action,
    ActionList,
    ActionName,
    AdminModel,
    AdminView,
    AdminVote,
    AdminVotes,
    AdminWorker,
    CreateNotice,
    DrainWorker,
    FailureCount,
    FailuresView,
    ModelSwitch,
    RateInForce,
    SetModel,
    SetTerms,
    TermsInForce,
)
from wire.errors import ApiError, ErrorCode
from wire.ids import NoticeId
from wire.judgements import CastJudgement
from wire.notices import AcceptTerms, Notice, NoticeList, TermsView
from wire.served_models import AdminActOnModel, AdminAddModel, AdminServed, ServedModel, WorkerModels

ADMIN_TOKEN = "admin-token-of-the-fake"


def is_admin(request: Request) -> bool:
    return request.headers.get("authorization") == f"Bearer {ADMIN_TOKEN}"


@dataclass
class FakeAdmin:
    """The state, with attributes that a test may change."""

    switches: dict[str, ModelSwitch] = field(default_factory=dict)
    drained: set[str] = field(default_factory=set)
    notices: list[Notice] = field(default_factory=list)
    terms_text: str = ""
    accepted: set[tuple[str, str]] = field(default_factory=set)  #: voter's cookie and version
    actions: list[Action] = field(default_factory=list)
    voided: set[str] = field(default_factory=set)  #: battles
    users: tuple[str, ...] = ()  #: administrators whose name a proxy sends
    residences: dict[str, Any] = field(default_factory=dict)  #: of models that were added, slept or woke
    ids: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def version(self) -> str | None:
        return hashlib.sha256(self.terms_text.encode()).hexdigest()[:12] if self.terms_text else None

    def has_accepted(self, request: Request) -> bool:
        return self.version is None or (_voter(request), self.version) in self.accepted

    def require_terms(self, request: Request) -> None:
        if not self.has_accepted(request):
            raise ApiError(ErrorCode.TERMS_NOT_ACCEPTED, "Accept the terms first.")

    def note(self, action: ActionName, subject: str, values: dict[str, Any], reason: str | None) -> None:
        number = next(self.ids)
        entry = Action(
            id=f"{number}-0",
            time=time.time(),
            by="admin token",
            address="203.0.113.7",
            action=action,
            subject=subject,
            values=values,
            reason=reason or "",
        )
        self.actions.insert(0, entry)

    def served(self, models: tuple[str, ...]) -> AdminServed:
        rows = tuple(
            ServedModel(
                name=name,
                source=f"/models/{name}",
                residence=self.residences.get(name, "resident"),
                memory_bytes=270 << 20,
                wanted_bytes=270 << 20,
                running=0,
                waiting=0,
                idle_s=3.0,
            )
            for name in (*models, *(name for name in self.residences if name not in models))
        )
        urls = ("http://127.0.0.1:8200", "http://127.0.0.1:8201")
        return AdminServed(
            processes=(
                WorkerModels(models=rows, memory_bytes=1 << 30, memory_limit=40 << 30, url=urls[0], worker_ids={}),
                WorkerModels(models=(), memory_bytes=0, url=urls[1], worker_ids={}),
            ),
            silent=("http://127.0.0.1:8209",),
        )

    def view(self, models: tuple[str, ...]) -> AdminView:
        switches = {model: self.switches.get(model, ModelSwitch()) for model in models}
        terms = None
        if self.version is not None:
            terms = TermsInForce(version=self.version, text=self.terms_text, source="admin")
        return AdminView(
            actor="admin token",
            models=tuple(
                AdminModel(
                    model=model,
                    is_on=switch.is_on,
                    weight=switch.weight,
                    is_retired=False,
                    ready_workers=1,
                    workers=1,
                )
                for model, switch in switches.items()
            ),
            workers=tuple(
                AdminWorker(
                    worker_id=f"w-{number}",
                    model=model,
                    state="draining" if f"w-{number}" in self.drained else "ready",
                    is_drained=f"w-{number}" in self.drained,
                    in_flight=number,
                    last_heartbeat_age_s=0.4,
                )
                for number, model in enumerate(models)
            ),
            notices=tuple(self.notices),
            terms=terms,
            rates=(RateInForce(kind="battle", per_minute=30, burst=20),),
        )


def _voter(request: Request) -> str:
    """The cookie of the visitor, without the time at which it was made."""
    return ".".join(request.headers.get("cookie", "").split(".")[:2])


def add_fake_admin(app: FastAPI, admin: FakeAdmin, models: tuple[str, ...]) -> None:
    """Add the routes of notices and terms, and those of the administrator."""

    @app.get("/arena/notices")
    async def notices() -> NoticeList:
        return NoticeList(notices=tuple(notice for notice in admin.notices if notice.is_shown(time.time())))

    @app.get("/arena/terms")
    async def terms(request: Request) -> TermsView:
        return TermsView(version=admin.version, text=admin.terms_text, is_accepted=admin.has_accepted(request))

    @app.post("/arena/terms")
    async def accept(request: Request, body: AcceptTerms) -> TermsView:
        if body.version != admin.version:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Not in force.", param="version")
        admin.accepted.add((_voter(request), body.version))
        return TermsView(version=admin.version, text=admin.terms_text)

    _add_views(app, admin, models)
    _add_changes(app, admin, models)


def _check(request: Request, admin: FakeAdmin) -> None:
    if not is_admin(request) and request.headers.get("x-forwarded-user") not in admin.users:
        raise ApiError(ErrorCode.UNAUTHORIZED, "This credential is not known.")


def _add_views(app: FastAPI, admin: FakeAdmin, models: tuple[str, ...]) -> None:
    @app.get("/arena/admin")
    async def view(request: Request) -> AdminView:
        _check(request, admin)
        return admin.view(models)

    @app.get("/arena/admin/votes")
    async def votes(request: Request, before: str | None = None, count: int = 50) -> AdminVotes:
        _check(request, admin)
        listed = [
            AdminVote(
                vote_id=f"{number}-0",
                battle_id=f"battle-{number}",
                time=1_790_000_000.0 + number,
                outcome="both_bad",
                model_a=models[0],
                model_b="a/model-with-a-very-long-name-that-is-hard-to-place",
                voter=f"{number:024x}",
                cohort=None,
                flags=("withdrawn",) if f"battle-{number}" in admin.voided else (),
            )
            for number in range(60, 0, -1)
            if before is None or number < int(before.partition("-")[0])
        ]
        page = listed[:count]
        return AdminVotes(votes=tuple(page), next=page[-1].vote_id if len(listed) > count else None)

    @app.get("/arena/admin/failures")
    async def failures(request: Request) -> FailuresView:
        _check(request, admin)
        count = FailureCount(cause="worker vanished", model=models[0], worker_id="w-0", count=3, last=1_790_000_000.0)
        return FailuresView(failures=(count,), rate_limited={"vote": 12}, since=1_789_900_000.0)

    @app.get("/arena/admin/actions")
    async def actions(request: Request, count: int = 50) -> ActionList:
        _check(request, admin)
        return ActionList(actions=tuple(admin.actions[:count]), next=None)

    @app.get("/arena/admin/served")
    async def served(request: Request) -> AdminServed:
        _check(request, admin)
        return admin.served(models)

    @app.get("/arena/admin/actions/export")
    async def export(request: Request) -> PlainTextResponse:
        _check(request, admin)
        return PlainTextResponse("".join(f"{action.model_dump_json()}\n" for action in reversed(admin.actions)))


def _add_changes(app: FastAPI, admin: FakeAdmin, models: tuple[str, ...]) -> None:
    @app.post("/arena/admin/served", status_code=202)
    async def add_served(request: Request, body: AdminAddModel) -> ServedModel:
        _check(request, admin)
        admin.note("add_model", body.name, {"source": body.source}, body.reason)
        admin.residences[body.name] = "resident"
        return admin.served(models).processes[0].models[-1]

    @app.post("/arena/admin/served/act")
    async def act_served(request: Request, body: AdminActOnModel) -> AdminServed:
        _check(request, admin)
        admin.note(f"{body.action}_model", body.name, {}, body.reason)  # type: ignore[arg-type]
        admin.residences[body.name] = "asleep" if body.action == "sleep" else "resident"
        return admin.served(models)

    @app.put("/arena/admin/models/{model:path}")
    async def set_model(request: Request, model: str, body: SetModel) -> ModelSwitch:
        _check(request, admin)
        admin.switches[model] = ModelSwitch(is_on=body.is_on, weight=body.weight)
        admin.note("set_model", model, body.model_dump(exclude={"reason"}), body.reason)
        return admin.switches[model]

    @app.post("/arena/admin/workers/{worker_id}/drain")
    async def drain(request: Request, worker_id: str, body: DrainWorker) -> dict[str, str]:
        _check(request, admin)
        (admin.drained.add if body.is_drained else admin.drained.discard)(worker_id)
        admin.note("drain_worker" if body.is_drained else "resume_worker", worker_id, {}, body.reason)
        return {}

    @app.post("/arena/admin/notices", status_code=201)
    async def add_notice(request: Request, body: CreateNotice) -> Notice:
        _check(request, admin)
        values = body.model_dump(include={"text", "severity", "ends"})
        starts = time.time() if body.starts is None else body.starts
        notice = Notice(id=NoticeId(f"n{next(admin.ids)}"), starts=starts, **values)
        admin.notices.append(notice)
        admin.note("add_notice", notice.id, values, body.reason)
        return notice

    @app.delete("/arena/admin/notices/{notice_id}")
    async def remove_notice(request: Request, notice_id: str, reason: str = "") -> dict[str, str]:
        _check(request, admin)
        if notice_id not in {notice.id for notice in admin.notices}:
            raise ApiError(ErrorCode.NOTICE_NOT_FOUND, "There is no such notice.")
        admin.notices = [notice for notice in admin.notices if notice.id != notice_id]
        admin.note("remove_notice", notice_id, {}, reason)
        return {}

    @app.put("/arena/admin/terms")
    async def set_terms(request: Request, body: SetTerms) -> AdminView:
        _check(request, admin)
        admin.terms_text = body.text.strip()
        admin.note("set_terms", "terms", {"version": admin.version}, body.reason)
        return admin.view(models)

    @app.post("/arena/integrity/judgements")
    async def judge(request: Request, body: CastJudgement) -> dict[str, str]:
        _check(request, admin)
        (admin.voided.update if body.action == "flag" else admin.voided.difference_update)(body.battle_ids)
        admin.note("judge_votes", ", ".join(body.battle_ids) or str(body.voter), {}, body.note)
        return {}
