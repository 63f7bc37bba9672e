"""The limits of a step where the configuration leaves them to the device."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from engine.config import EngineConfig, StepLimits
from engine.llm import LLM
from engine.parallel.group import Solo
from engine.runner.device_defaults import limits_for, with_device_defaults
from tests.engine.checkpoints import TinyModel

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "memory_gib", "limits"),
    [
        ("H200", 139, (256, 8192)),
        ("A100 40GB", 39.4, (256, 8192)),
        ("RTX 4090", 23.5, (128, 4096)),
        ("T4", 15, (64, 2048)),
    ],
)
def test_a_large_device_takes_larger_steps(name: str, memory_gib: float, limits: tuple[int, int]) -> None:
    assert limits_for(int(memory_gib * GIB)) == StepLimits(*limits), name


def test_what_is_configured_is_kept_and_the_rest_follows_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(total_memory=80 * GIB)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device_id: device)
    chosen = with_device_defaults(EngineConfig("m", max_running=8), torch.device("cuda", 0), Solo())
    assert chosen.step_limits == StepLimits(8, 8192)
    assert chosen.max_running == 8
    assert with_device_defaults(EngineConfig("m"), torch.device("cpu"), Solo()).step_limits == StepLimits(64, 1024)


def test_a_loaded_engine_tells_the_limits_that_it_runs_with(tiny_model: Callable[[str], TinyModel]) -> None:
    with LLM(str(tiny_model("llama").folder), device="cpu", kv_cache_bytes=1 << 20, max_batched_tokens=32) as llm:
        assert llm._core.step_limits == StepLimits(64, 32)
