"""Votes in the public schemas: what a schema can say survives both ways, and a row that is no vote says why."""

from datetime import UTC, datetime
from typing import Any

import pytest

from cli.errors import CliError
from cli.formats import arena_rows, conversations
from cli.formats.fields import messages_of, unix_time
from cli.formats.schemas import TO_ROW, Schema, SourceSchema, detect, from_row
from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import StyleCounts, VotedSide, VoteRecord

_TEXTS = (ChatMessage(role="user", content="Hi"), ChatMessage(role="assistant", content="Hello"))


def record(**changes: object) -> VoteRecord:
    fields: dict[str, object] = {
        "vote_id": "5-0",
        "battle_id": "b-1",
        "time": 1700000000.5,
        "mode": "anonymous",
        "outcome": "a",
        "a": VotedSide(model="finch", revision="r1", style=StyleCounts(tokens=11, headers=1, lists=2, bold=3)),
        "b": VotedSide(model="raven", revision="r2", style=StyleCounts(tokens=22)),
        "turns": 2,
        "voter": "v-1",
        "language": "fr",
    }
    return VoteRecord.model_validate({**fields, **changes})


#: One row of each public data set, with the field names and value shapes of its card.
_ROWS: dict[str, tuple[SourceSchema, dict[str, Any]]] = {
    "chatbot_arena_conversations": (
        SourceSchema.ARENA,
        {
            "question_id": "q1", "model_a": "finch", "model_b": "raven", "winner": "tie (bothbad)",
            "judge": "arena_user_7",
            "conversation_a": [{"content": "Hi", "role": "user"}, {"content": "Hello", "role": "assistant"}],
            "conversation_b": [{"content": "Hi", "role": "user"}, {"content": "Hey", "role": "assistant"}],
            "turn": 1, "anony": True, "language": "English", "tstamp": 1700000000.5, "toxic_chat_tag": {},
        },
    ),
    "arena-human-preference-140k": (
        SourceSchema.PREFERENCES,
        {
            "id": "q1", "model_a": "finch", "model_b": "raven", "winner": "both_bad",
            "evaluation_session_id": "arena_user_7", "evaluation_order": 1,
            "conversation_a": [
                {"role": "user", "content": [{"type": "text", "text": "Hi", "image": None}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]},
            ],
            "conversation_b": [
                {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image", "image": "x"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "Hey"}]},
            ],
            "conv_metadata": {
                "sum_assistant_a_tokens": 11, "header_count_a": {"h1": 0, "h2": 1},
                "list_count_a": {"ordered": 1, "unordered": 1}, "bold_count_a": {"**": 2, "__": 1},
                "sum_assistant_b_tokens": 22, "header_count_b": {}, "list_count_b": None, "turns": 1,
            },
            "category_tag": {}, "language": "en", "is_code": False,
            "timestamp": datetime(2023, 11, 14, 22, 13, 20, 500_000),
        },
    ),
    "comparia-votes": (
        SourceSchema.COMPARIA,
        {
            "id": 9, "conversation_pair_id": "q1", "timestamp": "2023-11-14T22:13:20.5+00:00", "model_a_name": "finch",
            "model_b_name": "raven", "both_equal": True, "chosen_model_name": None, "visitor_id": "arena_user_7",
            "conversation_a": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
            "conversation_b": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hey"}],
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _ROWS)
def test_a_row_of_a_public_data_set_is_recognised_and_read(name: str) -> None:
    schema, row = _ROWS[name]
    assert detect(row) is schema
    [vote] = from_row(schema, row, number=3)
    assert isinstance(vote, VoteRecord)
    assert (vote.vote_id, vote.battle_id, vote.time, vote.voter) == ("0-3", "q1", 1700000000.5, "arena_user_7")
    assert (vote.a.model, vote.b.model, vote.mode, vote.turns, vote.flags) == ("finch", "raven", "anonymous", 1, ())
    assert vote.outcome == ("tie" if name == "comparia-votes" else "both_bad")
    assert vote.language == (None if name == "comparia-votes" else "en")
    assert vote.conversations is not None
    assert [message.content for message in vote.conversations["b"]] == ["Hi", "Hey"]


def test_style_counts_by_kind_are_summed() -> None:
    [vote] = arena_rows.from_row(_ROWS["arena-human-preference-140k"][1], number=1)
    assert vote.a.style == StyleCounts(tokens=11, headers=1, lists=2, bold=3)
    assert vote.b.style == StyleCounts(tokens=22)


def test_a_row_without_style_counts_has_none() -> None:
    [vote] = arena_rows.from_row(_ROWS["chatbot_arena_conversations"][1], number=1)
    assert (vote.a.style, vote.b.style) == (StyleCounts(), StyleCounts())


@pytest.mark.parametrize("schema", [Schema.ARENA, Schema.PREFERENCES])
@pytest.mark.parametrize("outcome", ["a", "b", "tie", "both_bad"])
def test_what_a_public_schema_can_say_survives_both_ways(schema: Schema, outcome: Outcome) -> None:
    vote = record(outcome=outcome, conversations={"a": _TEXTS, "b": _TEXTS})
    row = TO_ROW[schema](vote)
    assert detect(row) == schema.value
    [back] = from_row(SourceSchema(schema.value), row, number=1)
    assert isinstance(back, VoteRecord)
    kept = ("battle_id", "time", "outcome", "turns", "voter", "language", "conversations")
    assert {name: getattr(back, name) for name in kept} == {name: getattr(vote, name) for name in kept}
    assert (back.a.model, back.b.model) == ("finch", "raven")
    if schema is Schema.PREFERENCES:
        assert (back.a.style, back.b.style) == (vote.a.style, vote.b.style)


def test_votes_on_named_models_stay_unrated_in_the_older_schema() -> None:
    [back] = arena_rows.from_row(conversations.to_row(record(mode="named", flags=("named",))), number=1)
    assert (back.mode, back.flags) == ("named", ("named",))


@pytest.mark.parametrize(("schema", "both_bad"), [(Schema.ARENA, "tie (bothbad)"), (Schema.PREFERENCES, "both_bad")])
def test_each_schema_has_its_own_word_for_both_bad(schema: Schema, both_bad: str) -> None:
    assert TO_ROW[schema](record(outcome="both_bad"))["winner"] == both_bad


def test_the_fields_are_those_of_the_public_data_set() -> None:
    row = conversations.to_row(record(conversations={"a": _TEXTS, "b": _TEXTS}))
    assert set(row) == {
        "question_id", "model_a", "model_b", "winner", "judge", "conversation_a", "conversation_b", "turn", "anony",
        "language", "tstamp",
    }  # fmt: skip
    assert row["conversation_a"] == [{"content": "Hi", "role": "user"}, {"content": "Hello", "role": "assistant"}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"winner": "nobody"}, "winner is 'nobody'"),
        ({"tstamp": "late"}, "late"),
        ({"tstamp": True}, "True is no time"),
        ({"model_a": None}, "model"),
        ({"conversation_a": [1], "conversation_b": [1]}, "line 7"),
    ],
)
def test_a_row_that_is_no_vote_is_refused_with_its_number_and_the_reason(
    change: dict[str, object], reason: str
) -> None:
    with pytest.raises(CliError, match="line 7 is not a vote") as refused:
        from_row(SourceSchema.ARENA, {**conversations.to_row(record()), **change}, number=7)
    assert reason in str(refused.value)


def test_a_missing_field_is_named() -> None:
    row = conversations.to_row(record())
    del row["winner"]
    with pytest.raises(CliError, match="'winner' is missing"):
        from_row(SourceSchema.ARENA, row, number=1)


def test_fields_of_no_known_schema_are_named() -> None:
    with pytest.raises(CliError, match="its fields are chosen, refused"):
        detect({"chosen": "x", "refused": "y"})


@pytest.mark.parametrize(
    "value",
    [
        1700000000.5, 1700000000500, "1700000000.5", "2023-11-14T22:13:20.500", "2023-11-14 22:13:20.500 UTC",
        "2023-11-14T23:13:20.5+01:00", datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC),
    ],
)  # fmt: skip
def test_times_of_all_kinds_are_seconds(value: object) -> None:
    assert unix_time(value) == 1700000000.5


def test_a_conversation_may_be_json() -> None:
    assert messages_of('[{"role": "user", "content": "Hi"}]') == _TEXTS[:1]
