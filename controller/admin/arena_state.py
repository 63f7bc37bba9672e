"""What administrators have set: models on and off with their weights in the draw, drained workers, notices, terms.

Runs on the event loop. Every controller reads it every two seconds, the one that changes it at once.
"""

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from pydantic import ValidationError

from controller.admin.action_log import ActionLog, Actor
from controller.store.keys import Keys
from controller.store.store import Store
from service_kit.logs import log_event
from wire.admin import ActionName, CreateNotice, ModelSwitch, SetModel, SetTerms, TermsInForce
from wire.errors import ApiError, ErrorCode
from wire.ids import NoticeId, WorkerId
from wire.notices import Notice

REFRESH_S: Final = 2.0
MAX_NOTICES: Final = 50
_NO_SWITCH: Final = ModelSwitch()
_UNDRAWN: Final = ModelSwitch(weight=0.0)
_URGENCY: Final = {"critical": 0, "warning": 1, "info": 2}

_logger = logging.getLogger(__name__)


class ArenaState:
    """Owns the key `admin_state`, which it changes through the log of actions. `file_terms`: the terms where the
    administrator has set none; `undrawn`: models whose weight is 0 until they are given another. Methods that change
    something raise ApiError STORE_UNAVAILABLE."""

    def __init__(
        self, store: Store, keys: Keys, actions: ActionLog, *, file_terms: str = "", undrawn: Sequence[str] = ()
    ) -> None:
        self._store = store
        self._keys = keys
        self._actions = actions
        self._undrawn = frozenset(undrawn)
        self._stored: dict[str, str] = {}
        self._switches: dict[str, ModelSwitch] = {}
        self._drained: frozenset[str] = frozenset()
        self._notices: tuple[Notice, ...] = ()
        self._file_terms = _terms(file_terms, "file")
        self._terms: TermsInForce | None = self._file_terms

    @property
    def switches(self) -> Mapping[str, ModelSwitch]:
        """The models that were ever switched or weighed, by name."""
        return self._switches

    @property
    def drained(self) -> frozenset[str]:
        """Ids of the drained workers."""
        return self._drained

    @property
    def notices(self) -> tuple[Notice, ...]:
        """All notices, the most severe first, then the newest."""
        return self._notices

    @property
    def terms(self) -> TermsInForce | None:
        """The terms that visitors accept; None: there are none."""
        return self._terms

    def is_off(self, model: str) -> bool:
        """Whether the model takes nothing new."""
        return not self._switch(model).is_on

    def is_drained(self, worker_id: str) -> bool:
        """Whether the worker gets no new work."""
        return worker_id in self._drained

    def weight(self, model: str) -> float:
        """The model's weight in the draw; 0: it is not drawn."""
        return self._switch(model).weight

    def _switch(self, model: str) -> ModelSwitch:
        return self._switches.get(model) or self._unset(model)

    def _unset(self, model: str) -> ModelSwitch:
        """What holds for a model that was never switched."""
        return _UNDRAWN if model in self._undrawn else _NO_SWITCH

    async def set_model(self, model: str, wanted: SetModel, actor: Actor) -> ModelSwitch:
        """Switch a model on or off, and weigh it."""
        switch = ModelSwitch(is_on=wanted.is_on, weight=wanted.weight)
        values = switch.model_dump()
        stored = "" if switch == self._unset(model) else switch.model_dump_json()
        await self._actions.append(actor, "set_model", model, values, wanted.reason, sets=(f"model:{model}", stored))
        await self.refresh()
        return switch

    async def drain_worker(self, worker_id: WorkerId, is_drained: bool, reason: str, actor: Actor) -> None:
        """Give a worker no new work, or work again."""
        action: ActionName = "drain_worker" if is_drained else "resume_worker"
        stored = "{}" if is_drained else ""
        await self._actions.append(actor, action, worker_id, None, reason, sets=(f"worker:{worker_id}", stored))
        await self.refresh()

    async def add_notice(self, notice_id: NoticeId, wanted: CreateNotice, now: float, actor: Actor) -> Notice:
        """Show a notice. Raises ApiError INVALID_REQUEST beyond MAX_NOTICES of them."""
        await self.refresh()
        if len(self._notices) >= MAX_NOTICES:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"There are {MAX_NOTICES} notices; remove one first.")
        values = wanted.model_dump(include={"text", "severity", "ends"})
        notice = Notice(id=notice_id, starts=now if wanted.starts is None else wanted.starts, **values)
        stored = notice.model_dump_json()
        values = notice.model_dump(exclude={"id"})
        await self._actions.append(
            actor, "add_notice", notice_id, values, wanted.reason, sets=(f"notice:{notice_id}", stored)
        )
        await self.refresh()
        return notice

    async def remove_notice(self, notice_id: NoticeId, reason: str, actor: Actor) -> Notice:
        """Show a notice no more. Raises ApiError NOTICE_NOT_FOUND."""
        await self.refresh()
        found = next((notice for notice in self._notices if notice.id == notice_id), None)
        if found is None:
            raise ApiError(ErrorCode.NOTICE_NOT_FOUND, "There is no such notice, or it was removed.")
        values = {"text": found.text}
        await self._actions.append(actor, "remove_notice", notice_id, values, reason, sets=(f"notice:{notice_id}", ""))
        await self.refresh()
        return found

    async def set_terms(self, wanted: SetTerms, actor: Actor) -> TermsInForce | None:
        """Put other terms in force; an empty text ends them, also those of the file."""
        text = wanted.text.strip()
        terms = _terms(text, "admin")
        values = {"version": terms.version if terms else None, "text": text}
        stored = json.dumps({"text": text})
        await self._actions.append(actor, "set_terms", "terms", values, wanted.reason, sets=("terms", stored))
        await self.refresh()
        return self._terms

    async def refresh(self) -> None:
        """Read the state. Raises ApiError STORE_UNAVAILABLE, and keeps the old one then."""
        with self._store.guard("read_admin_state"):
            stored = cast(dict[str, str], await self._store.redis.hgetall(self._keys.admin_state))
        if stored == self._stored:
            return
        self._switches = {name: found for name, found in _read(stored, "model:", ModelSwitch.model_validate_json)}
        self._drained = frozenset(name.removeprefix("worker:") for name in stored if name.startswith("worker:"))
        notices = [found for _, found in _read(stored, "notice:", Notice.model_validate_json)]
        self._notices = tuple(sorted(notices, key=lambda notice: (_URGENCY[notice.severity], -notice.starts)))
        written = dict(_read(stored, "terms", json.loads))
        self._terms = _terms(written[""]["text"], "admin") if "" in written else self._file_terms
        self._stored = stored

    async def refresh_round(self) -> None:
        """`refresh` as background work: a store that is away is no error."""
        with contextlib.suppress(ApiError):
            await self.refresh()


def _terms(text: str, source: Any) -> TermsInForce | None:
    """The terms of this text, versioned by its digest; None for an empty one."""
    text = text.strip()
    if not text:
        return None
    return TermsInForce(version=hashlib.sha256(text.encode()).hexdigest()[:12], text=text, source=source)


def _read(stored: Mapping[str, str], prefix: str, parse: Callable[[str], Any]) -> list[tuple[str, Any]]:
    """The rest of the name and the value of every field that begins with `prefix`; damaged ones are left out."""
    found = []
    for name, text in stored.items():
        if name.startswith(prefix):
            try:
                found.append((name.removeprefix(prefix), parse(text)))
            except (ValidationError, ValueError):
                log_event(_logger, "admin_state_damaged", logging.ERROR, field=name)
    return found
