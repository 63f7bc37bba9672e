"""The generator: deterministic, without held-out problems, without names of makers."""

from __future__ import annotations

import re
from random import Random

import pytest

from demo_models.train.dialogues import SKILLS, Dialogue, dialogue, mistype
from demo_models.train.probes import PROBED_SKILLS, probes
from demo_models.train.skills import arithmetic, facts, memory
from demo_models.train.turns import Turn, split_of

SEED = 20
MAKERS = re.compile(
    r"\b(finch|raven|openai|anthropic|google|meta|mistral|qwen|deepseek|agon|gpt-?\d?|chatgpt|claude|gemini|llama)\b",
    re.I,
)
FACT_TEST_WORDINGS = (
    facts.CAPITAL_TEST,
    facts.CONTINENT_TEST,
    facts.COUNTRY_OF_TEST,
    facts.SOUND_TEST,
    facts.LEG_TEST,
    facts.COLOUR_TEST,
    facts.OPPOSITE_TEST,
)


@pytest.fixture(scope="module")
def dialogues() -> list[Dialogue]:
    return [dialogue(SEED, number) for number in range(10_000)]


@pytest.fixture(scope="module")
def turns(dialogues: list[Dialogue]) -> list[Turn]:
    return [turn for each in dialogues for turn in each.turns]


def test_a_dialogue_depends_only_on_seed_and_number() -> None:
    backwards = [dialogue(SEED, number) for number in reversed(range(50))]
    assert backwards[::-1] == [dialogue(SEED, number) for number in range(50)]


def test_another_seed_gives_other_dialogues() -> None:
    assert [dialogue(1, number) for number in range(20)] != [dialogue(2, number) for number in range(20)]


def test_no_held_out_sum_or_difference_is_ever_answered_in_training(turns: list[Turn]) -> None:
    answered = [re.search(r"(\d+) ([+-]) (\d+) =", turn.assistant) for turn in turns]
    pairs = [(m[2], int(m[1]), int(m[3])) for m in answered if m]
    keys = [
        arithmetic.sum_key(a, b) if sign == "+" else arithmetic.difference_key(a, b)
        for sign, a, b in pairs
        if max(a, b) > arithmetic.SMALL
    ]
    assert len(keys) > 1000
    assert {split_of(key) for key in keys} == {"train"}


def test_no_held_out_value_is_remembered_in_training(turns: list[Turn]) -> None:
    told = [turn for turn in turns if turn.assistant.startswith(("Your name is ", "You live in ", "Your number is "))]
    values = [turn.answer for turn in told if turn.answer != "not told me"]
    assert len(values) > 500
    assert {split_of(f"memory:{value.lower()}") for value in values} == {"train"}


def test_held_out_wordings_of_facts_are_not_in_training(turns: list[Turn]) -> None:
    held_out = [
        re.compile(
            re.escape(wording).replace(r"\{", "{").replace(r"\}", "}").format(c=".+", t=".+", a=".+", o=".+", w=".+")
        )
        for wordings in FACT_TEST_WORDINGS
        for wording in wordings
    ]
    asked = {turn.user for turn in turns if turn.answer}
    assert not [user for user in asked for wording in held_out if wording.fullmatch(user)]


def test_some_problems_are_held_out() -> None:
    sums = [split_of(arithmetic.sum_key(a, b)) for a in range(100) for b in range(a + 1)]
    assert 0.07 < sums.count("test") / len(sums) < 0.13


def test_every_answer_in_training_satisfies_its_own_probe(turns: list[Turn]) -> None:
    for skill in PROBED_SKILLS:
        assert probes(skill, 40) == probes(skill, 40)
    assert all(turn.answer.lower() in turn.assistant.lower() for turn in turns)


def test_sums_in_training_are_right(turns: list[Turn]) -> None:
    sums = [match for turn in turns if (match := re.search(r"(\d+) \+ (\d+) = (-?\d+)\.$", turn.assistant))]
    assert all(int(m[1]) + int(m[2]) == int(m[3]) for m in sums)


def test_the_assistant_never_names_itself_or_a_maker(turns: list[Turn]) -> None:
    assert not [turn.assistant for turn in turns if MAKERS.search(turn.assistant)]


def test_all_text_is_ascii_and_no_line_is_empty(turns: list[Turn]) -> None:
    assert all(turn.user and turn.assistant and (turn.user + turn.assistant).isascii() for turn in turns)


def test_mistyping_leaves_digits_alone() -> None:
    rng = Random(0)
    for _ in range(500):
        turn = arithmetic.sample(rng, "train")
        assert re.findall(r"\d+", mistype(rng, turn)) == re.findall(r"\d+", turn.user)


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_is_deterministic_in_its_random_numbers(skill: str) -> None:
    sample = SKILLS[skill][0]
    assert [sample(Random(i), "test") for i in range(20)] == [sample(Random(i), "test") for i in range(20)]


def test_a_notebook_answers_with_the_latest_value() -> None:
    rng, notebook = Random(3), memory.Notebook("train")
    notebook.tell(rng, "city")
    latest = notebook.tell(rng, "city").answer
    assert latest in notebook.ask(rng, "city").assistant


def test_a_notebook_admits_what_it_was_not_told() -> None:
    assert "not told me" in memory.Notebook("train").ask(Random(0), "name").assistant
