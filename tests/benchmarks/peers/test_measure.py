"""The benchmark of peers with two of them: our engine on a demo model, and an engine of ten lines."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.measure import measure
from benchmarks.peers.process import PeerFailed, PeerProcess
from benchmarks.peers.variants import ADAPTERS, VARIANTS, Variant, available, expand, with_options
from cli.bench.workloads import Work

FINCH = Path(__file__).parent.parent.parent.parent / "demo_models" / "finch"
SETTINGS: dict[str, Any] = {
    "model": str(FINCH),
    "threads": 1,
    "max_running": 4,
    "max_model_len": 1024,
    "cache_gib": 1,
}
COUNTER = f"""
import sys
import time
sys.path.insert(0, {str(ADAPTERS)!r})
import channel

class Counter:
    version = "counter 1"

    def __init__(self, settings):
        self.surplus = settings["options"].get("surplus", 0)

    def generate(self, prompts, lengths):
        print("noise on stdout does no harm")
        time.sleep(0.1)
        return [list(range(length + self.surplus)) for length in lengths]

channel.serve(Counter)
"""


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    script = tmp_path / "with_counter.py"
    script.write_text(COUNTER)
    return script


def run(peers: list[str], variants: dict[str, Variant], workloads: list[str]) -> tuple[list[dict[str, Any]], Any]:
    options: dict[str, Any] = {"rounds": 2, "wait_quiet_s": 0, "progress": lambda text: None}
    return measure(peers, workloads, SETTINGS, 512, variants=variants, **options)


def test_every_peer_gets_the_same_work_in_every_round(counter: Path) -> None:
    variants = {"agon": Variant("agon", "with_agon.py", dtype="float32"), "counter": Variant("agon", str(counter))}
    rows, failed = run(["agon", "counter"], variants, ["single"])
    assert failed == {}
    ours, theirs = rows
    assert [row["peer"] for row in rows] == ["agon", "counter"]
    assert all(len(row["seconds"]) == len(row["others_cores"]) == 2 for row in rows)
    assert (ours["prompt_tokens"], ours["output_tokens"]) == (128, 128)
    assert ours["ttft_ms"] > 0
    assert theirs["ttft_ms"] >= 100
    assert ours["first_tokens_equal"] == "1 of 1"
    assert theirs["version"] == "counter 1"
    assert ours["resident_bytes"] > 50 * 2**20


def test_a_limited_peer_gets_only_the_first_requests(counter: Path) -> None:
    rows, _ = run(["counter"], {"counter": Variant("agon", str(counter), limit=4)}, ["alpaca"])
    assert [(row["requests"], row["output_tokens"]) for row in rows] == [(4, 65 + 50 + 21 + 28)]


def test_a_peer_that_makes_another_number_of_tokens_fails_alone(counter: Path) -> None:
    variants = {
        "wrong": Variant("agon", str(counter), {"surplus": 1}),
        "right": Variant("agon", str(counter)),
    }
    rows, failed = run(["wrong", "right"], variants, ["alpaca"])
    assert [row["peer"] for row in rows] == ["right"]
    assert "instead of" in failed["wrong"]


def test_a_peer_that_cannot_load_says_why(tmp_path: Path) -> None:
    script = tmp_path / "with_nothing.py"
    script.write_text("raise SystemExit('no such engine here')")
    with pytest.raises(PeerFailed, match="no such engine here"):
        PeerProcess(Variant("agon", str(script)), SETTINGS)


def test_a_run_tells_how_busy_the_peer_was(counter: Path) -> None:
    with PeerProcess(Variant("agon", str(counter)), SETTINGS) as process:
        answer, noise = process.run([Work((1, 2), 3)], is_single=False)
    assert answer["tokens"] == [[0, 1, 2]]
    assert noise.own_cores >= 0
    assert noise.others_cores >= 0


def test_a_group_of_peers_becomes_its_members() -> None:
    assert expand(["agon", "transformers", "agon"]) == [
        "agon",
        "transformers-one",
        "transformers-static",
        "transformers-continuous",
    ]
    assert expand(["all"]) == list(VARIANTS)
    with pytest.raises(ValueError, match="there is no peer 'fast'"):
        expand(["fast"])


def test_options_of_one_peer_can_be_changed() -> None:
    changed = with_options(["agon.max_batched_tokens=2048", "openvino.weights=int8"])
    assert changed["agon"].options == {"max_batched_tokens": 2048}
    assert changed["openvino"].options == {"weights": "int8"}
    assert changed["vllm"] == VARIANTS["vllm"]
    for text in ("agon", "agon=3", "nobody.a=1", "agon.=1"):
        with pytest.raises(ValueError, match="must be PEER"):
            with_options([text])


def test_only_peers_with_a_finished_environment_are_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGON_BENCH_ENVS", str(tmp_path))
    ours = ["agon", "agon-int8"]
    assert available() == ours
    (tmp_path / "vllm").mkdir()
    assert available() == ours
    (tmp_path / "vllm" / "installed.json").write_text("[]")
    assert available() == [*ours, "vllm"]
