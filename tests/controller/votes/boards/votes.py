"""Votes and judgements of known logs."""

import secrets
from typing import Any

from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.votes import StyleCounts, VotedSide, VoteRecord


def make_vote(number: int, model_a: str, model_b: str, outcome: str, **changes: Any) -> VoteRecord:
    """A rated vote with the id `number`-0, cast `number` seconds after the epoch."""
    fields: dict[str, Any] = {
        "vote_id": f"{number}-0",
        "battle_id": f"battle-{number}-{secrets.token_hex(4)}",
        "time": float(number),
        "mode": "anonymous",
        "outcome": outcome,
        "a": VotedSide(model=model_a, revision="r", style=StyleCounts(tokens=10 + number % 7)),
        "b": VotedSide(model=model_b, revision="r", style=StyleCounts(tokens=10 + number % 5)),
    }
    return VoteRecord(**{**fields, **changes})


def known_log() -> list[VoteRecord]:
    """Known comparisons: A-B 2:3, A-D 1:4, B-C 5:3, C-D 1:3."""
    results = [("A", "B", 2, 3), ("A", "D", 1, 4), ("B", "C", 5, 3), ("C", "D", 1, 3)]
    outcomes = [(x, y, o) for x, y, won, lost in results for o in ["a"] * won + ["b"] * lost]
    return [make_vote(number, *outcome) for number, outcome in enumerate(outcomes, start=1)]


def make_judgement(number: int, action: str, flag: str = "anomalous_voter", **subject: Any) -> Judgement:
    """A judgement with the id `number`-0; `subject` is one of voter, cohort, battle_ids."""
    values: dict[str, Any] = {
        "judgement_id": f"{number}-0",
        "key": f"judgement:{number}-{secrets.token_hex(4)}",
        "time": float(number),
        "action": action,
        "flag": flag,
        "by": "judge",
    }
    return Judgement(**{**values, **subject})


def make_label(number: int, battle_id: str, *categories: str) -> LabelRecord:
    """A label with the id `number`-0."""
    key = f"label:{number}-{secrets.token_hex(4)}"
    return LabelRecord(
        label_id=f"{number}-0", key=key, time=float(number), battle_id=battle_id, categories=categories, by="m"
    )
