"""The public schema of lmsys/chatbot_arena_conversations and arena-human-preference-100k, so that notebooks for it work
on our log and its votes can be imported. Pure: one record in, one record out.

The schema has no fields for timing and pairing probability: such an export loses them, one in Agon's own schema keeps
them. Style counts are read from `conv_metadata`, which the newer of the two data sets has.
"""

from typing import Any

from cli.formats.fields import Row, conversations_of, language_of, num_turns, outcome_of, side_of, unix_time
from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import VoteRecord

_WINNERS: dict[Outcome, str] = {"a": "model_a", "b": "model_b", "tie": "tie", "both_bad": "tie (bothbad)"}


def to_row(vote: VoteRecord) -> dict[str, Any]:
    """A vote in this schema. `judge` is the voter's pseudonym. Conversations are empty unless `vote` has them."""
    conversations = vote.conversations or {}
    return {
        "question_id": vote.battle_id,
        "model_a": vote.a.model,
        "model_b": vote.b.model,
        "winner": _WINNERS[vote.outcome],
        "judge": vote.voter or "unknown",
        "conversation_a": [_message(message) for message in conversations.get("a", ())],
        "conversation_b": [_message(message) for message in conversations.get("b", ())],
        "turn": vote.turns,
        "anony": vote.mode == "anonymous",
        "language": vote.language or "unknown",
        "tstamp": vote.time,
    }


def from_row(row: Row, number: int) -> VoteRecord:
    """A vote from this schema. `number` counts the rows from 1 and becomes the vote id. Raises ValueError, KeyError,
    TypeError."""
    is_anonymous = bool(row.get("anony", True))
    conversations = conversations_of(row)
    judge = row.get("judge_hash") or row.get("judge")
    return VoteRecord.model_validate(
        {
            "vote_id": f"0-{number}",
            "battle_id": str(row["question_id"]),
            "time": unix_time(row["tstamp"]),
            "mode": "anonymous" if is_anonymous else "named",
            "outcome": outcome_of(row),
            "a": side_of(row, "a"),
            "b": side_of(row, "b"),
            "turns": num_turns(row, conversations),
            "voter": None if judge in (None, "unknown") else str(judge),
            "flags": () if is_anonymous else ("named",),
            "language": language_of(row),
            "conversations": conversations,
        }
    )


def _message(message: ChatMessage) -> dict[str, str]:
    return {"content": message.content, "role": message.role}
