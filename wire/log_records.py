"""The entries of a vote log as one type: votes, judgements about them, and feedback that voters add to them.

An exported log has one record a line; a vote has no field `kind`.
"""

import json

from wire.feedback import FeedbackRecord
from wire.judgements import Judgement
from wire.votes import VoteRecord

LogRecord = VoteRecord | Judgement | FeedbackRecord

_KINDS: dict[object, type[Judgement | FeedbackRecord]] = {"judgement": Judgement, "feedback": FeedbackRecord}


def parse_log_line(line: str | bytes) -> LogRecord:
    """One line of an exported log. Raises ValueError (pydantic's ValidationError where it is JSON)."""
    return parse_log_values(json.loads(line))


def parse_log_values(values: object) -> LogRecord:
    """The same from the line's JSON. Raises pydantic's ValidationError."""
    return type_of(values).model_validate(values)


def type_of(values: object) -> type[LogRecord]:
    """Which record these values of a line would be. One of an unknown kind is refused as a vote, which has none."""
    kind = values.get("kind") if isinstance(values, dict) else None
    return _KINDS.get(kind, VoteRecord) if isinstance(kind, str) else VoteRecord


def id_of(record: LogRecord) -> str:
    """The record's id in the log."""
    if isinstance(record, VoteRecord):
        return record.vote_id
    return record.judgement_id if isinstance(record, Judgement) else record.feedback_id


def key_of(record: LogRecord) -> str:
    """By what a log knows the record: a vote by its battle, any other by its key."""
    return record.battle_id if isinstance(record, VoteRecord) else record.key
