"""Votes are imported while they arrive: in order, in bounded memory, and with patience for a busy store."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store, unavailable
from controller.store_address import parse_address
from controller.votes.vote_import import BATCH_BYTES, MAX_LINE_BYTES, VoteImport
from controller.votes.vote_log import VoteLog
from tests.controller.support.arena import Arena, eventually, make_settings, running_arena
from tests.controller.support.running import StoreProcess
from wire.chat import ChatMessage
from wire.errors import ApiError, ErrorCode
from wire.log_records import LogRecord, key_of
from wire.votes import ImportReply, VotedSide, VoteRecord


def _lines(count: int, **changes: Any) -> bytes:
    votes = (
        VoteRecord(
            vote_id=f"{number}-0",
            battle_id=f"battle-{number}",
            time=float(number),
            mode="anonymous",
            outcome="a",
            a=VotedSide(model="A", revision="r"),
            b=VotedSide(model="B", revision="r"),
            **changes,
        )
        for number in range(1, count + 1)
    )
    return b"".join(vote.model_dump_json(exclude_none=True).encode() + b"\n" for vote in votes)


class _Log(VoteLog):
    """Keeps what is appended; fails `failures` times before."""

    def __init__(self, failures: int = 0) -> None:
        store = Store(parse_address("redis://127.0.0.1:1/0"), timeout_s=1, metrics=Metrics())
        super().__init__(store, Keys("none"))
        self.battles: list[str] = []
        self.failures = failures

    async def append_foreign(self, entries: Sequence[LogRecord]) -> int:
        if self.failures:
            self.failures -= 1
            raise unavailable()
        self.battles += [key_of(entry) for entry in entries]
        return len(entries)


async def _pieces(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


@pytest.mark.parametrize("size", [1, 7, 1000, 10**9])
async def test_lines_are_found_wherever_pieces_end(size: int) -> None:
    log = _Log()
    body = _lines(3).replace(b"\n", b"\n \r\n") + _lines(4).splitlines()[-1]
    reply = await VoteImport(log, patience_s=1).run(_pieces(body, size))
    assert (reply.imported, reply.skipped) == (4, 0)
    assert log.battles == [f"battle-{number}" for number in range(1, 5)]


async def test_no_more_than_a_batch_is_held_however_long_the_body_is() -> None:
    log, body, num_sent, most_held = _Log(), _lines(2000, comment="x" * 500), 0, 0
    vote_bytes = len(body) / 2000

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal num_sent, most_held
        async for piece in _pieces(body, 10_000):
            num_sent += len(piece)
            yield piece
            most_held = max(most_held, round(num_sent - len(log.battles) * vote_bytes))

    await VoteImport(log, patience_s=1).run(pieces())
    assert len(body) > 4 * BATCH_BYTES
    assert most_held < BATCH_BYTES + 20_000


async def test_a_store_that_is_busy_is_waited_for() -> None:
    log = _Log(failures=3)
    reply = await VoteImport(log, patience_s=60).run(_pieces(_lines(5), 100))
    assert (reply.imported, len(log.battles), log.failures) == (5, 5, 0)


async def test_the_wait_for_a_store_has_an_end() -> None:
    with pytest.raises(ApiError) as refused:
        await VoteImport(_Log(failures=10**6), patience_s=0.1).run(_pieces(_lines(5), 100))
    assert refused.value.code is ErrorCode.STORE_UNAVAILABLE


async def test_a_bad_line_is_counted_and_the_message_says_what_is_in_the_log() -> None:
    log = _Log()
    body = _lines(1200) + b'{"x": 1}\n' + _lines(10)
    with pytest.raises(ApiError, match="Line 1201 is not a vote") as refused:
        await VoteImport(log, patience_s=1).run(_pieces(body, 5000))
    assert 0 < len(log.battles) < 1201
    assert f"{len(log.battles)} were imported" in refused.value.message


async def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    num_sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal num_sent
        while True:
            num_sent += 1_000_000
            yield b"x" * 1_000_000

    with pytest.raises(ApiError, match="Line 1 is longer"):
        await VoteImport(_Log(), patience_s=1).run(pieces())
    assert num_sent <= MAX_LINE_BYTES + 1_000_000


@pytest.mark.parametrize("fails", ["set_admin_state", "import_votes"])
async def test_an_import_goes_on_when_a_store_that_hangs_is_back(own_store: StoreProcess, fails: str) -> None:
    """The store hangs before the action is logged, or after that and before the votes come."""
    async with running_arena(make_settings(own_store.url, "test:import", store_timeout_s=0.2)) as arena:

        async def has_failed_once() -> bool:
            metrics = await arena.client.get("/metrics", headers=arena.admin)
            return f'arena_redis_errors_total{{op="{fails}"}}' in metrics.text

        async def is_logged() -> bool:
            return bool(await arena.redis.xlen(arena.keys.actions))

        async def body() -> AsyncIterator[bytes]:
            if fails == "import_votes":
                await eventually(is_logged)
                own_store.signal(signal.SIGSTOP)
            yield _lines(50)

        if fails == "set_admin_state":
            own_store.signal(signal.SIGSTOP)
        importing = asyncio.create_task(arena.client.post("/arena/votes/import", content=body(), headers=arena.admin))
        await eventually(has_failed_once)
        own_store.signal(signal.SIGCONT)
        answer = await importing
        assert answer.status_code == 200, answer.text
        reply = ImportReply.model_validate_json(answer.content)
        assert reply.imported + reply.skipped == 50
        assert len(await arena.vote_log()) == 50


@pytest.mark.parametrize(
    "change",
    [
        (b'"time":1.0', b'"time":NaN'),
        (b'"time":1.0', b'"time": 1e999'),
        (b'"time":1.0', b'"time":-Infinity'),
        (b'"turns":1', b'"turns": 12345678901234567890123'),
        (b'"turns":1', b'"turns":1,"comment":"\\ud800"'),
        (b'"turns":1', b'"turns":1,"comment":"\\u0000"'),
        (b'"turns":1', b'"turns":1,"unknown":1'),
        (b"battle-1", b"\xff"),
    ],
    ids=["nan", "too large", "infinite", "long", "surrogate", "nul", "unknown", "no text"],
)
async def test_what_the_strict_parser_refuses_is_refused(change: tuple[bytes, bytes]) -> None:
    line = _lines(1)
    assert change[0] in line
    with pytest.raises(ApiError, match="Line 1 is not a vote"):
        await VoteImport(_Log(), patience_s=1).run(_pieces(line.replace(*change), 100))


async def test_votes_that_bring_their_texts_get_language_and_categories(arena: Arena) -> None:
    question = ChatMessage(role="user", content="Write a short poem about the sea, please.")
    answer = ChatMessage(role="assistant", content="```python\nprint()\n```")
    texts: dict[str, Any] = {"a": (question, answer), "b": (question, answer)}
    body = _lines(1, conversations=texts) + _lines(2, conversations=texts, language="fr", categories=("maths",))
    body = body.replace(b"battle-2", b"battle-3") + _lines(2)

    await arena.client.post("/arena/votes/import", content=body, headers=arena.admin)

    found = {vote["battle_id"]: (vote.get("language"), vote.get("categories")) for vote in await arena.vote_log()}
    assert found == {
        "battle-1": ("en", ["code", "creative", "short_prompt", "short_answers"]),
        "battle-3": ("fr", ["maths"]),
        "battle-2": (None, []),
    }
    assert all("conversations" not in vote for vote in await arena.vote_log())
