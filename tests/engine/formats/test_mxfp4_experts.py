"""gpt-oss with experts in MXFP4 computes what it computes with their dequantised weights."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import CheckpointError
from engine.formats.mxfp4 import Mxfp4
from engine.kernels.choice import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.cpu.weight_memory import PrivateMemory
from engine.kernels.operators import ExpertsFunction, GroupedExperts
from engine.kernels.quantised import QuantisedStack
from engine.kernels.torch_operators import TorchOperators
from engine.loader import Checkpoint, CheckpointWeights
from engine.parallel.group import Group
from tests.engine.chunked_logits import chunked_logits
from tests.engine.formats import packers
from tests.engine.formats.mxfp4_folders import SETTINGS, WEIGHTS, Tensors, write
from tests.engine.formats.quantised_folders import CPU, PROMPT, change_config, load
from tests.engine.parallel.threads import on_every_rank
from tests.engine.stepper import generate

EXPERTS = "model.layers.0.mlp.experts"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gpt-oss as `write` writes it."""
    return write(tmp_path_factory.mktemp("gpt-oss"), "gpt-oss", hidden_size=64, intermediate_size=96)


def damaged(folder: Path, target: Path, damage: Callable[[Tensors], object]) -> Path:
    """A copy of the packed checkpoint with other tensors."""
    target.mkdir()
    for file in (folder / "packed").iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = load_file(target / WEIGHTS)
    damage(tensors)
    save_file(tensors, target / WEIGHTS)
    return target


def test_logits_are_those_of_the_dequantised_weights(folder: Path) -> None:
    with torch.inference_mode():
        plain, packed = (
            chunked_logits(folder / name, PROMPT, page_tokens=16, chunk=12, operators=TorchOperators())
            for name in ("plain", "packed")
        )
    torch.testing.assert_close(packed, plain, atol=1e-4, rtol=0)


class WithGroupedExperts(TorchOperators):
    """Stands for the operators of a GPU: experts of 16 bits are grouped products, which take no quantised ones."""

    @property
    def grouped_experts(self) -> GroupedExperts:  # type: ignore[override]
        def refuse(*_: object, **__: object) -> ExpertsFunction:
            raise AssertionError("grouped products of quantised experts")

        return refuse


def test_quantised_experts_are_no_grouped_products(folder: Path) -> None:
    with torch.inference_mode():
        plain, packed = (
            chunked_logits(folder / "packed", PROMPT, page_tokens=16, chunk=12, operators=operators)
            for operators in (TorchOperators(), WithGroupedExperts())
        )
    assert torch.equal(packed, plain)


def test_experts_with_gates_before_ups(tmp_path: Path) -> None:
    folder = write(tmp_path, "qwen3.5-moe", hidden_size=64, moe_intermediate_size=32)
    assert any(name.endswith(".experts.down_proj_blocks") for name in load_file(folder / "packed" / WEIGHTS))
    test_logits_are_those_of_the_dequantised_weights(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_in_cpp_lose_only_the_rounding_of_activations(
    folder: Path, tmp_path: Path, dtype: torch.dtype
) -> None:
    """All experts are chosen, so that no choice depends on a rounding."""
    tensors = {name: damaged(folder, tmp_path / name, lambda _: None) for name in ("packed", "plain")}
    (tensors["plain"] / WEIGHTS).write_bytes((folder / "plain" / WEIGHTS).read_bytes())
    for name, settings in (("packed", SETTINGS), ("plain", None)):
        change_config(tensors[name], quantization_config=settings, num_experts_per_tok=6)
    cpp = choose_operators(CPU, dtype, 1, allow_compiled=True)
    assert isinstance(cpp, CppOperators)
    with torch.inference_mode():
        plain, ours = (
            chunked_logits(tensors[name], PROMPT, page_tokens=16, chunk=12, operators=operators, dtype=dtype).float()
            for name, operators in (("plain", TorchOperators()), ("packed", cpp))
        )
    assert float((ours - plain).square().mean().sqrt()) <= 0.08 * float(plain.square().mean().sqrt())


def test_the_packer_is_right_by_transformers() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    stack = torch.randn(2, 6, 64, generator=torch.Generator().manual_seed(3))
    parts, weights = packers.mxfp4(stack)
    theirs = convert_moe_packed_tensors(parts["blocks"], parts["scales"], dtype=torch.float32)
    assert torch.equal(theirs.transpose(1, 2), weights)


def test_a_worker_runs_it_and_shares_its_weights(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runner.packed_weights.packed_weights_folder", lambda: tmp_path / "weights")
    runs = []
    for how in ("off", "on", "on"):
        loaded = load(folder / "packed", share_weights=how)
        assert loaded.info.precision == "float32, MXFP4"
        runs.append(generate(loaded.runner, [PROMPT], 8, chunk=16))
    assert runs[0] == runs[1] == runs[2]
    assert len(list((tmp_path / "weights").glob("*.packed"))) == 1


def test_two_processes_draw_the_tokens_of_one(folder: Path) -> None:
    """96 channels of an expert in two processes: the cut lies inside a group of 32."""

    def work(group: Group) -> list[list[int]]:
        return generate(load(folder / "packed", group, operators="torch").runner, [PROMPT], 8, chunk=16)

    assert on_every_rank(2, work) == 2 * on_every_rank(1, work)


def test_experts_stay_in_4_bits_in_memory(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    blocks = torch.randint(0, 256, (2, 480, 16, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(120, 130, (2, 480, 16), generator=generator, dtype=torch.uint8)
    (tmp_path / "config.json").write_text("{}")
    save_file({"up_blocks": blocks, "up_scales": scales}, tmp_path / WEIGHTS)
    operators = choose_operators(CPU, torch.bfloat16, 1, allow_compiled=True)
    assert isinstance(operators, CppOperators)
    memory = operators.weight_memory = PrivateMemory()
    weights = CheckpointWeights(
        Checkpoint(tmp_path), dtype=torch.bfloat16, device=CPU, operators=operators, quantised_by=Mxfp4()
    )
    stack = weights.take_stack("up", 2, 480, 512)
    assert isinstance(stack, QuantisedStack)
    for index in range(2):
        operators.linear(stack[index], None)
    assert sum(span.num_bytes for span in memory.spans) <= 1.08 * (blocks.nbytes + scales.nbytes)
    with pytest.raises(CheckpointError, match="groups of 32 do not divide its 500 inputs"):
        weights.take_stack("up", 2, 480, 500)


def _put(end: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({f"{EXPERTS}.{end}": change(tensors[f"{EXPERTS}.{end}"]).contiguous()})


def _restack(tensors: Tensors) -> None:
    """Twice the experts with half of the outputs each."""
    for end in ("blocks", "scales"):
        name = f"{EXPERTS}.gate_up_proj_{end}"
        tensors[name] = tensors[name].unflatten(1, (2, -1)).flatten(0, 1).contiguous()


def _as_a_layer(tensors: Tensors) -> None:
    name = "model.layers.0.self_attn.o_proj"
    tensors[f"{name}_blocks"] = tensors.pop(f"{name}.weight").to(torch.uint8)


HOSTILE: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "an expert less": (_put("gate_up_proj_blocks", lambda blocks: blocks[1:]), r"has shape \[5, 192, 2, 16\]"),
    "other experts": (_restack, r"has shape \[12, 96, 2, 16\]"),
    "a flat tensor": (_put("down_proj_blocks", torch.flatten), "has shape"),
    "no numbers": (_put("down_proj_blocks", lambda blocks: blocks[:0]), "has shape"),
    "scales of another shape": (_put("down_proj_scales", lambda scales: scales[:, :, :1]), "has shape"),
    "no scales": (lambda tensors: tensors.pop(f"{EXPERTS}.down_proj_scales"), "has no tensor .*down_proj_scales"),
    "no codes": (lambda tensors: tensors.pop(f"{EXPERTS}.down_proj_blocks"), r"has no tensor .*experts\.down_proj"),
    "NaN": (_put("down_proj_scales", lambda scales: scales.fill_(255)), "down_proj_scales holds NaN"),
    "codes of another type": (_put("down_proj_blocks", lambda blocks: blocks.float()), "has dtype F32, not uint8"),
    "codes twice": (
        lambda tensors: tensors.update({f"{EXPERTS}.down_proj": torch.zeros(6, 96, 64)}),
        "does not use",
    ),
    "blocks of a layer": (_as_a_layer, "several experts, and the model takes one matrix"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_not_served_is_said_in_a_sentence(folder: Path, tmp_path: Path, case: str) -> None:
    damage, message = HOSTILE[case]
    with pytest.raises(CheckpointError, match=message):
        load(damaged(folder, tmp_path / "model", damage))


def test_another_format_has_no_stacks_of_experts(folder: Path, tmp_path: Path) -> None:
    def as_gptq(tensors: Tensors) -> None:
        tensors[f"{EXPERTS}.gate_up_proj.qweight"] = torch.zeros(6, 8, 192, dtype=torch.int32)

    model = damaged(folder, tmp_path / "model", as_gptq)
    change_config(model, quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 16})
    with pytest.raises(CheckpointError, match="gate_up_proj is quantised, and the model takes it as a tensor of 6"):
        load(model)
