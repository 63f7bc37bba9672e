"""The parts of the trainer that need no training: batches, schedule, attention, what is masked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from demo_models.train.architectures import (
    ASSISTANT_ID,
    CONTEXT,
    END_ID,
    ENDOFTEXT_ID,
    MODEL_NAMES,
    TOOL_ID,
    USER_ID,
    ModelName,
    architecture,
)
from demo_models.train.attention import short_causal_attention
from demo_models.train.batches import IGNORED, pool_batches, tokens_with_loss
from demo_models.train.dialogues import dialogue, tool_dialogue
from demo_models.train.recipe import RECIPES, WARMUP_STEPS, learning_rate_factor
from demo_models.train.tokenizer import render

FOLDER = Path(__file__).parents[2] / "demo_models"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(FOLDER / "raven" / "tokenizer.json"))


def test_pieces_joined_by_markers_are_what_the_rendered_dialogue_encodes_to(tokenizer: Tokenizer) -> None:
    examples = [dialogue(1, number) for number in range(200)]
    for example, (ids, _) in zip(examples, tokens_with_loss(tokenizer, examples), strict=True):
        if len(ids) < CONTEXT - 50:
            assert tokenizer.encode(render(example)).ids == ids


def test_dialogues_with_tools_fit_the_context_and_are_encoded_as_they_are_rendered() -> None:
    tool_tokenizer = Tokenizer.from_file(str(FOLDER / "wren" / "tokenizer.json"))
    examples = [tool_dialogue(1, number) for number in range(200)]
    encoded = tokens_with_loss(tool_tokenizer, examples)
    assert any("<tool_call>" in turn.assistant for example in examples for turn in example.turns)
    for example, (ids, flags) in zip(examples, encoded, strict=True):
        assert tool_tokenizer.encode(render(example)).ids[: len(ids)] == ids
        learnt = [token for token, flag in zip(ids, flags, strict=True) if flag]
        assert TOOL_ID not in learnt
        if any(turn.role == "tool" for turn in example.turns):
            assert len(ids) < CONTEXT - 50


def test_the_loss_looks_only_at_the_assistant(tokenizer: Tokenizer) -> None:
    example = dialogue(1, 3)
    ((ids, flags),) = tokens_with_loss(tokenizer, [example])
    wanted = tokenizer.decode(
        [token for token, flag in zip(ids, flags, strict=True) if flag], skip_special_tokens=False
    )
    assert wanted == "".join(f"{turn.assistant}<|end|>" for turn in example.turns)


def test_batches_repeat_and_hold_every_dialogue_within_the_context(tokenizer: Tokenizer) -> None:
    first, again = (pool_batches(tokenizer, RECIPES["raven"], 0) for _ in range(2))
    assert all(
        torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets) for a, b in zip(first, again, strict=True)
    )
    assert max(batch.inputs.shape[1] for batch in first) <= CONTEXT
    assert sum(len(batch.inputs) for batch in first) == 2048
    padding = 1 - sum(batch.num_tokens for batch in first) / sum(batch.inputs.numel() for batch in first)
    assert padding < 0.1


def test_targets_are_the_next_tokens(tokenizer: Tokenizer) -> None:
    batch = pool_batches(tokenizer, RECIPES["raven"], 1)[0]
    inside = (batch.targets[:, :-1] != IGNORED) & (batch.inputs[:, 1:] != ENDOFTEXT_ID)
    assert inside.any()
    assert torch.equal(batch.targets[:, :-1][inside], batch.inputs[:, 1:][inside])


def test_a_reply_starts_after_the_assistant_marker(tokenizer: Tokenizer) -> None:
    ((ids, flags),) = tokens_with_loss(tokenizer, [dialogue(1, 5)])
    starts = [i for i in range(1, len(ids)) if flags[i] and not flags[i - 1]]
    assert ids[0] in (USER_ID, 1)
    assert all(ids[i - 1] == ASSISTANT_ID for i in starts)
    assert ids[-1] == END_ID


def test_the_schedule_warms_up_stays_and_reaches_zero() -> None:
    assert learning_rate_factor(0, 0, 1000, 0.3) == pytest.approx(1 / WARMUP_STEPS)
    assert learning_rate_factor(WARMUP_STEPS, 600, 1000, 0.3) == 1.0
    assert learning_rate_factor(WARMUP_STEPS, 850, 1000, 0.3) == pytest.approx(0.5)
    assert learning_rate_factor(WARMUP_STEPS, 1000, 1000, 0.3) == 0.0


def test_short_attention_equals_torch_attention() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    mixed, _ = short_causal_attention(torch.nn.Module(), query, key, value, None)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(mixed, expected.transpose(1, 2), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_each_recipe_has_an_architecture_that_fits_the_tokenizer(name: ModelName) -> None:
    tokenizer = Tokenizer.from_file(str(FOLDER / name / "tokenizer.json"))
    auto_class: Any = AutoModelForCausalLM
    model = auto_class.from_config(architecture(name))
    assert model.get_input_embeddings().weight.shape[0] == tokenizer.get_vocab_size() == 2048
    assert RECIPES[name].tokens > 1_000_000
