"""The three folders in the repository: complete, small, loadable, and as accurate as their cards say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from demo_models.train.evaluate import ChatModel
from demo_models.train.probes import PROBED_SKILLS, probes

FOLDER = Path(__file__).parents[2] / "demo_models"
ARCHITECTURES = {"finch": "GPT2LMHeadModel", "robin": "LlamaForCausalLM", "raven": "Qwen3ForCausalLM"}
FILES = (
    "README.md",
    "config.json",
    "evaluation.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "training.json",
)
each_model = pytest.mark.parametrize("name", ARCHITECTURES)


def _json(path: Path) -> Any:
    return json.loads(path.read_text())


@each_model
def test_a_folder_holds_all_its_files(name: str) -> None:
    assert [file for file in FILES if not (FOLDER / name / file).is_file()] == []


def test_all_models_together_stay_small() -> None:
    assert sum(file.stat().st_size for name in ARCHITECTURES for file in (FOLDER / name).iterdir()) < 32 * 2**20


@each_model
def test_weights_are_bf16(name: str) -> None:
    with safe_open(FOLDER / name / "model.safetensors", "pt") as weights:
        assert {weights.get_tensor(key).dtype for key in weights.keys()} == {torch.bfloat16}  # noqa: SIM118 (no mapping)


@each_model
def test_config_names_the_architecture_and_the_end_of_a_reply(name: str) -> None:
    config = _json(FOLDER / name / "config.json")
    assert config["architectures"] == [ARCHITECTURES[name]]
    assert config["dtype"] == "bfloat16"
    assert config.get("max_position_embeddings", config.get("n_positions")) == 1024
    tokenizer = Tokenizer.from_file(str(FOLDER / name / "tokenizer.json"))
    assert config["eos_token_id"] == tokenizer.token_to_id("<|end|>")
    assert _json(FOLDER / name / "generation_config.json")["eos_token_id"] == config["eos_token_id"]


@each_model
def test_auto_classes_load_the_folder(name: str) -> None:
    assert AutoConfig.from_pretrained(FOLDER / name).vocab_size == 2048
    model: Any = AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype=torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) == _json(FOLDER / name / "training.json")["parameters"]
    assert model.get_output_embeddings().weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()


@each_model
def test_the_chat_template_renders_all_roles_and_the_prompt(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / name)
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi!"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Bye!"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert (
        text == "<|system|>Be kind.<|end|><|user|>Hi!<|end|><|assistant|>Hello!<|end|><|user|>Bye!<|end|><|assistant|>"
    )


@pytest.mark.parametrize(
    "text", ["Hello, world!", "17+25=42", "  two  spaces\n", "Gr\u00fc\u00dfe \U0001f600", "\u65e5\u672c", "a\x00b", ""]
)
def test_the_tokenizer_gives_any_text_back(text: str) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "raven" / "tokenizer.json"))
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_tokenizer_splits_digits_and_has_one_token_per_marker() -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / "raven" / "tokenizer.json"))
    assert tokenizer.encode("12345").tokens == list("12345")
    markers = ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
    assert [tokenizer.encode(marker).ids for marker in markers] == [[0], [1], [2], [3], [4]]


def test_the_models_share_one_tokenizer() -> None:
    assert len({(FOLDER / name / "tokenizer.json").read_bytes() for name in ARCHITECTURES}) == 1


@each_model
def test_the_card_shows_what_was_measured(name: str) -> None:
    card = (FOLDER / name / "README.md").read_text()
    evaluation = _json(FOLDER / name / "evaluation.json")
    assert all(
        f"| {skill} | {evaluation[skill]['correct']:.1%} | {evaluation[skill]['probes']} |" in card
        for skill in PROBED_SKILLS
    )


@pytest.mark.parametrize("skill", ["arithmetic", "facts", "memory"])
def test_the_models_rank_as_promised(skill: str) -> None:
    finch, robin, raven = (_json(FOLDER / name / "evaluation.json")[skill]["correct"] for name in ARCHITECTURES)
    assert raven >= 0.85
    assert finch < robin <= raven


def test_raven_answers_held_out_probes() -> None:
    torch.set_num_threads(1)
    model = ChatModel(FOLDER / "raven")
    asked = [probe for skill in ("arithmetic", "facts", "memory", "first words") for probe in probes(skill, 6)]
    replies = list(model.replies([probe.messages for probe in asked]))
    assert sum(probe.is_correct(reply) for probe, reply in zip(asked, replies, strict=True)) >= len(asked) - 4
