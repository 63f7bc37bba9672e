"""Which runner a model gets, and how large its page pool is where no size is stated."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import CheckpointError
from engine.runner import build, load_runner
from engine.runner.device.memory_profile import MemoryProfile
from tests.engine.checkpoints import CONTEXT, TinyModel
from tests.engine.runner.device.device_runners import (
    FixedGauge,
    device_runner,
    load_device,
    settings_for,
    torch_machinery,
)
from tests.engine.runner.device.tape import TapeRecorder

TinyModels = Callable[[str], TinyModel]
GIB, MIB = 1 << 30, 1 << 20
TOKEN_BYTES = 3 * 2 * 2 * 16 * 4  #: of a tiny llama


def test_what_is_left_for_pages_is_what_steps_and_graphs_leave() -> None:
    profile = MemoryProfile(total_bytes=100 * GIB, free_bytes=80 * GIB, step_bytes=3 * GIB, graph_bytes=2 * GIB)
    assert profile.room_bytes(0.9) == pytest.approx(65 * GIB, abs=1)
    assert profile.room_bytes(1.0) == 75 * GIB - 100 * GIB // 64, "a little always stays free"


def test_where_nothing_is_left_the_error_says_what_takes_the_memory() -> None:
    profile = MemoryProfile(total_bytes=10 * GIB, free_bytes=2 * GIB, step_bytes=GIB, graph_bytes=GIB)
    with pytest.raises(
        CheckpointError, match=r"10240 MiB 2048 are free, steps need 1024 and graphs 1024, and 1024 stay"
    ):
        profile.room_bytes(0.9)


def test_a_pool_of_unstated_size_fits_beside_steps_and_graphs(
    tiny_model: TinyModels, caplog: pytest.LogCaptureFixture
) -> None:
    # Free: before the runner, before the graphs, behind the first one, the second one, and the first and second number
    # of tokens of a step with prompts. Of the 112 MiB that go in the first steps 12 belong to no tensor.
    gauge = FixedGauge(
        total_bytes=GIB,
        free=[512 * MIB, 400 * MIB, 390 * MIB, 387 * MIB, 379 * MIB, 375 * MIB],
        used=[MIB, 101 * MIB],
        peak=389 * MIB,
    )
    recorder = TapeRecorder()
    with caplog.at_level(logging.INFO, logger="engine.runner"):
        runner = device_runner(
            tiny_model("llama").folder,
            torch_machinery(recorder, gauge),
            kv_cache_bytes=None,
            max_running=240,
            device_memory_share=0.95,
            max_graph_batch=8,
        )
    num_graphs = 4
    graphs = 10 * MIB + (num_graphs - 1) * 3 * MIB + 8 * MIB + (len(recorder.piece_replays) - 2 - 1) * 4 * MIB
    kept_free = GIB - int(0.95 * GIB)
    smallest = 2 * 4 * TOKEN_BYTES
    libraries = 12 * MIB
    room = 512 * MIB - (388 * MIB - smallest) - libraries - graphs - kept_free
    page = runner.pool_plan.large_page_bytes
    assert room - 2 * page < runner.pool_plan.pool_bytes <= room + 1
    assert len(recorder.num_replays) == 2 + num_graphs
    assert (
        "device memory of 1024 MiB: 512 free with the weights loaded, of which steps need 399, graphs 43" in caplog.text
    )
    num_requests = (runner.pool_plan.num_large_pages - 1) * 4 // CONTEXT
    assert f"one request of up to {CONTEXT} tokens, or {num_requests} of the full context of {CONTEXT}" in caplog.text
    assert "captured graph 4 of 4: 1 rows" in caplog.text


def test_a_pool_is_never_larger_than_all_slots_can_use(tiny_model: TinyModels) -> None:
    runner = device_runner(tiny_model("llama").folder, kv_cache_bytes=None)
    usable = runner.pool_plan.num_usable_large_pages * runner.pool_plan.large_page_bytes
    assert usable == 8 * CONTEXT * TOKEN_BYTES


def test_a_pool_of_stated_size_is_not_measured(tiny_model: TinyModels) -> None:
    recorder = TapeRecorder()
    runner = device_runner(tiny_model("llama").folder, torch_machinery(recorder), kv_cache_bytes=1 << 20)
    assert runner.pool_plan.pool_bytes <= 1 << 20
    assert len(recorder.num_replays) == len(runner.decode_graphs.buckets.all())


def test_without_graphs_none_are_measured_nor_captured(tiny_model: TinyModels) -> None:
    for name, settings in (("llama", {"enforce_eager": True}), ("mixtral", {})):
        recorder = TapeRecorder()
        device_runner(tiny_model(name).folder, torch_machinery(recorder), kv_cache_bytes=None, **settings)
        assert not recorder.num_replays


@pytest.mark.parametrize(
    ("overlap", "on_device", "on_cpu"), [(None, 2, 1), (True, 2, 2), (False, 1, 1)], ids=["unstated", "on", "off"]
)
def test_steps_overlap_where_a_device_computes(
    tiny_model: TinyModels, overlap: bool | None, on_device: int, on_cpu: int
) -> None:
    folder = tiny_model("llama").folder
    assert load_device(folder, overlap=overlap).runner.max_in_flight == on_device
    assert load_runner(settings_for(folder, overlap=overlap)).runner.max_in_flight == on_cpu


@pytest.mark.parametrize("dependent_launch", [True, False])
def test_on_cuda_timer_and_recorders_share_a_stream_and_products_are_summed_in_float32(
    monkeypatch: pytest.MonkeyPatch, dependent_launch: bool
) -> None:
    """torch keeps a workspace of cuBLAS for every stream that has multiplied."""
    pytest.importorskip("triton")
    from engine.kernels.gpu import dependent_launch as launches

    device, streams = torch.device("cuda", 0), []

    class Stream:
        def __init__(self, device: torch.device) -> None:
            streams.append(self)

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(launches, "_options", {})
    monkeypatch.setattr(build, "_why_not_triton", lambda parts: None)
    monkeypatch.setattr(build, "build_device_runner", lambda parts, machinery: machinery)
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction
    config = EngineConfig("a model", prompt_attention="triton", dependent_launch=dependent_launch)
    try:
        machinery: Any = build.build_runner(SimpleNamespace(device=device, config=config))  # type: ignore[arg-type]
        assert not matmul.allow_bf16_reduced_precision_reduction
        assert not matmul.allow_fp16_reduced_precision_reduction
    finally:
        matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction = before
    recorders = [machinery.make_recorder() for _ in range(2)]
    assert {recorder._stream for recorder in recorders} == {machinery.timer._stream} == set(streams)
    assert launches.launch_options(device)["WAITS"] is dependent_launch
