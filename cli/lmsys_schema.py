"""Converts votes to and from the public schema of the data set lmsys/chatbot_arena_conversations, so that notebooks for
it work on our log and its votes can be imported. Pure: one record in, one record out.

That schema has no fields for style counts, timing and pairing probability: such an export loses them, one in Agon's own
schema keeps them.
"""

from typing import Any

from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import VotedSide, VoteRecord

_WINNERS: dict[Outcome, str] = {"a": "model_a", "b": "model_b", "tie": "tie", "both_bad": "tie (bothbad)"}
_OUTCOMES: dict[str, Outcome] = {winner: outcome for outcome, winner in _WINNERS.items()}
_REVISION = "imported"  #: the schema has no field for the weights


def to_arena_schema(vote: VoteRecord) -> dict[str, Any]:
    """A vote in the public schema. `judge` is the voter's pseudonym. Conversations are empty unless `vote` has them."""
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
        "language": "unknown",
        "tstamp": vote.time,
    }


def from_arena_schema(row: dict[str, Any], number: int) -> VoteRecord:
    """A vote from the public schema. `number` counts the rows from 1 and becomes the vote id. Raises ValueError with
    the reason."""
    try:
        outcome = _OUTCOMES.get(row["winner"])
        if outcome is None:
            raise ValueError(f"winner is {row['winner']!r}, not one of {', '.join(_OUTCOMES)}")
        return VoteRecord(
            vote_id=f"0-{number}",
            battle_id=str(row["question_id"]),
            time=float(row["tstamp"]),
            mode="anonymous" if row.get("anony", True) else "named",
            outcome=outcome,
            a=VotedSide(model=row["model_a"], revision=_REVISION),
            b=VotedSide(model=row["model_b"], revision=_REVISION),
            turns=int(row.get("turn", 1)),
            voter=str(row["judge"]) if row.get("judge") not in (None, "unknown") else None,
            flags=() if row.get("anony", True) else ("named",),
        )
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def _message(message: ChatMessage) -> dict[str, str]:
    return {"content": message.content, "role": message.role}
