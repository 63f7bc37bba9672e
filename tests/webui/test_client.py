"""The controller client: retries, resumed streams, and errors."""

import httpx
import pytest

from tests.webui.fake_controller import FakeArena
from webui.client import ControllerClient, ControllerUnreachable, StreamLost
from wire.battles import CreateBattle, DeltaEvent, TurnFinishedEvent
from wire.chat import ChatMessage, SamplingOptions
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

VISITOR = "203.0.113.7"


async def text_of(client: ControllerClient, battle_id: BattleId, prompt: str) -> dict[str, str]:
    texts = {"a": "", "b": ""}
    async for event in client.turn(battle_id, 1, prompt, VISITOR):
        if isinstance(event, DeltaEvent):
            texts[event.side] += event.text
    return texts


async def test_a_turn_streams_both_answers_and_says_whose_visitor_asks(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller, api_key="key")
    battle = await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    texts = await text_of(client, battle.id, "What is the capital of France?")
    assert "Paris" in texts["a"]
    assert "Paris" in texts["b"]
    assert {visitor for _, _, visitor in arena.requests} == {VISITOR}
    await client.aclose()


async def test_a_broken_stream_is_taken_up_where_it_broke(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    battle = await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    texts = await text_of(client, battle.id, "drop: what is the capital of France?")
    assert texts["a"] == "The capital of France is Paris."
    assert [method for method, path, _ in arena.requests if path.endswith("/turns")] == ["POST"]
    await client.aclose()


async def test_errors_keep_their_code_and_their_wait(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    arena.refuse_creation = 1
    with pytest.raises(ApiError) as refused:
        await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    assert refused.value.code is ErrorCode.QUEUE_FULL
    assert refused.value.retry_after_s == 1
    with pytest.raises(ApiError) as missing:
        await client.battle(BattleId("nothing"), VISITOR)
    assert missing.value.code is ErrorCode.BATTLE_NOT_FOUND
    await client.aclose()


async def test_a_controller_that_is_down_is_unreachable() -> None:
    client = ControllerClient("http://127.0.0.1:9")
    assert not await client.is_ready()
    with pytest.raises(ControllerUnreachable):
        await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    with pytest.raises(ControllerUnreachable):
        await anext(client.turn(BattleId("b1"), 1, "Hello", VISITOR))
    await client.aclose()


class Scripted(httpx.AsyncBaseTransport):
    """Answers requests from a list; an exception in the list is raised."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self._answers = list(answers)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


VOTED = {
    "vote_id": "v1",
    "battle_id": BattleId("b1"),
    "outcome": "a",
    "models": {"a": "owl", "b": "fox"},
    "rated": True,
}


async def test_a_vote_without_an_answer_is_sent_again_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.client._VOTE_DELAYS_S", (0.0, 0.0, 0.0))
    transport = Scripted(httpx.ReadTimeout("slow"), httpx.ReadTimeout("slow"), httpx.Response(200, json=VOTED))
    client = ControllerClient("http://controller", transport=transport)
    reply = await client.vote(BattleId("b1"), "a", VISITOR)
    assert reply.models["b"] == "fox"
    assert len({request.content for request in transport.requests}) == 1
    assert len(transport.requests) == 3


async def test_a_vote_that_is_refused_is_not_repeated() -> None:
    error = ApiError(ErrorCode.BATTLE_ALREADY_VOTED, "Another.")
    transport = Scripted(httpx.Response(error.status, json=error.body().model_dump()))
    client = ControllerClient("http://controller", transport=transport)
    with pytest.raises(ApiError):
        await client.vote(BattleId("b1"), "a", VISITOR)


OPEN_VIEW = {
    "id": BattleId("b1"),
    "mode": "anonymous",
    "state": "open",
    "a": {"model": None},
    "b": {"model": None},
    "turns": [],
    "max_turns": 8,
}


async def test_a_turn_whose_request_got_no_answer_is_looked_up_and_not_sent_twice() -> None:
    transport = Scripted(httpx.ReadError("reset"), httpx.Response(200, json=OPEN_VIEW))
    client = ControllerClient("http://controller", transport=transport)
    with pytest.raises(ControllerUnreachable):
        await anext(client.turn(BattleId("b1"), 1, "Hello", VISITOR))
    assert [request.method for request in transport.requests] == ["POST", "GET"]


async def test_a_stream_that_cannot_be_taken_up_again_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.client._RESUME_DELAYS_S", (0.0, 0.0))
    transport = Scripted(httpx.ReadError("reset"), httpx.ReadError("reset"))
    client = ControllerClient("http://controller", transport=transport)
    with pytest.raises(StreamLost):
        await anext(client.resume(BattleId("b1"), VISITOR))


async def test_an_error_event_means_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.client._RESUME_DELAYS_S", (0.0, 0.0))
    told = ApiError(ErrorCode.STORE_UNAVAILABLE, "Later.").body().model_dump_json()
    end = TurnFinishedEvent(turn=1, state="answered").model_dump_json()
    transport = Scripted(
        httpx.Response(200, text=f"id: 1-4\nevent: error\ndata: {told}\n\n"),
        httpx.Response(200, text=f"id: 1-5\nevent: turn_finished\ndata: {end}\n\n"),
    )
    client = ControllerClient("http://controller", transport=transport)
    events = [event async for event in client.resume(BattleId("b1"), VISITOR)]
    assert events == [TurnFinishedEvent(turn=1, state="answered")]
    assert transport.requests[1].headers["last-event-id"] == "1-4"


async def test_chat_gives_the_pieces_of_one_answer(controller: str) -> None:
    client = ControllerClient(controller)
    messages = (ChatMessage(role="user", content="Hello"),)
    pieces = [piece async for piece in client.chat("grey-vole-1m", messages, SamplingOptions(), VISITOR)]
    assert "".join(pieces).startswith("Hello! I am well")
    assert len(pieces) > 3
    await client.aclose()
