"""Rows of votes on pairs as the public arenas publish them, read whatever their names for the same things are. Pure.

lmsys/chatbot_arena_conversations, arena-human-preference-55k, -100k and -140k, arena-expert-5k, search-arena-24k,
mt_bench_human_judgments, and the `clean_battle_*.json` of FastChat. All name models `model_a` and `model_b`, and the
outcome `winner` or one of three columns; the rest differs, and much of it may be missing.
"""

from typing import Any

from cli.formats.fields import (
    Row,
    category,
    conversations_of,
    is_missing,
    key_of,
    language_of,
    num_turns,
    outcome_of,
    side_of,
    two_models,
    unix_time,
)
from wire.votes import VoteRecord

#: Tags of `category_tag` that a board of ours has another name for. `if`: follows instructions.
_TAGS = {"creative_writing": "creative", "math": "maths", "if": "instruction_following"}


def from_row(row: Row, number: int) -> list[VoteRecord]:
    """The vote of a row. `number` counts the rows from 1 and becomes the vote id; a row without a time has the time 0.
    Raises ValueError, KeyError, TypeError, AttributeError."""
    two_models(row["model_a"], row["model_b"])
    is_anonymous = bool(row.get("anony", True))
    conversations = conversations_of(row)
    time = row.get("tstamp", row.get("timestamp"))
    voter = row.get("judge_hash") or row.get("judge") or row.get("evaluation_session_id")
    return [
        VoteRecord.model_validate(
            {
                "vote_id": f"0-{number}",
                "battle_id": _battle_id(row),
                "time": 0.0 if is_missing(time) else unix_time(time),
                "mode": "anonymous" if is_anonymous else "named",
                "outcome": outcome_of(row),
                "a": side_of(row, "a"),
                "b": side_of(row, "b"),
                "turns": num_turns(row, conversations),
                "voter": None if voter in (None, "", "unknown") else str(voter),
                "flags": () if is_anonymous else ("named",),
                "language": language_of(row),
                "categories": _categories(row),
                "conversations": conversations,
            }
        )
    ]


def _battle_id(row: Row) -> str:
    """The row's own id. MT-bench numbers its questions, so a vote on one is known by all that tells it from others; a
    row without an id is known by its content."""
    question = row.get("question_id")
    if question is not None and ("tstamp" in row or "timestamp" in row):
        return str(question)
    if question is not None:
        parts = (question, row["model_a"], row["model_b"], row.get("judge", ""), row.get("turn", ""))
        return ":".join(map(str, parts))
    return str(row["id"]) if row.get("id") is not None else key_of(row)


def _categories(row: Row) -> tuple[str, ...]:
    """What a row says of its prompt, its intent and its place among the votes of a session."""
    names: list[str | None] = []
    for tags in (row.get("category_tag") or {}).values():
        names += [_TAGS.get(tag, category(tag)) for tag, holds in (tags or {}).items() if holds is True]
    names += ["code" if row.get("is_code") else None, "refusal" if row.get("is_refusal") else None]
    for field in ("primary_intent", "secondary_intent"):
        intent = category(row.get(field))
        names.append(f"intent_{intent}"[:40] if intent else None)
    order: Any = row.get("evaluation_order")
    if order is not None:
        names.append("first_vote" if int(order) == 1 else "later_vote")
    return tuple(dict.fromkeys(name for name in names if name))
