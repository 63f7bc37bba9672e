"""The public schema of ministere-culture/comparia-votes. Pure; for imports only.

A row names the chosen model, or says that both were equal; it cannot say that both were bad.
"""

from cli.formats.fields import REVISION, Row, conversations_of, language_of, num_turns, unix_time
from wire.battles import Outcome
from wire.votes import VotedSide, VoteRecord


def from_row(row: Row, number: int) -> VoteRecord:
    """A vote from this schema. `number` counts the rows from 1 and becomes the vote id. Raises ValueError, KeyError,
    TypeError."""
    conversations = conversations_of(row)
    battle = row.get("conversation_pair_id") or row["id"]
    return VoteRecord.model_validate(
        {
            "vote_id": f"0-{number}",
            "battle_id": str(battle),
            "time": unix_time(row["timestamp"]),
            "mode": "anonymous",
            "outcome": _outcome_of(row),
            "a": VotedSide(model=row["model_a_name"], revision=REVISION),
            "b": VotedSide(model=row["model_b_name"], revision=REVISION),
            "turns": num_turns(row, conversations),
            "voter": row.get("visitor_id") or row.get("session_hash") or None,
            "language": language_of(row),
            "conversations": conversations,
        }
    )


def _outcome_of(row: Row) -> Outcome:
    if row.get("both_equal"):
        return "tie"
    chosen = row.get("chosen_model_name")
    if chosen == row["model_a_name"]:
        return "a"
    if chosen == row["model_b_name"]:
        return "b"
    raise ValueError(f"chosen_model_name is {chosen!r}, which is neither model")
