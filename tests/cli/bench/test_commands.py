"""`agon bench` as users run it: the real engine on a demo model, and real HTTP against `agon serve`."""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.bench.commands import app
from cli.bench.serving import Answered
from cli.bench.tables import milliseconds
from cli.errors import CliError

FINCH = str(Path(__file__).parents[3] / "demo_models" / "finch")
SHORT = ("--model", FINCH, "--threads", "1", "--repeats", "1")
FIXED = ("--num-prompts", "3", "--input-len", "9", "--output-len", "4")


def bench(*arguments: str) -> None:
    app(args=list(arguments), standalone_mode=False)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def test_without_a_subcommand_it_measures_throughput(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    bench(*SHORT, *FIXED, "--max-running", "2", "--dtype", "float32", "--json", str(result))
    document = json.loads(result.read_text())
    assert document["kind"] == "offline"
    assert document["settings"] | {"threads": 1, "dtype": "float32", "concurrency": 2} == document["settings"]
    (row,) = document["rows"]
    assert (row["num_prompts"], row["prompt_tokens"], row["output_tokens"]) == (3, 27, 12)
    assert 12 / row["tokens_per_s"] == pytest.approx(row["seconds"][0], abs=6e-5)  # which has four digits


def test_against_transformers_both_are_measured_and_their_answers_compared(tmp_path: Path) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "result.png"
    arguments = ("--against", "transformers", "--dtype", "float32", "--single", "2")
    bench("offline", *SHORT, *FIXED, *arguments, "--json", str(result), "--plot", str(picture))
    document = json.loads(result.read_text())
    assert [(row["system"], row["num_prompts"]) for row in document["rows"]] == [
        ("transformers", 2),
        ("transformers", 3),
        ("agon", 2),
        ("agon", 3),
    ]
    assert document["agreement"] == {"equal": 2, "compared": 2}
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "content", "prompts", "tokens"),
    [
        ("work.json", '[{"ids": [5, 6], "out": 2}, {"ids": [7], "out": 3}]', 2, 5),
        ("prompts.txt", "Hello\nWhat is 1 + 1?\n", 2, 8),
    ],
)
def test_a_file_of_ids_or_of_texts_is_a_workload(
    name: str, content: str, prompts: int, tokens: int, tmp_path: Path
) -> None:
    work, result = tmp_path / name, tmp_path / "result.json"
    work.write_text(content)
    bench("offline", *SHORT, "--workload", str(work), "--output-len", "4", "--json", str(result))
    assert [(row["num_prompts"], row["output_tokens"]) for row in rows_of(result)] == [(prompts, tokens)]


def test_a_named_workload_runs_on_a_small_vocabulary(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    bench("offline", *SHORT, "--workload", "alpaca", "--num-prompts", "2", "--json", str(result))
    assert [(row["num_prompts"], row["output_tokens"]) for row in rows_of(result)] == [(2, 65 + 50)]


def test_latency_tells_the_first_token_and_every_gap(tmp_path: Path) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "result.png"
    arguments = ("--repeats", "2", "--input-len", "9", "--output-len", "6")
    bench("latency", *SHORT, *arguments, "--json", str(result), "--plot", str(picture))
    (row,) = rows_of(result)
    assert (row["prompt_tokens"], row["output_tokens"], row["repeats"]) == (9, 6, 2)
    assert row["ttft_ms"] > 0
    assert 0 <= row["itl_ms_p50"] <= row["itl_ms_p99"]  # 0: a busy machine delivers two tokens together
    assert row["itl_ms_p99"] > 0
    assert 1000 / row["tokens_per_s"] == pytest.approx(row["tpot_ms"], abs=6e-4)  # which has three digits
    assert picture.stat().st_size > 0


def test_an_answer_of_one_token_has_no_time_per_token(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    bench("latency", *SHORT, "--input-len", "4", "--output-len", "1", "--json", str(result))
    assert "tpot_ms" not in rows_of(result)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("offline", "--workload", "nothing"), "neither a file nor one of"),
        (("offline", "--model", "nowhere"), "must be a local folder"),
        (("offline", *SHORT, "--input-len", "100000"), "100000"),
        (("offline", *SHORT, "--json", "no-such-folder/result.json"), "there is no folder"),
        (("offline", *SHORT, "--plot", "picture.bmp"), "must end in one of"),
        (("offline", *SHORT, "--load-format", "dummy", "--against", "transformers"), "needs a checkpoint"),
        (("serve", "--url", "http://127.0.0.1:9", "--concurrency", "1,0"), "numbers above 0"),
        (("serve", "--url", "http://127.0.0.1:9", "--request-rate", "nan"), "numbers above 0"),
        (("serve", "--url", "http://127.0.0.1:9", "--request-rate", "1", "--concurrency", "1"), "exclude each other"),
        (("serve", "--url", "http://127.0.0.1:9", "--goodput", "speed:3"), "NAME:MS"),
        (("serve", "--url", "http://127.0.0.1:9", "--goodput", "ttft:soon"), "NAME:MS"),
        (("serve", "--url", "http://127.0.0.1:9"), "no server answers"),
    ],
)
def test_bad_input_is_explained(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CliError, match=message):
        bench(*arguments)


def test_without_matplotlib_a_plot_is_refused_before_the_measurement() -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from cli.main import main; main()"
    command = [sys.executable, "-P", "-c", code, "bench", "--plot", "picture.png"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode == 1
    assert "pip install matplotlib" in answer.stderr


def test_goodput_counts_only_what_met_every_target() -> None:
    answer = Answered(ttft_s=0.1, total_s=0.5, gaps_s=(0.1, 0.3), prompt_tokens=4, output_tokens=5)
    assert answer.meets({"ttft": 100, "tpot": 100, "itl": 300, "total": 500})
    assert not answer.meets({"itl": 299})
    assert not answer.meets({"ttft": 99, "tpot": 100})
    assert not Answered(error="refused").meets({"ttft": 1e9})


@pytest.fixture(scope="module")
def echo_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`agon serve` as its own process, with the engine that echoes its prompt."""
    log = tmp_path_factory.mktemp("serve") / "serve.log"
    command = [sys.executable, "-P", "-m", "cli.main", "serve", "echo", "--port", "0", "--engine", "echo"]
    settings = {name: value for name, value in os.environ.items() if not name.startswith("AGON_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--echo-tokens-per-s", "200"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**settings, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield wait_for_url(log, process)
    finally:
        process.terminate()
        process.wait(30)


def wait_for_url(log: Path, process: "subprocess.Popen[bytes]") -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        events = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        for event in events:
            if event["event"] == "listening" and is_up(url := f"http://127.0.0.1:{event['port']}"):
                return url
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def is_up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v1/models", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_serve_keeps_so_many_requests_in_flight(echo_url: str, tmp_path: Path) -> None:
    result, picture = tmp_path / "result.json", tmp_path / "result.png"
    load = ("--concurrency", "1,4", "--num-requests", "3", "--prompt-words", "5", "--output-len", "6")
    targets = ("--goodput", "ttft:0.001", "--goodput", "tpot:60000")
    bench("serve", "--url", echo_url, *load, *targets, "--json", str(result), "--plot", str(picture))
    rows = rows_of(result)
    assert [(row["concurrency"], row["requests"], row["failed"]) for row in rows] == [(1, 3, 0), (4, 4, 0)]
    assert [row["output_tokens"] for row in rows] == [18, 24]
    assert all(0 < row["ttft_ms_p50"] <= row["total_ms_p50"] for row in rows)
    assert all(row["itl_ms_p99"] > 0 for row in rows)  # not p50: a busy machine delivers some tokens together
    assert [row["requests_within_targets"] for row in rows] == [0, 0]
    assert picture.stat().st_size > 0


def test_serve_sends_at_a_rate_whether_or_not_answers_have_come(echo_url: str, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    load = ("--request-rate", "50,inf", "--num-requests", "4", "--workload", "alpaca")
    bench("serve", "--url", echo_url, *load, "--goodput", "total:60000", "--json", str(result))
    rows = rows_of(result)
    assert [(row["request_rate"], row["requests"], row["failed"]) for row in rows] == [(50.0, 4, 0), ("inf", 4, 0)]
    assert [row["requests_within_targets"] for row in rows] == [4, 4]
    assert all(math.isfinite(row["goodput_requests_per_s"]) for row in rows)


def test_serve_sends_the_prompts_of_a_file(echo_url: str, tmp_path: Path) -> None:
    prompts, result = tmp_path / "prompts.jsonl", tmp_path / "result.json"
    prompts.write_text('{"prompt": "one two three", "out": 2}\n"four"\n')
    load = ("--concurrency", "1", "--num-requests", "3", "--workload", str(prompts), "--output-len", "5")
    bench("serve", "--url", echo_url, *load, "--json", str(result))
    assert [row["output_tokens"] for row in rows_of(result)] == [2 + 5 + 2]


def test_a_server_that_refuses_is_named(echo_url: str) -> None:
    with pytest.raises(CliError, match="some requests failed"):
        bench("serve", "--url", echo_url, "--model", "absent", "--concurrency", "1", "--num-requests", "1")


@pytest.mark.parametrize(("value", "told"), [(0.374, "0.37"), (12.02, "12.0"), (143.62, "144"), (None, "-")])
def test_times_in_a_table_have_three_digits(value: float | None, told: str) -> None:
    assert milliseconds(value) == told
