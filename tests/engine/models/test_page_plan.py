"""`agon plan` and a running worker cut the same pool from the same settings, to the byte, for every architecture."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from engine.config import EngineConfig, KVDType
from engine.errors import CheckpointError
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import plan_layers, pool_of
from engine.memory.spec import PoolPlan
from engine.models.registry import ARCHITECTURES
from engine.models.stored_layers import layers_from_config
from engine.runner import load_runner
from tests.engine.checkpoints import VARIANTS, TinyModels

POOL_BYTES = 4 << 20


def plan_of_worker(folder: Path, kv_dtype: KVDType, page_tokens: int, kv_budget: int | None = None) -> PoolPlan:
    config = EngineConfig(
        str(folder),
        dtype="float32",
        kv_dtype=kv_dtype,
        page_tokens=page_tokens,
        kv_cache_bytes=POOL_BYTES,
        max_running=2,
        num_threads=1,
        load_format="dummy",
        kv_budget=kv_budget,
    )
    return load_runner(config).pool_plan


_WITHOUT_ATTENTION = {"MambaForCausalLM", "FalconMambaForCausalLM", "Mamba2ForCausalLM"}
#: A model without keys and values refuses a data type for them.
WITH_ATTENTION = [name for name, (architecture, _) in VARIANTS.items() if architecture not in _WITHOUT_ATTENTION]


@pytest.mark.parametrize(
    ("name", "kv_dtype", "page_tokens"),
    [*((name, "auto", 16) for name in VARIANTS), *((name, "int8", 8) for name in WITH_ATTENTION)],
)
def test_a_worker_has_the_pool_that_was_planned(
    tiny_model: TinyModels, name: str, kv_dtype: KVDType, page_tokens: int
) -> None:
    folder = tiny_model(name).folder
    values = json.loads((folder / "config.json").read_text())
    layers = layers_from_config(values, dtype="float32", kv_dtype=kv_dtype)
    planned = pool_of(plan_layers(layers.layers, page_tokens=page_tokens).chosen, POOL_BYTES)
    assert layers.is_served
    assert planned == plan_of_worker(folder, kv_dtype, page_tokens)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_command_prints_the_pool_of_the_worker(
    tiny_model: TinyModels, capsys: pytest.CaptureFixture[str], architecture: str
) -> None:
    name = next(name for name, (registered, _) in VARIANTS.items() if registered == architecture)
    folder = tiny_model(name).folder
    with pytest.raises(SystemExit) as leaving:
        main(["plan", str(folder), "--json", "--dtype", "float32", "--pool-gib", str(POOL_BYTES / 2**30)])
    assert leaving.value.code == 0
    printed = json.loads(capsys.readouterr().out)
    worker = plan_of_worker(folder, "auto", 16)
    assert printed["types"] == _as_printed(worker)
    assert printed["large_page_bytes"] == worker.large_page_bytes
    assert printed["capacity"]["pool_bytes"] == worker.pool_bytes
    assert printed["capacity"]["large_pages"] == worker.num_usable_large_pages


def test_a_budget_of_tokens_is_planned_as_the_worker_plans_it(
    tiny_model: TinyModels, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_model("llama").folder
    flags = ["--dtype", "float32", "--page-tokens", "4", "--kv-budget", "24", "--pool-gib", str(POOL_BYTES / 2**30)]
    with pytest.raises(SystemExit) as leaving:
        main(["plan", str(folder), "--json", *flags])
    assert leaving.value.code == 0
    printed, worker = json.loads(capsys.readouterr().out), plan_of_worker(folder, "auto", 4, kv_budget=24)
    assert printed["types"] == _as_printed(worker)
    assert {kind["kind"] for kind in printed["types"]} == {"budgeted"}
    assert printed["capacity"]["large_pages"] == worker.num_usable_large_pages


@pytest.mark.parametrize(("name", "kv_dtype"), [("gemma3", "auto"), ("jamba", "auto"), ("llama", "int8")])
def test_a_budget_that_the_worker_refuses_is_refused_in_the_same_words(
    tiny_model: TinyModels, name: str, kv_dtype: KVDType
) -> None:
    folder = tiny_model(name).folder
    with pytest.raises(CheckpointError) as refused:
        plan_of_worker(folder, kv_dtype, 16, kv_budget=32)
    with pytest.raises(SystemExit, match=re.escape(str(refused.value))):
        main(["plan", str(folder), "--kv-dtype", kv_dtype, "--kv-budget", "32"])


def test_large_models_are_planned_without_torch_s_compiler_which_takes_a_second_to_import() -> None:
    program = (
        "import sys\n"
        "from engine.memory.planning.model_configs import CONFIGS\n"
        "from engine.models.stored_layers import layers_from_config\n"
        "print(sum(layers_from_config(config).is_served for config in CONFIGS.values()))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    served = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(served.stdout) == sum(config["architectures"][0] in ARCHITECTURES for config in CONFIGS.values()) - 2


def _as_printed(plan: PoolPlan) -> list[dict[str, Any]]:
    return [
        {
            "name": kind.name,
            "kind": kind.spec.kind,
            "model": kind.spec.model,
            "dtype": kind.spec.dtype,
            "num_layers": len(kind.layer_ids),
            "tokens_per_page": kind.page_tokens,
            "small_page_bytes": kind.small_page_bytes,
            "padding_bytes": kind.padding_bytes,
            "ratio": plan.ratio(kind),
        }
        for kind in plan.types
    ]
