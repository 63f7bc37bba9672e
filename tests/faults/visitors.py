"""Visitors: asyncio clients that run battles as a careful program would, through any controller, and write a ledger.

A visitor repeats what may be repeated, resumes a cut stream at another controller, and sends a vote until it is
acknowledged or refused by name. The echo engine's answer is the message itself, so every text is known in advance: a
missing, doubled or foreign token shows.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

import aiohttp

from tests.faults.ledger import Ledger
from tests.faults.tally import Tally
from wire.battles import SIDES
from wire.errors import ErrorCode
from wire.sse import SseDecoder

_REQUEST_S = 20.0  #: an answer that takes longer is a hang
_SILENCE_S = 30.0  #: of a stream, which sends a keep-alive within 20 s
_SLOW_S = 15.0  #: a turn that takes longer is reported
_TURN_S = 90.0  #: time for a turn with all its repetitions
_VOTE_S = 90.0
_PAUSE_S = (0.02, 0.05, 0.1, 0.2, 0.4)
_CODES = frozenset(code.value for code in ErrorCode)
_LATER = frozenset({429, 503})

TurnState = Literal["answered", "aborted", "refused", "lost", "gave_up"]


class Unanswered(Exception):
    """The connection broke or was refused: whether the request had an effect is unknown."""


@dataclass(frozen=True)
class Reply:
    """Status and JSON of an answer."""

    status: int
    body: Any

    @property
    def code(self) -> str:
        """The error code; empty for success."""
        error = self.body.get("error") if isinstance(self.body, dict) else None
        return str(error.get("code")) if isinstance(error, dict) else ""


@dataclass
class Reading:
    """How far a visitor has read one turn, over all its connections."""

    content: str
    texts: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SIDES, ""))
    seqs: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    ends: dict[str, str] = field(default_factory=dict)  #: by side: finish reason or error code
    last_id: str | None = None
    state: str | None = None  #: of turn_finished
    turn: int = 0  #: of turn_finished
    is_kept: bool = True  #: of turn_finished: false for a turn that was refused
    num_cuts: int = 0
    attempts: list[str] = field(default_factory=list)  #: how each connection ended, for a report

    def report(self) -> str:
        """The attempts in few words: equal ones that follow each other are counted."""
        return ", ".join(f"{len(list(equal))} x {what}" for what, equal in groupby(self.attempts))


@dataclass(frozen=True)
class Site:
    """What visitors know of the arena. `num_faults` tells whether a controller was killed or stopped meanwhile;
    `forgets_battles`: the scenario makes the store lose battles."""

    urls: list[str]
    num_faults: Callable[[int], int]
    http: aiohttp.ClientSession
    forgets_battles: bool = False


class Visitor:
    """One client. `pace_s`: the longest pause between two battles."""

    def __init__(self, site: Site, ledger: Ledger, tally: Tally, rng: random.Random, *, pace_s: float = 0.2) -> None:
        self._site = site
        self._ledger = ledger
        self._tally = tally
        self._rng = rng
        self._pace_s = pace_s

    async def run(self, stop: asyncio.Event) -> None:
        """Battle after battle until `stop` is set."""
        while not stop.is_set():
            await self.battle()
            await asyncio.sleep(self._rng.uniform(0, self._pace_s))

    async def battle(self, *, num_words: int | None = None, at: int | None = None) -> bool:
        """One whole battle with its vote; True if the vote was acknowledged. `at`: only this controller is used."""
        started = time.monotonic()
        battle_id = await self._create(at)
        if battle_id is None:
            return False
        num_turns = 2 if num_words is None and self._rng.random() < 0.25 else 1
        for number in range(1, num_turns + 1):
            state = await self._turn(battle_id, number, words(self._rng, num_words), at)
            if number > 1 and state == "refused":  # the battle is as the turn before left it
                break
            if state != "answered":
                await self._after_failure(battle_id, state, number)
                return False
        is_voted = await self._vote(battle_id, at)
        if is_voted and self._tally.round == 0:
            self._tally.battle_s.append(time.monotonic() - started)
        return is_voted

    async def state_of(self, battle_id: str) -> str:
        """The state of a battle; `missing` if there is none."""
        view = await self._view(battle_id, None)
        if view is None:
            return "missing"
        last = view["turns"][-1] if view["turns"] else {side: {} for side in SIDES}
        has_failed = any(last[side].get("error") for side in SIDES)
        return "aborted" if has_failed and view["state"] == "answered" else str(view["state"])

    async def _create(self, at: int | None) -> str | None:
        for _, pause_s in self._until(_TURN_S):
            try:
                reply = await self._ask("POST", "/arena/battles", at, {"mode": "anonymous"})
            except Unanswered:
                await asyncio.sleep(pause_s)
                continue
            if reply.status == 201:
                self._tally.count("battles")
                return str(reply.body["id"])
            is_forgotten = reply.status == 404 and self._site.forgets_battles
            if reply.status not in _LATER and not is_forgotten:
                self._tally.break_promise("unexpected_refusals", f"create: {reply.status} {reply.code}")
                return None
            self._tally.count(f"create_{reply.code}")
            await asyncio.sleep(pause_s)
        self._tally.break_promise("never_recovered", f"no battle within {_TURN_S:.0f} s")
        return None

    async def _turn(self, battle_id: str, number: int, content: str, at: int | None) -> TurnState:
        reading = Reading(content)
        path = f"/arena/battles/{battle_id}"
        is_begun = False
        started = time.monotonic()
        for _, pause_s in self._until(_TURN_S):
            try:
                if not is_begun:
                    reply = await self._follow("POST", f"{path}/turns", at, reading, {"content": content})
                else:
                    reply = await self._follow("GET", f"{path}/stream", at, reading)
                reading.attempts.append("a cut stream" if reply is None else f"{reply.status} {reply.code}")
            except Unanswered:
                reply = None
                reading.attempts.append("no answer")
            if reading.state is not None:
                break
            if reply is not None and reply.status == 404:
                return self._vanished(battle_id)
            if reply is not None and reply.status == 409 and reply.code != ErrorCode.BATTLE_BUSY:
                return "refused"
            if reply is not None and reply.status not in (409, *_LATER):
                self._tally.break_promise("unexpected_refusals", f"turn: {reply.status} {reply.code}")
                return "refused"
            is_begun = is_begun or reading.num_cuts > 0
            if not is_begun and (reply is None or reply.code in ("store_unavailable", "battle_busy")):
                view = await self._view(battle_id, at)  # whether the turn began is unknown
                if view is None:
                    return self._vanished(battle_id)
                is_begun = len(view["turns"]) >= number
            await asyncio.sleep(pause_s)
        else:
            self._tally.break_promise(
                "silent_cuts", f"battle {battle_id}: no last event within {_TURN_S:.0f} s, {reading.report()}"
            )
            return "gave_up"
        if (took_s := time.monotonic() - started) > _SLOW_S:
            self._tally.count("turns_slow")
            print(f"battle {battle_id}, turn {number}: {took_s:.1f} s, {reading.report()}", file=sys.stderr)
        return self._judge(battle_id, number, reading)

    def _judge(self, battle_id: str, number: int, reading: Reading) -> TurnState:
        self._tally.count("turns")
        if reading.num_cuts:
            self._tally.count("turns_resumed")
        if reading.turn < number and self._site.forgets_battles:  # the store has lost this turn: that was the last one
            return "refused"
        for side, text in reading.texts.items():
            has_ended = reading.ends.get(side) in ("stop", "length")
            if has_ended and text != reading.content:
                self._tally.break_promise(
                    "wrong_tokens", f"battle {battle_id} side {side}: {_difference(text, reading.content)}"
                )
        has_failed = any(end in _CODES for end in reading.ends.values())
        match reading.state:
            case "answered" if has_failed:
                return "aborted" if reading.is_kept else "refused"
            case "answered":
                if any(reading.ends.get(side) != "stop" for side in SIDES):
                    self._tally.break_promise("silent_cuts", f"battle {battle_id} answered, sides {reading.ends}")
                return "answered"
            case "open" if number == 1 or self._site.forgets_battles:  # the store may have lost the first turn, too
                return "refused"
        self._tally.break_promise("silent_cuts", f"battle {battle_id} ended a turn in state {reading.state}")
        return "gave_up"

    async def _after_failure(self, battle_id: str, state: TurnState, number: int) -> None:
        """A vote on a battle without an answered turn must be refused; on earlier turns it may be cast."""
        self._tally.count(f"battles_{state}")
        if state not in ("aborted", "refused") or number > 1:
            return
        for _, pause_s in self._until(10):
            try:
                reply = await self._ask("POST", f"/arena/battles/{battle_id}/vote", None, {"outcome": "a"})
            except Unanswered:
                await asyncio.sleep(pause_s)
                continue
            if reply.status == 200:
                self._tally.break_promise("votes_on_broken_battles", f"battle {battle_id} ({state})")
            if reply.status not in _LATER:
                return
            await asyncio.sleep(pause_s)

    async def _vote(self, battle_id: str, at: int | None) -> bool:
        outcome = self._rng.choice(("a", "b", "tie", "both_bad"))
        await self._ledger.sent(battle_id, outcome)
        for _, pause_s in self._until(_VOTE_S):
            try:
                reply = await self._ask("POST", f"/arena/battles/{battle_id}/vote", at, {"outcome": outcome})
            except Unanswered:
                self._tally.count("votes_unanswered")
                await asyncio.sleep(pause_s)
                continue
            if reply.status == 200:
                await self._ledger.acknowledged(battle_id, reply.body["vote_id"])
                self._tally.count("votes")
                await self._repeat(battle_id, outcome, reply.body["vote_id"])
                return True
            if reply.status not in _LATER:
                if reply.status == 404 or self._site.forgets_battles:
                    self._vanished(battle_id)
                else:
                    await self._ledger.refused(battle_id, reply.code)
                    self._tally.break_promise(
                        "unexpected_refusals", f"vote on {battle_id}: {reply.status} {reply.code}"
                    )
                return False
            self._tally.count("votes_repeated")
            await asyncio.sleep(pause_s)
        self._tally.break_promise("never_recovered", f"no answer to the vote on {battle_id} in {_VOTE_S:.0f} s")
        return False

    async def _repeat(self, battle_id: str, outcome: str, vote_id: str) -> None:
        """Sometimes the same vote again, or another one: the first must be the same, the other refused."""
        chance = self._rng.random()
        if chance >= 0.3:
            return
        other = outcome if chance < 0.2 else ("a" if outcome != "a" else "b")
        try:
            reply = await self._ask("POST", f"/arena/battles/{battle_id}/vote", None, {"outcome": other})
        except Unanswered:
            return
        if other == outcome and reply.status == 200 and reply.body["vote_id"] != vote_id:
            self._tally.break_promise("votes_doubled", f"battle {battle_id}: {vote_id} and {reply.body['vote_id']}")
        if other != outcome and reply.status == 200:
            self._tally.break_promise("votes_wrong", f"battle {battle_id} took {outcome} and then {other}")

    def _vanished(self, battle_id: str) -> TurnState:
        if self._site.forgets_battles:
            self._tally.count("battles_forgotten")
        else:
            self._tally.break_promise("unexpected_refusals", f"battle {battle_id} has vanished")
        return "lost"

    async def _view(self, battle_id: str, at: int | None) -> dict[str, Any] | None:
        """The battle; None if it does not exist (or cannot be read for long)."""
        for _, pause_s in self._until(30):
            try:
                reply = await self._ask("GET", f"/arena/battles/{battle_id}", at)
            except Unanswered:
                await asyncio.sleep(pause_s)
                continue
            if reply.status == 200:
                view: dict[str, Any] = reply.body
                return view
            if reply.status == 404:
                return None
            await asyncio.sleep(pause_s)
        return None

    def _until(self, seconds: float) -> "_Attempts":
        return _Attempts(seconds)

    def _choose(self, at: int | None) -> int:
        return self._rng.randrange(len(self._site.urls)) if at is None else at

    async def _ask(self, method: str, path: str, at: int | None, body: Any = None) -> Reply:
        """One request. Raises Unanswered."""
        chosen = self._choose(at)
        num_faults = self._site.num_faults(chosen)
        url = self._site.urls[chosen] + path
        timeout = aiohttp.ClientTimeout(total=_REQUEST_S)
        started = time.monotonic()
        try:
            async with self._site.http.request(method, url, json=body, timeout=timeout) as answer:
                return self._note(method, path, Reply(answer.status, await answer.json(content_type=None)))
        except TimeoutError:
            if self._site.num_faults(chosen) == num_faults:
                self._note_silence(method, path, started)
            raise Unanswered from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise Unanswered from None

    async def _follow(self, method: str, path: str, at: int | None, reading: Reading, body: Any = None) -> Reply | None:
        """One connection of a turn's stream, read into `reading`; None if it was a stream. Raises Unanswered when the
        connection broke before an answer."""
        chosen = self._choose(at)
        num_faults = self._site.num_faults(chosen)
        headers = {"Last-Event-ID": reading.last_id} if reading.last_id and method == "GET" else {}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_REQUEST_S, sock_read=_SILENCE_S)
        is_stream = False
        started = time.monotonic()
        try:
            async with self._site.http.request(
                method, self._site.urls[chosen] + path, json=body, headers=headers, timeout=timeout
            ) as answer:
                if answer.status != 200:
                    return self._note(method, path, Reply(answer.status, await answer.json(content_type=None)))
                is_stream = True
                if method == "GET" and reading.last_id is None:  # from the beginning of the turn
                    reading.texts, reading.seqs, reading.ends = dict.fromkeys(SIDES, ""), dict.fromkeys(SIDES, 0), {}
                decoder = SseDecoder()
                async for chunk in answer.content.iter_any():
                    for event in decoder.feed(chunk):
                        if self._take(event.event, json.loads(event.data), event.id, reading):
                            return None
        except (LookupError, TypeError) as error:
            self._tally.break_promise("wrong_tokens", f"{path}: an event cannot be read: {error!r}")
        except TimeoutError:
            if self._site.num_faults(chosen) == num_faults:
                self._note_silence(method, path, started)
            if not is_stream:
                raise Unanswered from None
        except (aiohttp.ClientError, OSError, ValueError):
            if not is_stream:
                raise Unanswered from None
            if self._site.num_faults(chosen) == num_faults:
                self._tally.break_promise(
                    "silent_cuts", f"{path}: the connection broke, its controller was not touched"
                )
        else:
            if "error" not in reading.ends:
                self._tally.break_promise("silent_cuts", f"{path} ended without its last event")
        reading.ends.pop("error", None)
        reading.num_cuts += 1
        return None

    def _take(self, name: str, data: Any, event_id: str | None, reading: Reading) -> bool:
        """Apply one event; True if it is the last one."""
        reading.last_id = event_id or reading.last_id
        match name:
            case "delta":
                side = data["side"]
                if data["seq"] != reading.seqs[side]:
                    self._tally.break_promise(
                        "wrong_tokens", f"side {side}: delta {data['seq']} instead of {reading.seqs[side]}"
                    )
                reading.seqs[side] = data["seq"] + 1
                reading.texts[side] += data["text"]
            case "finished":
                reading.ends[data["side"]] = data["finish_reason"]
            case "failed":
                reading.ends[data["side"]] = data["error"]["code"]
                self._tally.count(f"failed_{data['error']['code']}")
            case "restarted":
                reading.texts[data["side"]], reading.seqs[data["side"]] = "", 0
                reading.ends.pop(data["side"], None)
                self._tally.count("restarted_sides")
            case "turn_finished":
                reading.state, reading.is_kept, reading.turn = data["state"], data["is_kept"], data["turn"]
                return True
            case "error":
                reading.ends["error"] = data["error"]["code"]
                self._tally.count(f"stream_error_{data['error']['code']}")
        return False

    def _note(self, method: str, path: str, reply: Reply) -> Reply:
        if reply.status >= 500 and not (reply.status == 503 and reply.code in _CODES):
            self._tally.break_promise("server_errors", f"{method} {path}: {reply.status} {reply.code}")
        return reply

    def _note_silence(self, method: str, path: str, started: float) -> None:
        self._tally.break_promise("hangs", f"{method} {path}: no answer in {time.monotonic() - started:.1f} s")


class _Attempts:
    """Numbers and pauses of attempts until a time has passed; the pauses grow."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._number = 0

    def __iter__(self) -> "_Attempts":
        return self

    def __next__(self) -> tuple[int, float]:
        if time.monotonic() > self._deadline:
            raise StopIteration
        self._number += 1
        return self._number, _PAUSE_S[min(self._number - 1, len(_PAUSE_S) - 1)]


def words(rng: random.Random, num_words: int | None = None) -> str:
    """A message without a repeated word, so that a doubled or lost token changes the text."""
    tag = f"{rng.getrandbits(24):06x}"
    return " ".join(f"{tag}.{index}" for index in range(num_words or rng.randint(3, 60)))


def _difference(text: str, wanted: str) -> str:
    """Where two texts part, in words."""
    words, right = text.split(), wanted.split()
    place = next((index for index, (a, b) in enumerate(zip(words, right, strict=False)) if a != b), None)
    place = min(len(words), len(right)) if place is None else place
    return f"{len(words)} of {len(right)} words, first difference at {place}: {words[place : place + 3]}"
