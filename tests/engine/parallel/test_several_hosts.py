"""A model over several machines: each rank is started by itself and has the checkpoint in a place of its own. Here the
machines are processes; tests/two_hosts has hosts with networks of their own."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine.errors import NotDivisible
from engine.parallel.torchrun import own_address_towards_master
from model_worker.config import WorkerSettings
from tests.engine.checkpoints import TinyModel

ROOT = Path(__file__).parents[3]
LEADER = """\
import sys
from engine.llm import LLM
from engine.sampling_params import SamplingParams
with LLM(sys.argv[1], tensor_parallel=2, kv_cache_bytes=100_000, num_threads=1) as llm:
    [result] = llm.generate([[5, 9, 2, 33]], SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True))
    print(result.outputs[0].token_ids)
"""


def test_ranks_that_were_started_one_by_one_give_the_tokens_of_one_process(
    tiny_model: Callable[[str], TinyModel], tmp_path: Path
) -> None:
    tiny = tiny_model("llama")
    shutil.copytree(tiny.folder, tmp_path / "elsewhere")
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port = trial.getsockname()[1]
    place = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    environment = {**os.environ, **place, "MASTER_PORT": str(port), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    flags = ["--model", f"m={tmp_path / 'elsewhere'}", "--tensor-parallel", "2", "--rank", "1"]
    follower = [sys.executable, "-m", "model_worker", *flags, "--master", f"127.0.0.1:{port}"]
    with subprocess.Popen(follower, env=environment, stderr=subprocess.PIPE, text=True) as rank_1:
        leader = [sys.executable, "-c", LEADER, str(tiny.folder)]
        done = subprocess.run(leader, capture_output=True, text=True, timeout=240, env={**environment, "RANK": "0"})
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(tiny.greedy([5, 9, 2, 33], 8))
        assert rank_1.wait(60) == 0


def test_another_checkpoint_on_another_machine_is_refused(tiny_model: Callable[[str], TinyModel]) -> None:
    from engine.config import EngineConfig
    from engine.errors import CheckpointError
    from engine.runner.follower import _compare_checkpoint
    from engine.runner.load import revision_of

    config = EngineConfig(str(tiny_model("llama").folder))
    _compare_checkpoint(config, revision_of(config))
    with pytest.raises(CheckpointError, match="is another checkpoint"):
        _compare_checkpoint(config, revision_of(EngineConfig(str(tiny_model("gemma2").folder))))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rank": 1}, "belong together"),
        ({"master": "10.0.0.1:29500"}, "belong together"),
        ({"rank": 1, "master": "10.0.0.1:29500"}, "needs --tensor-parallel"),
        ({"rank": 2, "master": "10.0.0.1:29500", "tensor_parallel": 2}, "no place among 2 processes: 0 to 1 are"),
        ({"rank": 0, "master": "10.0.0.1", "tensor_parallel": 2}, "should match pattern"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        WorkerSettings(model=("m",), **given)


def test_a_rank_listens_where_the_machine_of_rank_0_is_reached() -> None:
    assert own_address_towards_master({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}) == "127.0.0.1"
    with pytest.raises(NotDivisible, match=r"the machine of rank 0, nowhere\.invalid, cannot be reached"):
        own_address_towards_master({"MASTER_ADDR": "nowhere.invalid"})
