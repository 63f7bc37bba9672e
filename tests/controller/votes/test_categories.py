"""Categories and languages of prompts, by rules."""

import pytest

from controller.votes.categories import categories_of
from controller.votes.languages import language_of
from tests.controller.support.arena import Arena


@pytest.mark.parametrize(
    ("prompt", "category"),
    [
        ("Write a python function that reverses a list", "code"),
        ("What does this do?\n```\nfor(;;);\n```", "code"),
        ("def f(x):\n    return x\nIs this right?", "code"),
        ("Solve for x: 3x + 4 = 10", "maths"),
        (r"Evaluate $\int_0^1 x^2 dx$", "maths"),
        ("What is 17 * 23?", "maths"),
        ("Berechne die Ableitung von sin", "maths"),
        ("Write me a short story about a lighthouse", "creative"),
        ("Schreibe ein Gedicht über den Herbst", "creative"),
        ("写一首关于月亮的诗", "creative"),
        ("Écris une chanson pour ma fille", "creative"),
        ("Hi there", "short_prompt"),
        ("word " * 400, "long_prompt"),
    ],
)
def test_a_prompt_of_a_kind_is_known(prompt: str, category: str) -> None:
    assert category in categories_of((prompt,), ("a" * 300, "b" * 300))


@pytest.mark.parametrize(
    "prompt",
    [
        "Why is the sky blue, and why is it red in the evening when the sun goes down?",
        "Summarise the story of the French revolution in about five sentences for a pupil",
        "My flight was cancelled yesterday; which rights do I have as a passenger in the EU?",
        "Is it cheaper to buy or to rent a house if I stay for 5 or 6 years in one town?",
    ],
)
def test_a_plain_question_is_of_no_kind(prompt: str) -> None:
    assert categories_of((prompt,), ("a" * 300, "b" * 300)) == ()


def test_the_length_of_both_answers_counts() -> None:
    prompt = ("Why is the sky blue, and why is it red in the evening when the sun goes down?",)

    assert categories_of(prompt, ("yes", "no")) == ("short_answers",)
    assert categories_of(prompt, ("a" * 3000, "b" * 1500)) == ("long_answers",)
    assert categories_of(prompt, ("```\nx = 1\n```" + "a" * 400, "no")) == ("code",)


def test_a_later_message_counts_for_the_kind_and_not_for_the_length() -> None:
    prompts = ("Why is the sky blue, and why is it red in the evening?", "Now write a poem about it")

    assert categories_of(prompts, ("a" * 500, "b")) == ("creative",)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How do I write a good letter to my landlord?", "en"),
        ("Wie schreibe ich einen guten Brief an den Vermieter?", "de"),
        ("Comment écrire une lettre pour mon propriétaire ?", "fr"),
        ("¿Cómo escribo una carta para el dueño?", "es"),
        ("Come scrivo una lettera per il padrone di casa?", "it"),
        ("Como escreva uma carta para o dono?", "pt"),
        ("Hoe schrijf ik een brief voor de huisbaas?", "nl"),
        ("Jak napisać list do właściciela? Proszę, nie za długi.", "pl"),
        ("Ev sahibine nas\u0131l bir mektup yazar\u0131m?", "tr"),
        (
            "Как написать письмо?",
            "ru",
        ),
        ("Як написати їй лист?", "uk"),
        ("如何写信\uff1f", "zh"),
        ("手紙の書き方を教えて", "ja"),
        ("편지를 어떻게 쓰나요?", "ko"),
        ("كيف أكتب رسالة؟", "ar"),
        ("पत्र कैसे लिखें?", "hi"),
        ("2 + 2 = ?", None),
        ("", None),
        ("zzz qqq", None),
    ],
)
def test_the_language_of_a_prompt(text: str, language: str | None) -> None:
    assert language_of(text) == language


def test_a_word_of_another_script_does_not_change_the_language() -> None:
    assert language_of("What is the meaning of the word λόγος in the gospel of John?") == "en"


async def test_a_vote_records_the_language_and_the_kinds_and_its_boards_count_it(arena: Arena) -> None:
    await arena.add_two()
    battle = await arena.create()
    await arena.turn(
        battle["id"], "Schreibe mir ein kurzes Gedicht, wie es die Kinder in der Schule lernen und nicht vergessen"
    )
    await arena.vote(battle["id"], "a")

    [record] = await arena.vote_log()
    board = (await arena.client.get("/arena/leaderboard", params={"board": "creative"})).json()

    assert record["language"] == "de"
    assert "creative" in record["categories"]
    assert board["num_votes"] == 1
    assert {"creative", *record["categories"]} <= set(board["boards"])
