"""Pseudonyms of voters and keys of prompts."""

from controller.battles.voters import Voters

VOTERS = Voters("secret")


def test_a_voter_keeps_the_pseudonym_for_a_day_and_loses_it_the_next() -> None:
    assert VOTERS.pseudonym("1.2.3.4", "2026-11-20") == VOTERS.pseudonym("1.2.3.4", "2026-11-20")
    assert VOTERS.pseudonym("1.2.3.4", "2026-11-20") != VOTERS.pseudonym("1.2.3.4", "2026-11-21")
    assert VOTERS.pseudonym("1.2.3.4", "2026-11-20") != VOTERS.pseudonym("1.2.3.5", "2026-11-20")


def test_pseudonyms_depend_on_the_secret() -> None:
    assert Voters("other").pseudonym("1.2.3.4", "2026-11-20") != VOTERS.pseudonym("1.2.3.4", "2026-11-20")


def test_replicas_without_a_voter_key_derive_the_same_one() -> None:
    first, second = (Voters.from_settings("", "admin") for _ in range(2))

    assert first.pseudonym("1.2.3.4", "d") == second.pseudonym("1.2.3.4", "d")


def test_prompts_that_differ_in_case_and_blanks_have_one_key() -> None:
    assert VOTERS.prompt_key(" Hello  World\n") == VOTERS.prompt_key("hello world")
    assert VOTERS.prompt_key("hello world") != VOTERS.prompt_key("hello world!")
