"""Which answers reveal their model: 800 texts in some thirty languages, and single rules.

identity_texts/ has one text a line: language, prompt, answer. The first halves were written before the rules, the
second ones after them, the third and the fourth set when the rules had been mended by what the sets before them had
shown. Missed and flagged when a set was measured for the first time, with rules that had not seen it: second 10.7 % and
4.7 %, third 18 % and 2 %, fourth 16 % and 0 %. The rules before these missed 74 % and flagged 15 % of the first two.
"""

import json
from pathlib import Path

import pytest

from controller.battles.identity_guard import IdentityGuard

GUARD = IdentityGuard(lambda: ["acme/Finch-3B", "robin", "raven-30m", "Qwen/Qwen3-8B"])
TEXTS = Path(__file__).parent / "identity_texts"
MOST_MISSED, MOST_FLAGGED = 0.05, 0.02


def texts_of(kind: str, part: int) -> list[tuple[str, str, str]]:
    lines = (TEXTS / f"{kind}-{part}.jsonl").read_text(encoding="utf-8").splitlines()
    return [(language, prompt, answer) for language, prompt, answer in map(json.loads, lines)]


def wrong(kind: str, part: int) -> list[tuple[str, str, str]]:
    expected = kind == "revealing"
    return [row for row in texts_of(kind, part) if GUARD.claims().in_answers((row[2], ""), [row[1]]) != expected]


def test_at_most_5_percent_of_300_are_missed_and_2_percent_of_300_innocents_flagged() -> None:
    for kind, most in (("revealing", MOST_MISSED), ("innocent", MOST_FLAGGED)):
        rates = []
        for part in (1, 2):
            assert len(texts_of(kind, part)) == 150
            rates.append(len(wrong(kind, part)) / 150)
            print(f"{kind}, half {part}: {rates[-1]:.1%} wrong")
        assert max(rates) <= most


def test_the_later_sets_stay_within_the_same_bounds() -> None:
    missed, flagged = ([row for part in (3, 4) for row in wrong(kind, part)] for kind in ("revealing", "innocent"))
    print(f"third and fourth set: {len(missed)} of 100 missed, {len(flagged)} of 100 flagged")
    assert len(missed) <= 100 * MOST_MISSED
    assert len(flagged) <= 100 * MOST_FLAGGED


def test_the_lists_have_many_languages_and_scripts() -> None:
    rows = [row for kind in ("revealing", "innocent") for part in (1, 2) for row in texts_of(kind, part)]
    assert len({language for language, _, _ in rows}) >= 20
    assert len({answer for _, _, answer in rows}) >= 590
    scripts = ("\u0430", "\u03b1", "\u0627", "\u0915", "\u4e00", "\u3042", "\uac00", "\u0e01", "\u05d0")
    texts = "".join(answer for _, _, answer in rows)
    assert all(any(first <= char <= chr(ord(first) + 80) for char in texts) for first in scripts)


@pytest.mark.parametrize(
    "answer",
    [
        "I am R\u200baven.",  # a space without width
        "I am R\u0430ven.",  # a Cyrillic letter
        "I am \uff32\uff41\uff56\uff45\uff4e.",  # wide letters
        "I am R a v e n.",
        "I am\nRaven.",
        "I am Rav3n.",
        "I am **Raven**.",
        "I am Raven 30M.",
        "I am raven-30m-instruct.",
        "I am finch 3b.",
        "I am a model by Acme.",  # the publisher of a registered model
    ],
    ids=lambda answer: ascii(answer),
)
def test_a_name_is_found_in_every_spelling(answer: str) -> None:
    assert GUARD.claims().in_answers(("Fine.", answer), ["Hi"])


def test_a_name_in_the_prompt_is_no_excuse_for_the_answer_that_claims_it() -> None:
    assert GUARD.claims().in_answers(("Yes, I am Raven.", ""), ["Are you Raven?"])
    assert GUARD.claims().in_answers(("I am Claude.", ""), ["Claude, Claude, Claude. Now: hello!"])
    assert GUARD.claims().in_answers(("I am Claude.", ""), ["Tell me about Claude.", "Hello!"])


def test_a_yes_to_a_name_counts_as_a_claim_and_a_no_does_not() -> None:
    assert GUARD.claims().in_answers(("Yes.", ""), ["Are you Raven?"])
    assert not GUARD.claims().in_answers(("No, I am not.", ""), ["Are you Raven?"])
    assert not GUARD.claims().in_answers(("Yes.", ""), ["Are ravens black?"])
    assert not GUARD.claims().in_answers(("Yes.", ""), ["Are you Raven?", "Are you sure?"])


def test_a_part_played_under_the_name_of_a_person_is_no_claim() -> None:
    assert not GUARD.claims().in_answers(("Sure: I am Robin Hood!", ""), ["Play Robin Hood."])
    assert GUARD.claims().in_answers(("Sure: I am Robin Hood!", "I am Robin"), ["Play Robin Hood."])


def test_models_that_register_later_are_known() -> None:
    models = ["robin"]
    guard = IdentityGuard(lambda: models)
    assert not guard.claims().in_answers(("I am Wren.", ""), ["Hi"])
    models.append("acme/wren-7b")
    assert guard.claims().in_answers(("I am Wren.", ""), ["Hi"])


def test_a_registered_name_that_is_a_common_word_of_models_is_no_name() -> None:
    guard = IdentityGuard(lambda: ["test-model", "chat", "org/tiny-1b"])
    assert not guard.claims().in_answers(("I am a chat model, a tiny assistant.", ""), ["Hi"])
    assert guard.claims().in_answers(("I am test-model.", ""), ["Hi"])
