"""The prompts that pages begin with fit the served models and the visitor's language."""

from pathlib import Path

import pytest

from tests.webui.fake_answers import MODELS
from tests.webui.fake_controller import FakeArena
from webui import texts
from webui.client import ControllerClient
from webui.starter_prompts import StarterPrompts, built_in, read_file
from webui.visitors import Visitor
from wire.model_cards import BoardCard

ADA = Visitor("203.0.113.7")
BUILT_IN = texts.EXAMPLES
FILE = f"""
[[prompts]]
text = "What is a fugue?"

[[prompts]]
text = "Was ist eine Fuge?"
language = "de"

[[prompts]]
text = "Show me what {MODELS[1]} can do."
models = ["{MODELS[1][:4]}*"]

[[prompts]]
text = "For a model that is away."
models = ["nobody-*"]
"""


async def offered(controller: str, file: Path | None = None, language: str = "en") -> tuple[str, ...]:
    client = ControllerClient(controller)
    try:
        return await StarterPrompts(client, read_file(file)).of(ADA, language)
    finally:
        await client.aclose()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.toml"
    path.write_text(FILE)
    return path


async def test_the_operators_prompts_fit_models_and_language(controller: str, file: Path) -> None:
    assert await offered(controller, file) == (f"Show me what {MODELS[1]} can do.", "What is a fugue?")
    assert (await offered(controller, file, "de"))[0] == "Was ist eine Fuge?"


async def test_prompts_of_models_that_are_away_are_not_offered(arena: FakeArena, controller: str, file: Path) -> None:
    arena.models = MODELS[:1]
    assert await offered(controller, file) == ("What is a fugue?",)


async def test_the_cards_of_served_models_take_turns(arena: FakeArena, controller: str) -> None:
    arena.cards = [
        BoardCard(model=MODELS[0], starter_prompts=("first of one", "second of one")),
        BoardCard(model=MODELS[1], starter_prompts=("first of two",)),
        BoardCard(model="away", starter_prompts=("never",)),
    ]
    assert await offered(controller) == ("first of one", "first of two", "second of one")


async def test_without_file_and_cards_the_built_in_prompts_are_offered(controller: str) -> None:
    assert await offered(controller) == BUILT_IN


async def test_the_built_in_prompts_are_in_a_language_that_all_served_models_answer_in(
    arena: FakeArena, controller: str
) -> None:
    arena.cards = [BoardCard(model=name, languages=("de", "it")) for name in arena.models]
    assert await offered(controller, language="de") == built_in("de") != BUILT_IN
    assert await offered(controller, language="it") == BUILT_IN, "no page is written in it"
    assert await offered(controller, language="fr") == BUILT_IN


async def test_one_model_that_knows_english_only_keeps_the_built_in_prompts_english(
    arena: FakeArena, controller: str
) -> None:
    arena.cards = [BoardCard(model=name, languages=("de",)) for name in arena.models[1:]]
    assert await offered(controller, language="de") == BUILT_IN


async def test_without_a_controller_the_prompts_that_need_no_model_are_offered(file: Path) -> None:
    assert await offered("http://127.0.0.1:9", file) == ("What is a fugue?",)
    assert await offered("http://127.0.0.1:9") == BUILT_IN


@pytest.mark.parametrize("text", ["prompts = 3", "[[prompts]]\ntext = ''", "[[prompts]]\nwords = 'x'", "no toml"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prompts.toml"
    path.write_text(text)
    with pytest.raises(ValueError):
        read_file(path)
