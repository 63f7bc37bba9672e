"""The controller client: retries, resumed streams, and errors."""

import ssl

import httpx
import pytest

from tests.webui.fake_controller import FakeArena
from webui.answers import Interrupted
from webui.client import ControllerClient
from webui.controllers import ControllerUnreachable
from webui.turn_streams import StreamLost
from webui.visitors import Visitor
from wire.battles import CreateBattle, DeltaEvent, TurnFinishedEvent
from wire.errors import ApiError, ErrorCode
from wire.ids import BattleId

VISITOR = Visitor("203.0.113.7")


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
    assert {visitor for _, _, visitor in arena.requests} == {VISITOR.address}
    await client.aclose()


async def test_a_broken_stream_is_taken_up_where_it_broke(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    battle = await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    texts = await text_of(client, battle.id, "drop: what is the capital of France?")
    assert texts["a"] == "The capital of France is Paris."
    assert [method for method, path, _ in arena.requests if path.endswith("/turns")] == ["POST"]
    await client.aclose()


async def test_models_that_can_only_complete_text_are_not_offered(arena: FakeArena, controller: str) -> None:
    client = ControllerClient(controller)
    assert await client.models(VISITOR) == arena.models
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


async def test_a_controller_that_is_down_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.turn_streams._RESUME_DELAYS_S", (0.0, 0.01))
    client = ControllerClient("http://127.0.0.1:9")
    assert not await client.is_ready()
    with pytest.raises(ControllerUnreachable):
        await client.create_battle(CreateBattle(mode="anonymous"), VISITOR)
    events = client.turn(BattleId("b1"), 1, "Hello", VISITOR)
    assert [await anext(events) for _ in range(2)] == [Interrupted(), Interrupted()]
    with pytest.raises(ControllerUnreachable):
        await anext(events)
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


ANSWERED = TurnFinishedEvent(turn=1, state="answered")
EMPTY = {"text": ""}
BEGUN_VIEW = {**OPEN_VIEW, "state": "streaming", "turns": [{"number": 1, "content": "Hello", "a": EMPTY, "b": EMPTY}]}


def end() -> httpx.Response:
    return httpx.Response(200, text=f"id: 1-5\nevent: turn_finished\ndata: {ANSWERED.model_dump_json()}\n\n")


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.turn_streams._RESUME_DELAYS_S", (0.0, 0.0, 0.0))


async def methods_of_a_turn(transport: Scripted, *urls: str) -> list[tuple[str, str]]:
    """Takes a turn; host and method of each request."""
    client = ControllerClient(*(urls or ("http://controller",)), transport=transport)
    assert [event async for event in client.turn(BattleId("b1"), 1, "Hello", VISITOR)][-1] == ANSWERED
    return [(request.url.host, request.method) for request in transport.requests]


@pytest.mark.usefixtures("no_delays")
async def test_a_turn_without_an_answer_that_did_not_begin_is_sent_again_under_the_same_key() -> None:
    transport = Scripted(httpx.ReadError("reset"), httpx.Response(200, json=OPEN_VIEW), end())
    found = await methods_of_a_turn(transport)
    assert [method for _, method in found] == ["POST", "GET", "POST"]
    keys = [request.headers["idempotency-key"] for request in transport.requests if request.method == "POST"]
    assert len(set(keys)) == 1


@pytest.mark.usefixtures("no_delays")
async def test_a_turn_without_an_answer_that_began_is_followed_and_not_sent_twice() -> None:
    transport = Scripted(httpx.ReadError("reset"), httpx.Response(200, json=BEGUN_VIEW), end())
    await methods_of_a_turn(transport)
    assert [request.url.path.rpartition("/")[2] for request in transport.requests] == ["turns", "b1", "stream"]


def refusal(code: ErrorCode) -> httpx.Response:
    error = ApiError(code, "Not now.")
    return httpx.Response(error.status, json=error.body().model_dump())


TWO = ("http://one", "http://two")


@pytest.mark.usefixtures("no_delays")
async def test_a_turn_goes_to_the_other_controller_when_the_first_does_not_listen() -> None:
    transport = Scripted(httpx.ConnectError("refused"), end())
    assert await methods_of_a_turn(transport, *TWO) == [("one", "POST"), ("two", "POST")]


@pytest.mark.usefixtures("no_delays")
async def test_a_stream_goes_on_at_the_other_controller_after_its_last_event() -> None:
    delta = DeltaEvent(side="a", seq=0, text="x").model_dump_json()
    transport = Scripted(httpx.Response(200, text=f"id: 1-4\nevent: delta\ndata: {delta}\n\n"), end())
    assert await methods_of_a_turn(transport, *TWO) == [("one", "POST"), ("two", "GET")]
    assert transport.requests[1].headers["last-event-id"] == "1-4"


@pytest.mark.usefixtures("no_delays")
async def test_a_store_that_restarts_interrupts_a_stream_and_does_not_end_it() -> None:
    delta = DeltaEvent(side="a", seq=0, text="x").model_dump_json()
    transport = Scripted(
        httpx.Response(200, text=f"id: 1-4\nevent: delta\ndata: {delta}\n\n"),
        refusal(ErrorCode.STORE_UNAVAILABLE),
        end(),
    )
    await methods_of_a_turn(transport)
    assert len(transport.requests) == 3


@pytest.mark.parametrize(
    "failure",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        refusal(ErrorCode.SHUTTING_DOWN),
        refusal(ErrorCode.STORE_UNAVAILABLE),
    ],
    ids=["refused", "silent", "stopping", "without store"],
)
async def test_a_request_goes_to_the_next_controller_and_the_following_ones_stay_there(
    failure: httpx.Response | Exception,
) -> None:
    transport = Scripted(failure, httpx.Response(200, json=OPEN_VIEW), httpx.Response(200, json=OPEN_VIEW))
    client = ControllerClient(*TWO, transport=transport)
    await client.battle(BattleId("b1"), VISITOR)
    await client.battle(BattleId("b1"), VISITOR)
    assert [request.url.host for request in transport.requests] == ["one", "two", "two"]


async def test_an_error_that_every_controller_would_give_is_not_asked_for_twice() -> None:
    transport = Scripted(refusal(ErrorCode.BATTLE_NOT_FOUND))
    with pytest.raises(ApiError):
        await ControllerClient(*TWO, transport=transport).battle(BattleId("b1"), VISITOR)


async def test_the_last_reason_is_raised_when_no_controller_can_serve() -> None:
    transport = Scripted(httpx.ConnectError("refused"), refusal(ErrorCode.STORE_UNAVAILABLE))
    with pytest.raises(ApiError) as refused:
        await ControllerClient(*TWO, transport=transport).battle(BattleId("b1"), VISITOR)
    assert refused.value.code is ErrorCode.STORE_UNAVAILABLE


async def test_a_stream_that_cannot_be_taken_up_again_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.turn_streams._RESUME_DELAYS_S", (0.0, 0.0))
    transport = Scripted(httpx.ReadError("reset"), httpx.ReadError("reset"))
    client = ControllerClient("http://controller", transport=transport)
    with pytest.raises(StreamLost):
        await anext(client.resume(BattleId("b1"), VISITOR))


async def test_an_error_event_means_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webui.turn_streams._RESUME_DELAYS_S", (0.0, 0.0))
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


async def test_a_controller_whose_certificate_is_not_trusted_is_logged_once_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        error = httpx.ConnectError("no connection", request=request)
        error.__cause__ = cause = ssl.SSLCertVerificationError()
        cause.verify_code, cause.verify_message = 10, "certificate has expired"
        raise error

    client = ControllerClient("https://controller", transport=httpx.MockTransport(refuse))
    assert not await client.is_ready()
    with pytest.raises(ControllerUnreachable):
        await client.battle(BattleId("b1"), VISITOR)
    [line] = [record for record in caplog.records if record.message == "controller_not_trusted"]
    fields: dict[str, str] = vars(line)["fields"]
    assert fields["controller"] == "https://controller"
    assert "has expired" in fields["reason"]
