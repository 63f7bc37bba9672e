"""Adapters on real weights: logits and tokens are those of a model into which the adapter was merged by hand."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engine.adapters.random_adapter import write_random_adapter
from engine.kernels.choice import choose_operators
from engine.kernels.cpu.operators import CppOperators
from engine.kernels.operators import Operators
from engine.kernels.torch_operators import TorchOperators
from tests.engine.adapters.batches import AdaptedModel
from tests.engine.adapters.merged import merge
from tests.engine.checkpoints import TinyModels
from tests.engine.stepper import random_prompt

#: Plain, with head norms, with windows and post-norms, a hybrid with experts, fused projections, biases, channels in
#: pairs, a delta net, parallel parts.
MODELS = ("llama", "qwen3", "gemma3", "jamba", "phi3", "qwen2", "cohere", "qwen3.5", "phi")
TOLERANCE = 1e-4


def operators_of(name: str, dtype: torch.dtype = torch.float32) -> Operators:
    if name == "torch":
        return TorchOperators()
    operators = choose_operators(torch.device("cpu"), dtype, 1, allow_compiled=True)
    if not isinstance(operators, CppOperators):
        pytest.skip("the C++ operators cannot be built here")
    return operators


@dataclass
class Adapted:
    """A checkpoint, adapters for it, and checkpoints into which these were merged."""

    model: Path
    adapters: list[Path]
    merged: list[Path]


def adapted(model: Path, root: Path, count: int = 3) -> Adapted:
    """Adapters of mixed ranks: LoRA, rank-stabilised, and with magnitudes (DoRA), on all layers or on some."""
    made = Adapted(model, [], [])
    for index in range(count):
        folder = root / f"adapter-{index}"
        write_random_adapter(
            str(model),
            folder,
            rank=(4, 16, 7, 1, 64, 33, 128, 2)[index % 8],
            seed=index,
            size=0.3 if index % 3 != 1 else 0.05,
            targets=None if index % 2 == 0 else ("q_proj", "v_proj", "qkv_proj", "down_proj", "in_proj"),
            ranks={"down_proj": 3, "v_proj": 5} if index % 3 == 0 else None,
            use_rslora=index % 3 == 1,
            has_magnitudes=index % 3 == 2,
        )
        made.adapters.append(folder)
        made.merged.append(merge(model, folder, root / f"merged-{index}"))
    return made


@pytest.mark.parametrize("operators", ["torch", "compiled"])
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_several_adapters_in_one_step_are_those_of_merged_weights(
    tiny_model: TinyModels, tmp_path: Path, name: str, operators: str
) -> None:
    made = adapted(tiny_model(name).folder, tmp_path)
    prompts = [random_prompt(index, length) for index, length in enumerate((9, 1, 14, 5, 21))]
    slots = [1, 0, 2, 3, 1]
    model = AdaptedModel(made.model, operators_of(operators), made.adapters)
    together = model.logits(list(zip(prompts, slots, strict=True)))
    folders = [made.model, *made.merged]
    for prompt, slot, logits in zip(prompts, slots, together, strict=True):
        (wanted,) = AdaptedModel(folders[slot], operators_of(operators)).logits([(prompt, 0)])
        torch.testing.assert_close(logits, wanted, atol=TOLERANCE, rtol=TOLERANCE)
        if slot:  # the adapter does something
            (plain,) = model.logits([(prompt, 0)])
            assert (plain - wanted).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_bits_of_a_row_depend_neither_on_its_neighbours_nor_on_other_adapters(
    tiny_model: TinyModels, tmp_path: Path, dtype: torch.dtype
) -> None:
    made = adapted(tiny_model("gemma3").folder, tmp_path, count=4)
    prompts = [random_prompt(index, length) for index, length in enumerate((9, 1, 14, 5, 21, 1, 1))]
    slots = [1, 0, 2, 3, 1, 4, 0]
    model = AdaptedModel(made.model, operators_of("compiled", dtype), made.adapters, dtype=dtype)
    together = model.logits(list(zip(prompts, slots, strict=True)))
    base = AdaptedModel(made.model, operators_of("compiled", dtype), dtype=dtype)
    for prompt, slot, logits in zip(prompts, slots, together, strict=True):
        if slot == 0:
            assert torch.equal(logits, base.logits([(prompt, 0)])[0])
            continue
        assert torch.equal(logits, model.logits([(prompt, slot)])[0])
        alone = AdaptedModel(made.model, operators_of("compiled", dtype), [made.adapters[slot - 1]], dtype=dtype)
        assert torch.equal(logits, alone.logits([(prompt, 1)])[0])


def test_thirty_two_adapters_of_mixed_ranks_in_one_step(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("llama").folder, tmp_path, count=32)
    prompts = [random_prompt(index, 3 + index % 5) for index in range(32)]
    model = AdaptedModel(made.model, operators_of("compiled"), made.adapters)
    together = model.logits([(prompt, slot) for slot, prompt in enumerate(prompts, start=1)])
    for prompt, folder, logits in zip(prompts, made.merged, together, strict=True):
        (wanted,) = AdaptedModel(folder, operators_of("compiled")).logits([(prompt, 0)])
        torch.testing.assert_close(logits, wanted, atol=TOLERANCE, rtol=TOLERANCE)


def test_an_empty_slot_is_the_base(tiny_model: TinyModels, tmp_path: Path) -> None:
    made = adapted(tiny_model("llama").folder, tmp_path, count=2)
    model = AdaptedModel(made.model, operators_of("compiled"), made.adapters)
    prompt = random_prompt(0, 9)
    (plain,) = model.logits([(prompt, 0)])
    model.rack.unload(1)
    assert torch.equal(model.logits([(prompt, 1)])[0], plain)
    model.rack.load(1, made.adapters[1])
    first, second = model.logits([(prompt, 1), (prompt, 2)])
    assert torch.equal(first, second)
