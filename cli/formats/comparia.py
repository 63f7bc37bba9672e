"""The public schemas of ministere-culture/comparia-votes and comparia-reactions. Pure; for imports only.

A row of votes names the chosen model, or says that both were equal; it cannot say that both were bad. A reaction is on
one answer of one model, so it becomes feedback on the battle (wire/feedback.py), which no rating counts.
"""

from typing import Any

from cli.formats.fields import (
    REVISION,
    Row,
    category,
    conversations_of,
    is_missing,
    key_of,
    language_of,
    num_turns,
    two_models,
    unix_time,
)
from wire.battles import Outcome
from wire.feedback import MAX_COMMENT_CHARS, FeedbackRecord
from wire.votes import FEEDBACK_PREFIX, VotedSide, VoteRecord

#: What a visitor may tick, for each side of a vote and in a reaction.
_REASONS = (
    "useful", "complete", "creative", "clear_formatting", "incorrect", "superficial", "instructions_not_followed",
)  # fmt: skip


def from_row(row: Row, number: int) -> list[VoteRecord]:
    """The vote of a row. `number` counts the rows from 1 and becomes the vote id. Raises ValueError, KeyError,
    TypeError, AttributeError."""
    two_models(row["model_a_name"], row["model_b_name"])
    conversations = conversations_of(row)
    comments = [str(row[f"conv_comments_{side}"]) for side in "ab" if not is_missing(row.get(f"conv_comments_{side}"))]
    kinds = (category(each) for each in (*(row.get("categories") or ()), row.get("selected_category")))
    return [
        VoteRecord.model_validate(
            {
                "vote_id": f"0-{number}",
                "battle_id": _battle_id(row),
                "time": unix_time(row["timestamp"]),
                "mode": "anonymous",
                "outcome": _outcome_of(row),
                "a": VotedSide(model=row["model_a_name"], revision=REVISION),
                "b": VotedSide(model=row["model_b_name"], revision=REVISION),
                "turns": num_turns(row, conversations),
                "reasons": tuple(f"{side}_{name}" for side in "ab" for name in _ticked(row, "conv_", f"_{side}")),
                "comment": "\n".join(comments) or None,
                "voter": _voter(row),
                "language": language_of(row),
                "categories": tuple(dict.fromkeys(kind for kind in kinds if kind)),
                "conversations": conversations,
            }
        )
    ]


def reaction_from_row(row: Row, number: int) -> list[FeedbackRecord]:
    """The reaction of a row as feedback. Raises ValueError, KeyError, TypeError."""
    side = str(row.get("model_pos") or ("a" if row["refers_to_model"] == row["model_a_name"] else "b"))
    if side == "b" and row["refers_to_model"] != row["model_b_name"]:
        raise ValueError(f"refers_to_model is {row['refers_to_model']!r}, which is neither model")
    thumbs: dict[str, Any] = {side: "up" if row.get("liked") else "down"}
    if bool(row.get("liked")) == bool(row.get("disliked")):
        thumbs = {}
    comment = None if is_missing(row.get("comment")) else str(row["comment"])[:MAX_COMMENT_CHARS]
    reasons = _ticked(row, "", "")
    if not (thumbs or reasons or comment):
        raise ValueError("the reaction says nothing")
    return [
        FeedbackRecord.model_validate(
            {
                "feedback_id": f"0-{number}",
                "key": f"{FEEDBACK_PREFIX}comparia:{row['id'] if row.get('id') is not None else key_of(row)}",
                "time": unix_time(row["timestamp"]),
                "battle_id": _battle_id(row),
                "voter": _voter(row),
                "reasons": reasons,
                "comment": comment,
                "thumbs": thumbs,
            }
        )
    ]


def _battle_id(row: Row) -> str:
    return str(row.get("conversation_pair_id") or row["id"])


def _voter(row: Row) -> str | None:
    return row.get("visitor_id") or row.get("session_hash") or None


def _ticked(row: Row, before: str, after: str) -> tuple[str, ...]:
    return tuple(name for name in _REASONS if row.get(f"{before}{name}{after}") is True)


def _outcome_of(row: Row) -> Outcome:
    if row.get("both_equal"):
        return "tie"
    chosen = row.get("chosen_model_name")
    if chosen == row["model_a_name"]:
        return "a"
    if chosen == row["model_b_name"]:
        return "b"
    raise ValueError(f"chosen_model_name is {chosen!r}, which is neither model")
