"""Findings of `agon doctor` about the C++ operators, the kernels of CUDA devices, libraries, the dtypes of keys and
values, and whose code runs a model."""

from pathlib import Path

import pytest

from cli.doctor import (
    _check_operators,
    draft_finding,
    kernels_finding,
    kv_dtype_finding,
    model_finding,
    prompt_attention_finding,
)
from cli.findings import Verdict
from engine.kernels.cpu.build import best_instruction_set, build


def test_built_operators_are_named_with_their_instruction_set() -> None:
    path = build(best_instruction_set())
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.OK
    assert finding.text == f"C++, {best_instruction_set()}: {path}"


def test_operators_that_are_not_built_yet_will_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.OK
    assert "at the first start" in finding.text


def test_without_a_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    (finding,) = _check_operators()
    assert finding.verdict is Verdict.HINT
    assert "apt install g++" in finding.text


def test_a_cuda_device_without_triton_is_served_slowly_and_it_says_what_to_install() -> None:
    assert kernels_finding("3.7.1", can_build=True).verdict is Verdict.OK
    missing = kernels_finding(None, can_build=True)
    assert missing.verdict is Verdict.HINT
    assert "pip install 'agon[gpu]'" in missing.text


def test_triton_that_cannot_build_its_launchers_is_a_problem() -> None:
    finding = kernels_finding("3.7.1", can_build=False)
    assert finding.verdict is Verdict.PROBLEM
    assert "apt install gcc python3-dev" in finding.text


@pytest.mark.parametrize(
    ("asked", "capability", "verdict"),
    [
        ("auto", None, Verdict.OK),
        ("int8", None, Verdict.OK),
        ("fp8", None, Verdict.PROBLEM),
        ("fp8", (8, 0), Verdict.PROBLEM),
        ("fp8", (9, 0), Verdict.OK),
    ],
)
def test_keys_and_values_that_this_machine_cannot_keep_are_a_problem(
    asked: str, capability: tuple[int, int] | None, verdict: Verdict
) -> None:
    finding = kv_dtype_finding(asked, capability)
    assert finding.verdict is verdict
    assert finding.text.startswith(f"{asked} (AGON_KV_DTYPE), usable here: auto, int8")


LIBRARIES = [("flash-attention", "3.0.0", "compute capability 8.0 (9.0 is needed)"), ("flashinfer", "0.6.18", None)]


@pytest.mark.parametrize(
    ("asked", "verdict", "part"),
    [
        ("auto", Verdict.OK, "flashinfer 0.6.18: compared with Triton when a model is loaded; the worker's log says"),
        (
            "flashinfer",
            Verdict.OK,
            "flash-attention 3.0.0: compute capability 8.0 (9.0 is needed); flashinfer 0.6.18: c",
        ),
        ("flash-attention", Verdict.HINT, "flashinfer 0.6.18: not asked for; Triton serves instead"),
        ("triton", Verdict.OK, "flashinfer 0.6.18: not asked for"),
    ],
)
def test_libraries_of_prompt_attention_are_listed_with_what_becomes_of_them(
    asked: str, verdict: Verdict, part: str
) -> None:
    finding = prompt_attention_finding(asked, LIBRARIES)
    assert finding.verdict is verdict
    assert finding.text.startswith(f"{asked} (AGON_PROMPT_ATTENTION); ")
    assert part in finding.text


def test_libraries_that_are_not_installed_are_no_problem() -> None:
    finding = prompt_attention_finding("auto", [("flash-attention", None, "not installed")])
    assert (finding.verdict, finding.text) == (
        Verdict.OK,
        "auto (AGON_PROMPT_ATTENTION); flash-attention: not installed",
    )


_SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "vocab_size": 64,
}


@pytest.mark.parametrize(
    ("architecture", "model_type", "verdict", "text"),
    [
        ("LlamaForCausalLM", "llama", Verdict.OK, "Agon's own code"),
        ("ApertusForCausalLM", "apertus", Verdict.HINT, "a decode step takes about twice as long"),
        ("BloomForCausalLM", "bloom", Verdict.PROBLEM, "alibi"),
    ],
)
def test_it_says_whose_code_runs_a_model(architecture: str, model_type: str, verdict: Verdict, text: str) -> None:
    finding = model_finding("tiny", {"architectures": [architecture], "model_type": model_type, **_SIZES})
    assert finding.verdict is verdict
    assert text in finding.text
    assert ("; weights: float32 " in finding.text) == (verdict is not Verdict.PROBLEM)


@pytest.mark.parametrize(
    ("asked", "verdict", "text"),
    [
        ("", Verdict.OK, "no tokens are proposed"),
        ("ngram", Verdict.OK, "n-grams propose tokens"),
        ("some/model", Verdict.OK, "a worker refuses it where its tokenizer is not the model's"),
        ("/no/such/folder", Verdict.PROBLEM, "there is no such folder"),
    ],
)
def test_doctor_says_what_proposes_tokens(asked: str, verdict: Verdict, text: str) -> None:
    finding = draft_finding(asked)
    assert finding.verdict is verdict
    assert text in finding.text
