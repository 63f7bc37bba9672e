"""Rows of public data sets, with the field names and value shapes in which they are published."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.formats.log_files import read_entries
from cli.formats.schemas import InvalidRow, SourceSchema, detect, from_row
from wire.feedback import FeedbackRecord
from wire.votes import VoteRecord

_TEXTS = {side: [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": f"Hello {side}"}] for side in "ab"}
_BATTLE: dict[str, Any] = {"model_a": "finch", "model_b": "raven", "winner": "model_b"}

MT_BENCH = {
    "question_id": 81, **_BATTLE, "judge": "author_2", "turn": 2, "conversation_a": _TEXTS["a"],
    "conversation_b": _TEXTS["b"],
}  # fmt: skip
SEARCH_ARENA = {
    **_BATTLE, "judge": "user_7", "turn": 1, "timestamp": "2025-04-01 10:00:00", "messages_a": _TEXTS["a"],
    "messages_b": _TEXTS["b"], "languages": ["English"], "primary_intent": "Info Synthesis", "secondary_intent": None,
    "conv_metadata": {"num_citations_a": 3},
}  # fmt: skip
CLEAN_BATTLE = {
    **_BATTLE, "judge": "arena_user_9", "turn": 1, "anony": True, "language": "German", "tstamp": 1700000000.5,
}  # fmt: skip
KAGGLE = {
    "id": "30192", "model_a": "finch", "model_b": "raven", "prompt": '["Hi", "And you?"]',
    "response_a": '["Hello", "Fine"]', "response_b": '["Hey", null]', "winner_model_a": "0", "winner_model_b": "0",
    "winner_tie": "1",
}  # fmt: skip
TAGGED = {
    "id": "x", **_BATTLE, "evaluation_session_id": "s", "evaluation_order": 3, "timestamp": 1700000000,
    "language": "en",
    "is_code": True, "category_tag": {
        "creative_writing_v0.1": {"creative_writing": False, "score": "no"}, "math_v0.1": {"math": True},
        "if_v0.1": {"if": True, "score": 4}, "criteria_v0.1": {"complexity": True, "specificity": False},
    },
}  # fmt: skip
ARENA_HARD = {
    "uid": "q1", "category": "hard_prompt", "judge": "judge-1", "model": "finch", "baseline": "raven",
    "games": [{"score": "A>>B", "judgment": {}}, {"score": "A=B", "judgment": {}}],
}  # fmt: skip
ALPACA_EVAL = {
    "instruction": "Hi", "output_1": "Hello", "generator_1": "finch", "output_2": "Hey", "generator_2": "raven",
    "dataset": "helpful_base", "annotator": "weighted_judge", "preference": 1.93,
}  # fmt: skip
TRIPLE = {"prompt": "Hi", "chosen": "Hello", "rejected": "No."}
NAMED_TRIPLE = {
    "prompt": "Hi", "prompt_id": "p", "chosen": _TEXTS["a"], "rejected": _TEXTS["b"], "chosen_model": "finch",
    "rejected_model": "raven", "source": "ultrachat",
}  # fmt: skip
COMPARIA = {
    "id": 1, "conversation_pair_id": "q1", "timestamp": "2025-01-02", "model_a_name": "finch", "model_b_name": "raven",
    "chosen_model_name": "raven", "both_equal": False, "conv_useful_b": True, "conv_incorrect_a": True,
    "conv_comments_a": "It is wrong.", "categories": ["Natural Science"],
}  # fmt: skip
REACTION = {
    "id": 5, "conversation_pair_id": "q1", "timestamp": "2025-01-02", "model_a_name": "finch", "model_b_name": "raven",
    "refers_to_model": "raven", "liked": False, "disliked": True, "superficial": True, "comment": None,
    "session_hash": "s-1",
}  # fmt: skip


def _votes(row: dict[str, Any], schema: SourceSchema) -> list[VoteRecord]:
    assert detect(row) is schema
    entries = from_row(schema, row, 3)
    votes = [entry for entry in entries if isinstance(entry, VoteRecord)]
    assert len(votes) == len(entries)
    return votes


def test_mt_bench_has_many_votes_on_a_question() -> None:
    rows = [MT_BENCH, {**MT_BENCH, "judge": "expert_1"}, {**MT_BENCH, "turn": 1}, {**MT_BENCH, "model_b": "robin"}]
    votes = [vote for row in rows for vote in _votes(row, SourceSchema.ARENA)]
    assert len({vote.battle_id for vote in votes}) == 4
    assert (votes[0].voter, votes[0].outcome, votes[0].time, votes[0].turns) == ("author_2", "b", 0.0, 2)
    assert votes[0].battle_id == _votes(dict(MT_BENCH), SourceSchema.ARENA)[0].battle_id


def test_search_arena_has_no_ids_and_rows_without_a_vote() -> None:
    [vote] = _votes(SEARCH_ARENA, SourceSchema.ARENA)
    assert (vote.language, vote.categories, vote.voter) == ("en", ("intent_info_synthesis",), "user_7")
    assert vote.conversations is not None
    assert [message.content for message in vote.conversations["b"]] == ["Hi", "Hello b"]
    assert vote.battle_id == _votes(dict(SEARCH_ARENA), SourceSchema.ARENA)[0].battle_id
    with pytest.raises(InvalidRow, match="line 4 is not a vote: winner is None"):
        from_row(SourceSchema.ARENA, {**SEARCH_ARENA, "winner": None}, 4)


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_as_fastchat_writes_it_is_read_by_elements(tmp_path: Path, indent: int | None) -> None:
    rows = [{**CLEAN_BATTLE, "tstamp": float(number), "pad": "]} \u00fc" * 5000} for number in range(200)]
    path = tmp_path / "clean_battle_20240814.json"
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False))
    votes = [entry for entry in read_entries(path) if isinstance(entry, VoteRecord)]
    assert [vote.time for vote in votes] == [float(number) for number in range(200)]
    assert len({vote.battle_id for vote in votes}) == 200
    assert {(vote.outcome, vote.language, vote.voter) for vote in votes} == {("b", "de", "arena_user_9")}


def test_the_table_of_kaggle_is_read_with_its_three_columns(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    cells = ['"' + str(value).replace('"', '""') + '"' for value in KAGGLE.values()]
    path.write_text(",".join(KAGGLE) + "\n" + ",".join(cells) + "\r\n")
    [vote] = read_entries(path)
    assert isinstance(vote, VoteRecord)
    assert (vote.battle_id, vote.outcome, vote.turns) == ("30192", "tie", 2)
    assert vote.conversations is not None
    assert [message.content for message in vote.conversations["b"]] == ["Hi", "Hey", "And you?", ""]
    with pytest.raises(InvalidRow, match="2 of winner_model_a"):
        from_row(SourceSchema.ARENA, {**KAGGLE, "winner_model_a": 1}, 1)


def test_tags_and_the_order_of_votes_become_categories() -> None:
    [vote] = _votes(TAGGED, SourceSchema.PREFERENCES)
    assert vote.categories == ("maths", "instruction_following", "complexity", "code", "later_vote")


def test_the_two_games_of_arena_hard_have_the_sides_changed() -> None:
    first, second = _votes(ARENA_HARD, SourceSchema.ARENA_HARD)
    assert (first.a.model, first.b.model, first.outcome) == ("raven", "finch", "a")
    assert (second.a.model, second.b.model, second.outcome) == ("finch", "raven", "tie")
    assert (first.categories, second.categories) == (("hard_prompt", "strong"), ("hard_prompt",))
    assert first.battle_id != second.battle_id
    assert first.voter == "judge-1"


@pytest.mark.parametrize(
    ("preference", "outcome"), [(1, "a"), (1.49, "a"), (1.5, "tie"), (0, "tie"), (1.93, "b"), (2, "b")]
)
def test_a_preference_of_alpaca_eval_is_an_outcome(preference: float, outcome: str) -> None:
    [vote] = _votes({**ALPACA_EVAL, "preference": preference}, SourceSchema.ALPACA_EVAL)
    assert (vote.outcome, vote.voter, vote.categories) == (outcome, "weighted_judge", ("helpful_base",))


@pytest.mark.parametrize("preference", [None, float("nan"), 3, "1"])
def test_what_is_no_preference_is_refused(preference: object) -> None:
    with pytest.raises(InvalidRow, match="line 1 is not a vote"):
        from_row(SourceSchema.ALPACA_EVAL, {**ALPACA_EVAL, "preference": preference}, 1)


def test_a_triple_counts_only_with_the_names_of_its_models() -> None:
    [unnamed] = _votes(TRIPLE, SourceSchema.DPO)
    assert (unnamed.flags, unnamed.is_rated, unnamed.a.model) == (("unknown_models",), False, "chosen")
    [named] = _votes(NAMED_TRIPLE, SourceSchema.DPO)
    assert (named.is_rated, named.a.model, named.b.model, named.outcome) == (True, "finch", "raven", "a")
    for vote in (unnamed, named):
        assert vote.conversations is not None
        assert [message.role for message in vote.conversations["a"]] == ["user", "assistant"]


def test_reasons_and_comments_of_comparia_are_kept() -> None:
    [vote] = _votes(COMPARIA, SourceSchema.COMPARIA)
    assert (vote.reasons, vote.comment, vote.categories) == (
        ("a_incorrect", "b_useful"), "It is wrong.", ("natural_science",),
    )  # fmt: skip


def test_a_reaction_is_feedback_on_its_battle() -> None:
    assert detect(REACTION) is SourceSchema.REACTIONS
    [entry] = from_row(SourceSchema.REACTIONS, REACTION, 1)
    assert isinstance(entry, FeedbackRecord)
    assert (entry.battle_id, entry.thumbs, entry.reasons, entry.voter) == ("q1", {"b": "down"}, ("superficial",), "s-1")
    with pytest.raises(InvalidRow, match="says nothing"):
        from_row(SourceSchema.REACTIONS, {**REACTION, "disliked": False, "superficial": False}, 1)


@pytest.mark.parametrize("row", [MT_BENCH, SEARCH_ARENA, CLEAN_BATTLE, KAGGLE, TAGGED])
def test_a_model_against_itself_is_no_vote(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidRow, match="both models are 'raven'"):
        from_row(detect(row), {**row, "model_a": "raven"}, 1)


@pytest.mark.parametrize("time", [{}, {"tstamp": None}, {"tstamp": float("nan")}])
def test_a_row_without_a_time_has_the_time_0(time: dict[str, Any]) -> None:
    row = {key: value for key, value in CLEAN_BATTLE.items() if key != "tstamp"} | time
    assert _votes(row, SourceSchema.ARENA)[0].time == 0.0
