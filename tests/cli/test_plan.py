"""The output of `agon plan`."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from engine.memory.planning.model_configs import CONFIGS
from engine.memory.planning.planner import REPORT_LENGTHS


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as leaving:
        main(["plan", *arguments])
    assert leaving.value.code == 0
    return capsys.readouterr().out


def plan_data(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(plan(capsys, *arguments, "--json"))
    return data


def test_the_plan_of_a_config_file_is_printed_as_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["gemma-3-27b"]))
    for argument in (path, tmp_path):
        data = plan_data(capsys, str(argument), "--lengths", "100,2000")
        assert data["num_page_tables"] == len(data["types"]) == 31
        assert sum(kind["num_layers"] for kind in data["types"]) == 62
        for kind in data["types"]:
            assert kind["small_page_bytes"] * kind["ratio"] == data["large_page_bytes"]
        assert list(data["designs"]) == ["chosen", "lcm", "gcd", "equal_page", "max_page"]
        for design in data["designs"].values():
            assert list(design["bytes"]) == list(design["waste"]) == ["100", "2000"]
        assert data["designs"]["lcm"]["waste"]["100"] == pytest.approx(1.01, abs=0.005)


def test_page_size_and_dtype_change_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plain = plan_data(capsys, "llama-3.1-8b")
    assert plain["types"][0]["small_page_bytes"] == 32 * 16 * 4096
    coarse = plan_data(capsys, "llama-3.1-8b", "--page-tokens", "32", "--kv-dtype", "fp8")
    assert coarse["types"][0]["tokens_per_page"] == 32
    assert coarse["types"][0]["small_page_bytes"] == 32 * 32 * 16 * (128 + 4)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.2-11b-vision"])  # from model code, and from rules
@pytest.mark.parametrize("kv_dtype", ["fp8", "int8", "float16"])
def test_data_types_have_the_names_of_the_flag(capsys: pytest.CaptureFixture[str], model: str, kv_dtype: str) -> None:
    data = plan_data(capsys, model, "--kv-dtype", kv_dtype)
    designs = [data, *data["designs"].values()]
    assert {kind["dtype"] for design in designs for kind in design["types"]} == {kv_dtype}


def test_capacity_is_told_in_tokens_pages_and_requests(capsys: pytest.CaptureFixture[str]) -> None:
    capacity = plan_data(capsys, "llama-3.1-8b", "--pool-gib", "64")["capacity"]
    assert capacity["tokens"] == capacity["max_model_len"] == 131_072
    assert capacity["large_pages"] == capacity["pages"]["main.full"] == 64 * 2**30 // (32 * 16 * 4096) - 1
    assert capacity["requests_of_max_length"] == capacity["large_pages"] // (131_072 // 16)


def test_the_plan_for_people_names_types_designs_and_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(plan(capsys, "jamba-1.5-mini").split())
    assert all(word in text for word in ("conv", "ssm", "equal", "live bytes", "page tables"))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["no-such-model"], "no folder"),
        (["llama-3.1-8b", "--lengths", "ten"], "--lengths"),
        (["llama-3.1-8b", "--kv-dtype", "int3"], "--kv-dtype"),
        (["llama-3.1-8b", "--pool-gib", "0.001"], "too small"),
        (["llama-3.2-11b-vision", "--kv-budget", "512"], "kv_budget is for models that a worker can run"),
    ],
)
def test_what_cannot_be_planned_is_explained_in_a_sentence(arguments: list[str], complaint: str) -> None:
    with pytest.raises(SystemExit, match=complaint):
        main(["plan", *arguments])


def test_adapters_are_counted_beside_the_pool(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = {"max_adapters": "4", "max_adapter_rank": "16"}
    flags = [part for name, value in numbers.items() for part in (f"--{name.replace('_', '-')}", value)]
    adapters = plan_data(capsys, "llama-3.1-8b", *flags)["adapters"]
    # hidden 4096, heads 4096 and 1024, feed-forward 14336, 32 layers, bfloat16
    per_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert adapters == {"count": 4, "rank": 16, "bytes_each": 16 * per_layer * 32 * 2}
    assert "4 adapters of rank 16 on all layers take 320 MiB" in plan(capsys, "llama-3.1-8b", *flags)


def test_several_models_share_one_large_page(capsys: pytest.CaptureFixture[str]) -> None:
    data = plan_data(capsys, "--model", "llama-3.1-8b", "--model", "gemma-3-12b")
    assert data["fits_well"]
    for model in data["models"].values():
        assert all(kind["small_page_bytes"] * kind["ratio"] == data["large_page_bytes"] for kind in model["types"])
        assert model["waste"] - model["waste_alone"] <= 0.05
    text = plan(capsys, "llama-3.1-8b", "--model", "gemma-3-12b")
    assert "One pool for 2 models" in text
    assert "gemma-3-12b" in text


def test_the_plan_ends_at_the_context_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    lengths = plan_data(capsys, "demo_models/raven")["lengths"]
    assert lengths == [*(length for length in REPORT_LENGTHS if length < 1024), 1024]
    assert plan_data(capsys, "demo_models/raven", "--lengths", "2000")["lengths"] == [2000]


def test_weights_are_told_by_data_type(capsys: pytest.CaptureFixture[str]) -> None:
    """A tied embedding counts once, one of its own stays in 16 bits."""
    raven = Path(__file__).parents[2] / "demo_models" / "raven"
    weights = plan_data(capsys, str(raven))["weights_bytes"]
    assert weights["float32"] == 2 * weights["bfloat16"] == 4 * 5_246_976
    assert weights["int8"] == pytest.approx(5_246_976 * 8.125 / 8, rel=0.01)
    assert weights["int4"] < 0.75 * weights["int8"]
    assert f"int8 {weights['int8'] / 2**20:,.0f} MiB" in plan(capsys, str(raven))
    untied = plan_data(capsys, "llama-3.1-8b")["weights_bytes"]
    assert untied["bfloat16"] == pytest.approx(2 * 8.03e9, rel=0.01)
    table = 128_256 * 4096
    layers = untied["bfloat16"] // 2 - 2 * table
    assert untied["int4"] == pytest.approx(table * (2 + 8.125 / 8) + layers * 5.5 / 8, rel=0.01)
    assert plan_data(capsys, "llama-3.2-11b-vision")["weights_bytes"] == {}
