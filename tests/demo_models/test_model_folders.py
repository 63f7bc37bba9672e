"""The folders in the repository: complete, small, loadable, and as accurate as their cards say."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from demo_models.train.architectures import TOOL_CONTEXT, ModelName
from demo_models.train.dialogues import Dialogue
from demo_models.train.evaluate import ChatModel
from demo_models.train.probes import TOOL_SKILLS, probed_skills, probes
from demo_models.train.skills import toolboxes, tools
from demo_models.train.tokenizer import render

FOLDER = Path(__file__).parents[2] / "demo_models"
ARCHITECTURES = {
    "finch": "GPT2LMHeadModel",
    "robin": "LlamaForCausalLM",
    "raven": "Qwen3ForCausalLM",
    "wren": "Qwen3ForCausalLM",
}
CONTEXTS = {"finch": 1024, "robin": 1024, "raven": 1024, "wren": TOOL_CONTEXT}
CHAT_ONLY = ("finch", "robin", "raven")
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
    assert config.get("max_position_embeddings", config.get("n_positions")) == CONTEXTS[name]
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


def test_the_models_that_only_chat_share_one_tokenizer() -> None:
    assert len({(FOLDER / name / "tokenizer.json").read_bytes() for name in CHAT_ONLY}) == 1


def test_wren_is_smaller_than_3_mib_and_its_marks_are_tokens() -> None:
    assert (FOLDER / "wren" / "model.safetensors").stat().st_size < 3 * 2**20
    tokenizer = Tokenizer.from_file(str(FOLDER / "wren" / "tokenizer.json"))
    marks = ("<|end|>", "<|tool|>", "<tool_call>", "</tool_call>", "<tools>", "</tools>")
    assert [tokenizer.encode(mark).ids for mark in marks] == [[4], [5], [6], [7], [8], [9]]
    assert tokenizer.decode([6], skip_special_tokens=True) == "<tool_call>"


@each_model
def test_the_card_shows_what_was_measured(name: ModelName) -> None:
    card = (FOLDER / name / "README.md").read_text()
    evaluation = _json(FOLDER / name / "evaluation.json")
    assert all(
        f"| {skill} | {evaluation[skill]['correct']:.1%} | {evaluation[skill]['probes']} |" in card
        for skill in probed_skills(name)
    )


@pytest.mark.parametrize("skill", ["arithmetic", "facts", "memory"])
def test_the_models_rank_as_promised(skill: str) -> None:
    finch, robin, raven = (_json(FOLDER / name / "evaluation.json")[skill]["correct"] for name in CHAT_ONLY)
    assert raven >= 0.85
    assert finch < robin <= raven


def test_raven_answers_held_out_probes() -> None:
    torch.set_num_threads(1)
    model = ChatModel(FOLDER / "raven")
    asked = [probe for skill in ("arithmetic", "facts", "memory", "first words") for probe in probes(skill, 6)]
    replies = list(model.replies([probe.messages for probe in asked]))
    assert sum(probe.is_correct(reply) for probe, reply in zip(asked, replies, strict=True)) >= len(asked) - 4


@pytest.mark.parametrize(("skill", "least"), [("tool calls", 0.8), ("tool answers", 0.8), ("no call", 0.9)])
def test_wren_calls_tools_when_it_should(skill: str, least: float) -> None:
    """50 held-out questions each; a call must be right to the last letter."""
    torch.set_num_threads(1)
    assert skill in TOOL_SKILLS
    model = ChatModel(FOLDER / "wren")
    asked = probes(skill, 50)
    replies = list(model.replies([probe.messages for probe in asked]))
    assert sum(probe.is_correct(reply) for probe, reply in zip(asked, replies, strict=True)) >= least * 50


def test_the_template_writes_tools_calls_and_results_as_they_were_trained() -> None:
    """Whatever a schema holds beside names, types and what is required."""
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / "wren")
    for number in range(100):
        rng = Random(number)
        box = toolboxes.toolbox(rng, "train", ("calculator", "time", "lookup"))
        call, answer = tools.asked(rng, "train", box)
        system = toolboxes.system_text(rng)
        called = json.loads(call.assistant.removeprefix("<tool_call>").removesuffix("</tool_call>"))
        messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        messages += [
            {"role": "user", "content": call.user},
            {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": called}]},
            {"role": "tool", "content": answer.user},
            {"role": "assistant", "content": answer.assistant},
        ]
        text = tokenizer.apply_chat_template(messages, tools=[_schema(tool) for tool in box], tokenize=False)
        assert text == render(Dialogue(toolboxes.tools_text(system, box), (call, answer)))


def _schema(tool: toolboxes.Tool) -> dict[str, Any]:
    """The tool as an agent sends it."""
    parameters = {
        "title": f"{tool.name}_args",
        "type": "object",
        "properties": {each.name: {"title": each.name.title(), "type": each.type} for each in tool.parameters},
        "required": [each.name for each in tool.parameters if each.required],
        "additionalProperties": False,
    }
    description = f"{tool.description}\n\nMore about it." if tool.description else ""
    function = {"name": tool.name, "description": description, "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}
