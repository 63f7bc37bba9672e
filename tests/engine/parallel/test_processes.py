"""Tensor parallelism with real processes: the tokens of one, and an end of all when one has ended."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig
from engine.errors import NotDivisible, RankLost
from engine.llm import LLM
from engine.loaded_engine import load_engine
from engine.sampling_params import SamplingParams
from tests.engine.checkpoints import TinyModel
from tests.engine.stepper import random_prompt

TinyModels = Callable[[str], TinyModel]
ROOT = Path(__file__).parents[3]
PROMPTS = [random_prompt(index, length) for index, length in enumerate((1, 9, 30, 61, 30, 17))]
GREEDY = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
#: A pool on one rank: 3 layers x 1 of 2 heads x 16 dimensions x keys and values x 4 bytes x 96 tokens.
SCARCE_BYTES = 3 * 16 * 2 * 4 * 96


@pytest.fixture(scope="module")
def llama(tiny_model: TinyModels) -> Iterator[LLM]:
    """Two processes that all tests here share; its pool is too small for all prompts."""
    config = EngineConfig(
        str(tiny_model("llama").folder),
        page_tokens=4,
        kv_cache_bytes=SCARCE_BYTES,
        swap_bytes=SCARCE_BYTES,
        max_batched_tokens=7,
        max_running=4,
        num_threads=1,
        overlap=True,
        tensor_parallel=2,
    )
    with LLM.around(load_engine(config, has_queue_bound=False)) as llm:
        yield llm


def test_greedy_tokens_are_those_of_one_process(tiny_model: TinyModels, llama: LLM) -> None:
    expected = [tiny_model("llama").greedy(prompt, GREEDY.max_tokens) for prompt in PROMPTS]
    assert [result.outputs[0].token_ids for result in llama.generate(PROMPTS, GREEDY)] == expected
    for _ in range(2):  # the second time from a warm prefix cache
        (result,) = llama.generate(PROMPTS[2:3], GREEDY)
        assert result.outputs[0].token_ids == expected[2]
    assert result.num_cached_tokens > 0
    assert llama.stats().swap_preemptions_total > 0
    llama._core.check_integrity()
    assert llama.info.operators.endswith(", 2 ranks")


def test_so_are_drawn_tokens_of_parallel_samples(tiny_model: TinyModels, llama: LLM) -> None:
    params = SamplingParams(temperature=0.9, top_p=0.95, seed=11, n=3, max_tokens=12, ignore_eos=True, logprobs=2)
    prompts = PROMPTS[:3]
    alone = LLM(str(tiny_model("llama").folder), page_tokens=4, kv_cache_bytes=1 << 20, num_threads=1)
    for ours, theirs in zip(llama.generate(prompts, params), alone.generate(prompts, params), strict=True):
        assert [output.token_ids for output in ours.outputs] == [output.token_ids for output in theirs.outputs]
        for output, other in zip(ours.outputs, theirs.outputs, strict=True):
            assert output.cumulative_logprob == pytest.approx(other.cumulative_logprob, abs=1e-3)


def test_torchrun_starts_the_processes_of_a_program(tiny_model: TinyModels) -> None:
    tiny = tiny_model("gemma2")
    program = [str(ROOT / "tests/engine/parallel/torchrun_program.py"), str(tiny.folder), json.dumps(PROMPTS)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, env=_environment())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [tiny.greedy(prompt, GREEDY.max_tokens) for prompt in PROMPTS]


def test_followers_end_with_a_leader_that_was_killed() -> None:
    script = (
        "from engine.parallel.followers import Followers; import time\n"
        "followers = Followers(2, 'engine.runner'); print(followers._processes[0].pid, flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=_environment()) as leader:
        assert leader.stdout is not None
        follower = int(leader.stdout.readline())
        assert _runs(follower)
        leader.kill()
    _wait_until(lambda: not _runs(follower))


def test_what_cannot_be_divided_is_refused_before_a_process_is_started(tiny_model: TinyModels) -> None:
    config = EngineConfig(str(tiny_model("llama").folder), tensor_parallel=3)
    with pytest.raises(NotDivisible, match="2 key/value heads cannot be divided among 3 processes"):
        load_engine(config)
    with pytest.raises(NotDivisible, match="tensor parallelism of MambaForCausalLM is not supported"):
        load_engine(replace(config, model=str(tiny_model("mamba").folder)))


def test_a_process_that_dies_ends_the_engine_with_its_reason(llama: LLM) -> None:
    """The last one here: it takes the shared processes with it."""
    (process_id,) = _followers()
    assert llama._loaded.is_alive()
    os.kill(process_id, signal.SIGKILL)
    _wait_until(lambda: not llama._loaded.is_alive())
    started = time.monotonic()
    with pytest.raises(RankLost, match="rank 1 of tensor parallelism was killed by SIGKILL"):
        llama.generate(PROMPTS, GREEDY)
    with pytest.raises(RankLost, match="must be started again"):
        llama.generate(PROMPTS, GREEDY)
    assert time.monotonic() - started < 60  # the group itself would wait for years


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def _followers() -> list[int]:
    """Child processes of this one, without those that fixtures keep for the whole run."""
    threads = Path("/proc/self/task").iterdir()
    children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    commands = {child: Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0") for child in children if _runs(child)}
    return [child for child, command in commands.items() if b"engine.runner" in command]


def _runs(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
