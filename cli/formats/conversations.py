"""The public schema of lmsys/chatbot_arena_conversations and arena-human-preference-100k, so that notebooks for it work
on our log. Pure, and for exports only: arena_rows.py reads it.

The schema has no fields for timing and pairing probability: such an export loses them, one in Agon's own schema keeps
them.
"""

from typing import Any

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


def _message(message: ChatMessage) -> dict[str, str]:
    return {"content": message.content, "role": message.role}
