"""Mixtures of experts whose checkpoints hold each expert's matrices by themselves, quantised."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.kernels.choice import choose_operators
from engine.kernels.operators import LinearFunction
from engine.kernels.quantised import Matrix, RoundedForm, quantised
from engine.kernels.torch_operators import TorchOperators
from engine.parallel.group import Group
from tests.engine.checkpoints import TinyModels
from tests.engine.chunked_logits import chunked_logits
from tests.engine.formats import packers
from tests.engine.formats.quantised_folders import CPU, FORMATS, PROMPT, load, write
from tests.engine.parallel.threads import on_every_rank
from tests.engine.stepper import generate


def split(folder: Path, target: Path, *, is_transposed: bool) -> Path:
    """The checkpoint with a matrix for each expert in place of stacks [experts, out, in], or [experts, in, out]."""
    target.mkdir()
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    tensors = load_file(target / "model.safetensors")
    for name in [name for name in tensors if name.endswith((".experts.gate_up_proj", ".experts.down_proj"))]:
        stack = tensors.pop(name)
        experts, part = name.rsplit(".", 1)
        for index, matrix in enumerate(stack.transpose(1, 2) if is_transposed else stack):
            pieces = {"down_proj": matrix}
            if part == "gate_up_proj":
                pieces = dict(zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True))
            tensors |= {
                f"{experts}.{index}.{each}.weight": piece.contiguous().clone() for each, piece in pieces.items()
            }
    save_file(tensors, target / "model.safetensors")
    return target


def without_routers(pack: packers.Packer, num_experts: int) -> packers.Packer:
    """Leaves matrices with few outputs (routers) as they are, and those that groups do not fit."""

    def packed(weight: torch.Tensor) -> packers.Packed:
        fits = len(weight) > num_experts and len(weight) % 8 == 0 and weight.shape[1] % packers.GROUP == 0
        return pack(weight) if fits else ({"weight": weight}, weight)

    return packed


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("mixtral", "packed 4 bits asymmetric"),
        ("qwen2-moe", "awq"),
        ("qwen3-moe", "gptq act-order"),
        ("qwen3.5-moe-with-vision", "fp8 by block"),
        ("deepseek-v3-yarn", "fp8 by block"),
        ("glm4-moe", "float by channel"),
        ("llama4", "packed 4 bits"),
    ],
)
def test_experts_compute_what_their_dequantised_weights_compute(
    tiny_model: TinyModels, tmp_path: Path, model: str, name: str
) -> None:
    settings, pack = FORMATS[name]
    source = split(tiny_model(model).folder, tmp_path / "source", is_transposed=model == "llama4")
    for folder, how in (("packed", settings), ("plain", None)):
        write(source, tmp_path / folder, how, without_routers(pack, num_experts=8))
    cpp = choose_operators(CPU, torch.float32, 1, allow_compiled=True)
    with torch.inference_mode():
        plain, packed, ours = (
            chunked_logits(tmp_path / folder, PROMPT, page_tokens=16, chunk=20, operators=operators)
            for folder, operators in (("plain", TorchOperators()), ("packed", TorchOperators()), ("packed", cpp))
        )
    torch.testing.assert_close(packed, plain, atol=1e-4, rtol=0)
    # The C++ product rounds activations to 8 bits, and FP8 weights to integers.
    assert distance(ours, plain, scale=plain) <= 0.1
    assert len(generate(load(tmp_path / "packed").runner, [PROMPT], 4, chunk=16)[0]) == 4


def test_two_processes_draw_the_tokens_of_one(tiny_model: TinyModels, tmp_path: Path) -> None:
    settings, pack = FORMATS["packed 4 bits asymmetric"]
    write(tiny_model("mixtral").folder, tmp_path / "packed", settings, without_routers(pack, num_experts=4))

    def work(group: Group) -> list[list[int]]:
        return generate(load(tmp_path / "packed", group, operators="torch").runner, [PROMPT], 8, chunk=16)

    assert on_every_rank(2, work) == 2 * on_every_rank(1, work)


class Rounding(TorchOperators):
    """Products in plain torch with weights rounded as the C++ operators are said to round them."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def rounded(self, weight: Matrix, bits: int) -> torch.Tensor:
        assert isinstance(weight, torch.Tensor)
        form = (RoundedForm.int4 if bits == 4 else RoundedForm.head)(weight.shape[1])
        return quantised(weight.contiguous(), form.bits, form.group_size).dequantised()

    def linear(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        return super().linear(self.rounded(weight, self.bits), bias)

    def head(self, weight: Matrix, bias: torch.Tensor | None) -> LinearFunction:
        return super().linear(self.rounded(weight, 8), bias)

    def tied_embedding(self, table: Matrix) -> tuple[LinearFunction, LinearFunction]:
        rounded = self.rounded(table, 8)
        return super().embedding(rounded), super().linear(rounded, None)

    def linear_by_head(self, weights: torch.Tensor) -> LinearFunction:
        return super().linear_by_head(torch.stack([self.rounded(weight, self.bits) for weight in weights]))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("model", ["gpt-oss", "llama4", "qwen3.5-moe", "deepseek-v3-yarn"])
def test_weights_rounded_when_they_are_loaded(tiny_model: TinyModels, model: str, bits: int) -> None:
    """Stacks of experts, in either order, and products by head are rounded as any other matrix."""
    cpp = choose_operators(
        CPU, torch.float32, 1, allow_compiled=True, has_int4_weights=bits == 4, has_int8_weights=bits == 8
    )
    with torch.inference_mode():
        plain, rounded, ours = (
            chunked_logits(tiny_model(model).folder, PROMPT, page_tokens=16, chunk=20, operators=operators)
            for operators in (TorchOperators(), Rounding(bits), cpp)
        )
    assert distance(ours, rounded, scale=plain) <= 0.1  # what is left is the rounding of activations
    assert bits == 8 or distance(rounded, plain, scale=plain) >= 0.1


def distance(logits: torch.Tensor, others: torch.Tensor, scale: torch.Tensor) -> float:
    """The median of the tokens, since roundings let a few of them choose other experts."""
    return float(((logits - others).square().mean(dim=1) / scale.square().mean(dim=1)).sqrt().median())
