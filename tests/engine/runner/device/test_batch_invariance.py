"""With batch_invariant, tokens and log probabilities have the same bits alone and in company, in graphs and in steps of
any chunks, over the Triton kernels in their interpreter (on a device where there is one)."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform", allow_module_level=True)

from engine.batch import SampledToken
from engine.errors import CheckpointError
from engine.sampling_params import SamplingParams
from tests.engine.runner.device.interpreted import small, triton_runner
from tests.engine.stepper import Running, Stepper, random_prompt

ASKED = SamplingParams(temperature=0.8, top_p=0.9, logprobs=2)
PROMPT, OTHER, NUM_TOKENS = random_prompt(1, 6), random_prompt(2, 4), 2


def drawn(folder: Path, *, chunk: int, company: bool, is_eager: bool = True) -> list[SampledToken]:
    """What PROMPT goes on with."""
    runner = triton_runner(folder, batch_invariant=True, max_batched_tokens=10, enforce_eager=is_eager)
    stepper = Stepper(runner, chunk=chunk)
    ours, other = Running(0, PROMPT, ASKED, seed=5), Running(1, OTHER, ASKED, seed=9)
    while len(ours.drawn) < NUM_TOKENS:
        stepper.step([ours, other] if company else [ours])
    return ours.drawn


def test_bits_depend_neither_on_neighbours_nor_on_chunks(tmp_path: Path) -> None:
    folder = small("llama", tmp_path).folder
    alone = drawn(folder, chunk=10, company=False)
    assert drawn(folder, chunk=10, company=True, is_eager=False) == alone
    assert drawn(folder, chunk=4, company=True) == alone


@pytest.mark.parametrize(
    ("name", "settings", "what"),
    [
        ("mixtral", {}, "models with experts"),
        ("qwen3.5", {}, "models with recurrent layers"),
        ("llama", {"weights": "int4"}, "quantised weights"),
    ],
)
def test_what_cannot_be_invariant_is_refused(tmp_path: Path, name: str, settings: dict[str, Any], what: str) -> None:
    with pytest.raises(CheckpointError, match=what):
        triton_runner(small(name, tmp_path).folder, batch_invariant=True, **settings)
