"""Votes of judges and of preference data: Arena-Hard's games, AlpacaEval's annotations, triples for DPO. Pure; for
imports only. The judge or annotator is the voter.
"""

from typing import Any

from cli.formats.fields import REVISION, Row, category, is_missing, key_of, messages_of, two_models, unix_time
from wire.battles import Outcome
from wire.chat import ChatMessage
from wire.votes import VotedSide, VoteRecord

ARENA_HARD_BASELINE = "gpt-4-0314"  #: of Arena-Hard 0.1, whose rows do not name it
#: The flag of a pair that does not say which models wrote it. Such votes are not rated.
UNKNOWN_MODELS = "unknown_models"
_SCORES: dict[str, Outcome] = {"A>>B": "a", "A>B": "a", "A=B": "tie", "B=A": "tie", "B>A": "b", "B>>A": "b"}


def games_from_row(row: Row, number: int) -> list[VoteRecord]:
    """The games of a question, one vote each: side a is the baseline in the first game and the model in the second.
    `number` becomes the vote id. Raises ValueError, KeyError, TypeError, AttributeError."""
    model, baseline = row["model"], row.get("baseline") or ARENA_HARD_BASELINE
    question = row.get("question_id") or row.get("uid") or row["instruction_id"]
    return [
        _vote(
            number,
            ":".join(map(str, (question, model, baseline, row.get("judge", ""), index))),
            (baseline, model) if index % 2 == 0 else (model, baseline),
            _outcome_of_score(game["score"]),
            time=row.get("tstamp"),
            voter=row.get("judge"),
            categories=(category(row.get("category")), "strong" if ">>" in game["score"] else None),
        )
        for index, game in enumerate(row["games"])
    ]


def annotation_from_row(row: Row, number: int) -> list[VoteRecord]:
    """An annotation of AlpacaEval: `preference` is 1 for the first output, 2 for the second, and what lies between is
    how sure the annotator is; 1.5, and 0 in older files, is a tie. Raises ValueError, KeyError, TypeError."""
    models = (row["generator_1"], row["generator_2"])
    preference = row["preference"]
    if is_missing(preference) or not (preference == 0 or 1 <= preference <= 2):
        raise ValueError(f"preference is {preference!r}, not between 1 and 2")
    outcome: Outcome = "tie" if preference in (0, 1.5) else "a" if preference < 1.5 else "b"
    prompt = ChatMessage(role="user", content=row["instruction"])
    answers = (ChatMessage(role="assistant", content=row[f"output_{side}"] or "") for side in (1, 2))
    return [
        _vote(
            number,
            key_of(row["instruction"], *models, row.get("annotator")),
            models,
            outcome,
            voter=row.get("annotator"),
            categories=(category(row.get("dataset")),),
            conversations=dict(zip("ab", ((prompt, answer) for answer in answers), strict=True)),
        )
    ]


def triple_from_row(row: Row, number: int) -> list[VoteRecord]:
    """A prompt with a chosen and a rejected answer, as texts or as messages. Without the names of their models the vote
    is kept, but not rated. Raises ValueError, KeyError, TypeError, AttributeError."""
    named = [row.get(f"{side}_model") or row.get(f"{side}-model") for side in ("chosen", "rejected")]
    prompt = row.get("prompt") or row.get("question") or row.get("instruction") or ""
    texts = {side: _conversation(prompt, row[name]) for side, name in zip("ab", ("chosen", "rejected"), strict=True)}
    identity = row.get("prompt_id") or row.get("id")
    return [
        _vote(
            number,
            key_of(identity, prompt, row["chosen"], row["rejected"], named),
            (str(named[0]), str(named[1])) if all(named) else ("chosen", "rejected"),
            "a",
            flags=() if all(named) else (UNKNOWN_MODELS,),
            categories=(category(row.get("source")),),
            conversations=texts,
        )
    ]


def _conversation(prompt: Any, answer: Any) -> tuple[ChatMessage, ...]:
    """What a side of a triple says: whole conversations, or an answer to the prompt."""
    told = messages_of(answer)
    if any(message.role == "user" for message in told):
        return told
    answered = told or (ChatMessage(role="assistant", content=str(answer)),)
    return (*(messages_of(prompt) or (ChatMessage(role="user", content=str(prompt)),)), *answered)


def _outcome_of_score(score: object) -> Outcome:
    outcome = _SCORES.get(score) if isinstance(score, str) else None
    if outcome is None:
        raise ValueError(f"score is {score!r}, not one of {', '.join(_SCORES)}")
    return outcome


def _vote(
    number: int,
    battle_id: str,
    models: tuple[str, str],
    outcome: Outcome,
    *,
    time: Any = None,
    voter: Any = None,
    flags: tuple[str, ...] = (),
    categories: tuple[str | None, ...] = (),
    conversations: dict[str, tuple[ChatMessage, ...]] | None = None,
) -> VoteRecord:
    two_models(*models)
    return VoteRecord.model_validate(
        {
            "vote_id": f"0-{number}",
            "battle_id": battle_id,
            "time": 0.0 if is_missing(time) else unix_time(time),
            "mode": "anonymous",
            "outcome": outcome,
            "a": VotedSide(model=models[0], revision=REVISION),
            "b": VotedSide(model=models[1], revision=REVISION),
            "voter": None if is_missing(voter) else str(voter),
            "flags": flags,
            "categories": tuple(name for name in categories if name),
            "conversations": conversations,
        }
    )
