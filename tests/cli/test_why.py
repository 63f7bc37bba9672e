"""`agon why` puts a battle's steps, log lines and causes together; `agon top` shows a worker's load."""

import json
from pathlib import Path

import httpx
import pytest

from cli.log_lines import lines_of
from cli.main import main
from wire.admin import FailuresView
from wire.trails import TrailEntry, TrailView
from wire.workers import Capacity, Load, ModelCard, WorkerView

BATTLE = "ca5efu11-battle"


def _trail() -> TrailView:
    entries = (
        TrailEntry(time=1_700_000_000.25, controller="one-7", step="began", turn=1, request_id="asked"),
        TrailEntry(
            time=1_700_000_001.5, controller="one-7", step="trouble", turn=1, side="a", model="raven", reason="broke"
        ),
    )
    return TrailView(
        conversation_id=BATTLE,
        kind="battle",
        mode="anonymous",
        state="answered",
        models={"a": "raven", "b": "finch"},
        entries=entries,
        causes=("Turn 1, raven: worker w failed (broke).",),
    )


def _worker() -> WorkerView:
    card = ModelCard(name="raven", revision="r", architecture="a", num_parameters=1, dtype="float32", context_length=9)
    load = Load(running=3, waiting=2, tokens_per_s=41.26, kv_bytes_used=25, kv_bytes_evictable=50, kv_bytes_total=100)
    return WorkerView(
        worker_id="w1",
        model="raven",
        state="ready",
        card=card,
        capacity=Capacity(max_running=4, max_queued=1, kv_tokens=9),
        in_flight=5,
        load=load,
        last_heartbeat_age_s=0.4,
    )


@pytest.fixture(autouse=True)
def arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that knows one battle and one worker."""
    answers = {
        f"/arena/admin/trails/{BATTLE}": _trail().model_dump_json(),
        "/arena/workers": json.dumps([_worker().model_dump(mode="json")]),
        "/arena/admin/failures": FailuresView(failures=(), rate_limited={}, since=0).model_dump_json(),
    }

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(request.url.path)
        return httpx.Response(404 if found is None else 200, content=found or '{"error": {"message": "no"}}')

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **given: real(**given, transport=httpx.MockTransport(answer)))
    monkeypatch.setenv("AGON_ADMIN_TOKEN", "a" * 20)


def _line(second: float, level: str, event: str, **fields: object) -> dict[str, object]:
    return {"ts": f"2023-11-14T22:13:{second:06.3f}Z", "level": level, "event": event, **fields}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    lines = [
        {
            "ts": "2023-11-14T22:13:21.000Z",
            "level": "info",
            "event": "answer_ended",
            "x_request_id": "asked",
            "ttft_s": 1,
        },
        {
            "ts": "2023-11-14T22:13:20.500Z",
            "level": "warning",
            "event": "trouble",
            "battle": BATTLE[:8],
            "reason": "broke",
        },
        {"ts": "2023-11-14T22:13:20.500Z", "level": "info", "event": "other", "battle": "another1"},
    ]
    (tmp_path / "worker raven.log").write_text("not JSON\n" + "\n".join(map(json.dumps, lines)) + "\n{cut")
    return tmp_path


def _agon(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def test_the_lines_of_a_request_are_found_in_time_order(logs: Path) -> None:
    found = lines_of(logs, {"asked", BATTLE[:8]})

    assert [(line.process, line.text, line.is_trouble) for line in found] == [
        ("worker raven", "trouble reason=broke", True),
        ("worker raven", "answer_ended ttft_s=1", False),
    ]


def test_steps_and_log_lines_stand_in_the_order_of_time(logs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _agon("why", BATTLE, "--logs", str(logs)) == 0

    head, *lines, cause = capsys.readouterr().out.splitlines()
    assert head == f"battle {BATTLE}: raven and finch, anonymous answered"
    assert [line.split()[:2] for line in lines] == [
        ["22:13:20.250", "began"],
        ["22:13:20.500", "!"],
        ["22:13:21.000", "worker"],
        ["22:13:21.500", "trouble"],
    ]
    assert cause == "cause: Turn 1, raven: worker w failed (broke)."


def test_a_request_is_found_in_logs_alone_and_an_unknown_id_is_an_error(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _agon("why", "asked", "--logs", str(logs), "--json") == 0
    assert [line["text"] for line in json.loads(capsys.readouterr().out)["log"]] == ["answer_ended ttft_s=1"]

    with pytest.raises(SystemExit, match="no battle, chat or request 'nothing' is known"):
        main(["why", "nothing", "--logs", str(logs)])


def test_top_shows_load_pool_and_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _agon("top", "--json") == 0

    [worker] = json.loads(capsys.readouterr().out)["workers"]
    assert (worker["running"], worker["waiting"], worker["tokens_per_s"]) == (3, 2, 41.3)
    assert (worker["pool_used"], worker["pool_cached"]) == (0.25, 0.5)

    assert _agon("top", "--once") == 0
    assert "raven" in capsys.readouterr().out
