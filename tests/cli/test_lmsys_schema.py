"""Votes in the public schema, and files of votes."""

import json

import pytest

from cli.errors import CliError
from cli.lmsys_schema import from_arena_schema, to_arena_schema
from cli.votes import Schema, parse_votes
from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import VotedSide, VoteRecord


def record(**changes: object) -> VoteRecord:
    fields: dict[str, object] = {
        "vote_id": "5-0",
        "battle_id": "b-1",
        "time": 1700000000.5,
        "mode": "anonymous",
        "outcome": "a",
        "a": VotedSide(model="finch", revision="r1"),
        "b": VotedSide(model="raven", revision="r2"),
        "turns": 2,
        "voter": "v-1",
    }
    return VoteRecord.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("outcome", "winner"), [("a", "model_a"), ("b", "model_b"), ("tie", "tie"), ("both_bad", "tie (bothbad)")]
)
def test_outcomes_have_the_public_names(outcome: Outcome, winner: str) -> None:
    assert to_arena_schema(record(outcome=outcome))["winner"] == winner


def test_the_fields_are_those_of_the_public_data_set() -> None:
    texts = (ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello"))
    row = to_arena_schema(record(conversations={"a": texts, "b": texts}))
    assert set(row) == {
        "question_id", "model_a", "model_b", "winner", "judge", "conversation_a", "conversation_b", "turn", "anony",
        "language", "tstamp",
    }  # fmt: skip
    assert row["conversation_a"] == [{"content": "Hi", "role": "user"}, {"content": "Hello", "role": "assistant"}]


def test_what_the_schema_can_say_survives_both_ways() -> None:
    vote = record(mode="named", flags=("named",), outcome="both_bad")
    back = from_arena_schema(to_arena_schema(vote), number=1)
    kept = ("battle_id", "time", "mode", "outcome", "turns", "voter", "flags")
    assert {name: getattr(back, name) for name in kept} == {name: getattr(vote, name) for name in kept}
    assert (back.a.model, back.b.model) == ("finch", "raven")


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"winner": "nobody"}, "winner is 'nobody'"), ({"tstamp": "late"}, "late"), ({"model_a": None}, "model")],
)
def test_a_row_that_is_no_vote_is_refused_with_the_reason(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        from_arena_schema({**to_arena_schema(record()), **change}, number=1)


def test_a_missing_field_is_named() -> None:
    row = to_arena_schema(record())
    del row["winner"]
    with pytest.raises(ValueError, match="'winner' is missing"):
        from_arena_schema(row, number=1)


def test_a_bad_line_of_a_file_is_counted() -> None:
    text = record().model_dump_json(exclude_none=True) + "\n\n{}\n"
    with pytest.raises(CliError, match="line 3 is not a vote"):
        list(parse_votes(text, Schema.AGON))


def test_a_log_in_the_public_schema_is_recognised_and_the_flag_for_it_named() -> None:
    text = json.dumps(to_arena_schema(record()))
    with pytest.raises(CliError, match="--format arena"):
        list(parse_votes(text, Schema.AGON))


def test_only_a_newline_ends_a_line() -> None:
    """A text may hold any other character that Python takes for a line break."""
    vote = record(comment="one\u2028two\x85three\x0cfour")
    text = vote.model_dump_json(exclude_none=True) + "\n"
    assert list(parse_votes(text, Schema.AGON)) == [vote]
