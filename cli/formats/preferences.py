"""The public schema of lmarena-ai/arena-human-preference-140k and its successors (arena-expert-5k). Pure, and
for exports only: arena_rows.py reads it.

It differs from the older schema in names (`id`, `timestamp`, `both_bad`), and has style counts by kind. Ours are not
divided so: an export puts them under the first kind. Messages are lists of parts.
"""

from datetime import UTC, datetime
from typing import Any

from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import StyleCounts, VoteRecord

_WINNERS: dict[Outcome, str] = {"a": "model_a", "b": "model_b", "tie": "tie", "both_bad": "both_bad"}


def to_row(vote: VoteRecord) -> dict[str, Any]:
    """A vote in this schema. `evaluation_session_id` is the voter's pseudonym; `timestamp` is UTC."""
    conversations = vote.conversations or {}
    return {
        "id": vote.battle_id,
        "model_a": vote.a.model,
        "model_b": vote.b.model,
        "winner": _WINNERS[vote.outcome],
        "evaluation_session_id": vote.voter or "",
        "evaluation_order": 1,
        "conversation_a": [_message(message) for message in conversations.get("a", ())],
        "conversation_b": [_message(message) for message in conversations.get("b", ())],
        "conv_metadata": {**_counts(vote.a.style, "a"), **_counts(vote.b.style, "b"), "turns": vote.turns},
        "language": vote.language or "und",
        "is_code": "code" in vote.categories,
        "timestamp": datetime.fromtimestamp(vote.time, UTC).replace(tzinfo=None).isoformat(timespec="microseconds"),
    }


def _counts(style: StyleCounts, side: str) -> dict[str, Any]:
    return {
        f"sum_assistant_{side}_tokens": style.tokens,
        f"header_count_{side}": {"h1": style.headers, "h2": 0, "h3": 0, "h4": 0, "h5": 0, "h6": 0},
        f"list_count_{side}": {"ordered": 0, "unordered": style.lists},
        f"bold_count_{side}": {"**": style.bold, "__": 0},
    }


def _message(message: ChatMessage) -> dict[str, Any]:
    return {"role": message.role, "content": [{"type": "text", "text": message.content}]}
