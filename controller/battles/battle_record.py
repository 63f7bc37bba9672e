"""A battle as values: the content of its hash in Redis, and the view that a client may see. No I/O.

A chat (controller/chats) is stored as a named battle with side a alone, so that the same code runs its turns.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from wire.battles import SIDES, Answer, BattleSampling, BattleState, BattleView, Mode, Outcome, Side, SideView, Turn
from wire.chat import ChatMessage, FinishReason, Usage
from wire.entry_ids import LOG_START, EntryId
from wire.errors import ErrorDetail
from wire.feedback import GiveFeedback
from wire.ids import BattleId, ShareId
from wire.votes import IdentityKind


class StoredAnswer(BaseModel):
    """One side's answer to one turn, in the JSON of a turn in Redis. Times count from the beginning of the turn, and go
    into the vote record only."""

    model_config = ConfigDict(frozen=True)

    text: str = ""
    thoughts: str = ""  #: what the model thought before
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    first_token_ms: float | None = None
    total_ms: float | None = None
    shown_ms: float | None = None  #: for how long the text grew before its visitor's eyes, where that differs
    error: ErrorDetail | None = None  #: why the side failed

    @property
    def counts(self) -> bool:
        """Whether a vote may be based on it: a model that was stopped before its first word has not answered."""
        return self.finish_reason in ("stop", "length") or (self.finish_reason == "abort" and self.text != "")


class StoredTurn(BaseModel):
    """One message and its two answers, in the JSON of the battle's field `turn:<number>`. In a chat `a` answers."""

    model_config = ConfigDict(frozen=True)

    content: str
    model: str | None = None  #: in a chat the model that was asked; a battle has the same two in all turns
    a: StoredAnswer = StoredAnswer()
    b: StoredAnswer = StoredAnswer()

    def answer(self, side: Side) -> StoredAnswer:
        """The answer of one side."""
        return self.a if side == "a" else self.b

    @property
    def is_votable(self) -> bool:
        """Whether both answers can be compared."""
        return self.a.counts and self.b.counts

    @property
    def has_failed(self) -> bool:
        """Whether a side could not answer. Such a turn is shown, and counts for nothing: it may be answered again."""
        return self.a.error is not None or self.b.error is not None


@dataclass(frozen=True)
class StoredSide:
    """The model of one side, in the JSON of the battle's field `side:<a or b>`."""

    model: str
    revision: str
    worker_id: str | None  #: the worker that answered the last turn and has the conversation in its prefix cache


@dataclass(frozen=True)
class Owner:
    """The visitor who began a battle, in hashes (voters.py). Only they may vote on it."""

    voter: str
    day: str  #: of the key of the hashes of addresses
    kind: IdentityKind  #: how `voter` is known
    address: str  #: of the address that began the battle
    offered: str | None  #: of the cookie that the visitor was given when the battle began
    network: str | None  #: of the network of the address
    cohort: str | None = None  #: as in the invitation; this is no hash

    def fields(self) -> dict[str, str]:
        """The fields of the hash that say so."""
        fields = {
            "voter": self.voter,
            "voter_day": self.day,
            "voter_kind": self.kind,
            "voter_address": self.address,
            "voter_offered": self.offered,
            "voter_network": self.network,
            "voter_cohort": self.cohort,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Battle:
    """One battle at one moment."""

    battle_id: BattleId
    mode: Mode
    state: BattleState
    owner: Owner
    sides: dict[Side, StoredSide]
    probability: float | None
    sampling: BattleSampling
    turns: tuple[StoredTurn, ...]
    run: int  #: number of turns and regenerations begun; scripts refuse changes based on an older run
    run_from: EntryId  #: id of the last event before the current run
    request_keys: dict[int, str]  #: by turn: the Idempotency-Key of the request that began it, if it had one
    prompt_key: str | None
    redraws: int
    identity_revealed: bool
    error: ErrorDetail | None
    outcome: Outcome | None
    vote_id: str | None
    flags: tuple[str, ...]  #: why the vote is not rated
    since_answers_ms: float | None  #: from the end of the last turn to now; None if it is not known
    began_s: float = 0.0  #: when it was created
    share_id: ShareId | None = None  #: of the link that shows it to others
    feedback: GiveFeedback | None = None  #: what the voter has added to the vote last
    num_feedback: int = 0  #: additions so far
    system_prompt: str = ""  #: of a chat

    @property
    def is_votable(self) -> bool:
        """Whether it can ever be voted on: there is nothing to compare in a chat."""
        return len(self.sides) > 1

    @property
    def names_are_known(self) -> bool:
        """Whether a client may see the models."""
        return self.mode == "named" or self.state == "voted"

    def begun_by(self, key: str) -> int | None:
        """Number of the turn that the request with this Idempotency-Key began."""
        return next((number for number, known in self.request_keys.items() if known == key), None)

    @property
    def may_redraw(self) -> bool:
        """Whether a side may get another model: only once, and only in the first turn of an anonymous battle."""
        return self.mode == "anonymous" and self.redraws == 0 and not self.answered_turns

    @property
    def answered_turns(self) -> tuple[StoredTurn, ...]:
        """The turns that did not fail: the conversation as the models know it, and what a vote is about."""
        return tuple(turn for turn in self.turns if not turn.has_failed)

    def history(self, side: Side, num_turns: int) -> tuple[ChatMessage, ...]:
        """The first `num_turns` turns, except those that failed, as chat messages with the answers of `side`. Thoughts
        of another model than the one that is asked now are left out."""
        messages = [ChatMessage(role="system", content=self.system_prompt)] if self.system_prompt else []
        for turn in self.turns[:num_turns]:
            if turn.has_failed:
                continue
            messages.append(ChatMessage(role="user", content=turn.content))
            answer = turn.answer(side)
            is_own = turn.model in (None, self.sides[side].model)
            thoughts = answer.thoughts if is_own and answer.thoughts else None
            messages.append(ChatMessage(role="assistant", content=answer.text, reasoning_content=thoughts))
        return tuple(messages)

    def view(self, max_turns: int) -> BattleView:
        """What a client may see: names, token counts and thoughts only once the models are known."""
        known = self.names_are_known
        return BattleView(
            id=self.battle_id,
            mode=self.mode,
            state=self.state,
            a=SideView(model=self.sides["a"].model if known else None),
            b=SideView(model=self.sides["b"].model if known else None),
            turns=tuple(_turn_view(number, turn, known) for number, turn in enumerate(self.turns, start=1)),
            outcome=self.outcome,
            error=self.error,
            identity_revealed=self.identity_revealed,
            flags=self.flags,
            max_turns=max_turns,
        )


def parse_battle(battle_id: BattleId, fields: dict[str, str], now_ms: int) -> Battle:
    """A battle from its hash. `now_ms` is the store's time, which decides whether the battle has expired."""
    state = fields["state"]
    if state in ("open", "answered") and int(fields["expires_ms"]) < now_ms:
        state = "expired"
    num_turns = int(fields["turn"])
    error = fields.get("error")
    values: dict[str, Any] = {"mode": fields["mode"], "state": state, "outcome": fields.get("outcome")}
    return Battle(
        battle_id=battle_id,
        owner=_parse_owner(fields),
        sides={side: _parse_side(side, fields) for side in SIDES if f"side:{side}" in fields},
        probability=float(fields["probability"]) if fields.get("probability") else None,
        sampling=BattleSampling.model_validate_json(fields["sampling"]),
        turns=tuple(StoredTurn.model_validate_json(fields[f"turn:{number}"]) for number in range(1, num_turns + 1)),
        run=int(fields["run"]),
        run_from=EntryId(fields.get("run_from", LOG_START)),
        request_keys={n: key for n in range(1, num_turns + 1) if (key := fields.get(f"request:{n}"))},
        prompt_key=fields.get("prompt"),
        redraws=int(fields.get("redraws", "0")),
        identity_revealed=fields.get("identity") == "1",
        error=ErrorDetail.model_validate_json(error) if error else None,
        vote_id=fields.get("vote_id"),
        flags=tuple(flag for flag in fields.get("flags", "").split(",") if flag),
        began_s=int(fields.get("created_ms", 0)) / 1000,
        share_id=ShareId.parse(fields.get("share")),
        feedback=GiveFeedback.model_validate_json(fields["feedback"]) if "feedback" in fields else None,
        num_feedback=int(fields.get("num_feedback", "0")),
        system_prompt=fields.get("system", ""),
        since_answers_ms=max(0, now_ms - int(fields["ended_ms"])) if "ended_ms" in fields else None,
        **values,
    )


def parse_battle_before_turn(battle_id: BattleId, fields: dict[str, str], now_ms: int) -> Battle:
    """A battle as it was before its running turn, from its hash now. Models drawn since then are the new ones."""
    battle = parse_battle(battle_id, fields, now_ms)
    replaced = fields.get("undo")  # the turn that is being answered again
    last = (StoredTurn.model_validate_json(replaced),) if replaced else ()
    return replace(battle, turns=battle.turns[:-1] + last)


def side_fields(side: Side, stored: StoredSide) -> dict[str, str]:
    """The fields of the hash that say which model plays `side`."""
    return {
        f"side:{side}": json.dumps({"model": stored.model, "revision": stored.revision, "worker_id": stored.worker_id})
    }


def _parse_side(side: Side, fields: dict[str, str]) -> StoredSide:
    return StoredSide(**json.loads(fields[f"side:{side}"]))


def _parse_owner(fields: dict[str, str]) -> Owner:
    """A battle of an earlier release, or one that a journal brought back, has the first two fields only."""
    kind: Any = fields.get("voter_kind", "address")
    return Owner(
        voter=fields["voter"],
        day=fields["voter_day"],
        kind=kind,
        address=fields.get("voter_address", fields["voter"]),
        offered=fields.get("voter_offered"),
        network=fields.get("voter_network"),
        cohort=fields.get("voter_cohort"),
    )


def _turn_view(number: int, turn: StoredTurn, known: bool) -> Turn:
    return Turn(number=number, content=turn.content, a=answer_view(turn.a, known), b=answer_view(turn.b, known))


def answer_view(answer: StoredAnswer, known: bool) -> Answer:
    """What a client may see of an answer; `known`: whether the models are."""
    return Answer(
        text=answer.text,
        thoughts=answer.thoughts if known else "",
        finish_reason=answer.finish_reason,
        usage=answer.usage if known else None,
        error=answer.error,
    )
