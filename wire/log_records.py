"""The entries of a vote log as one type: votes, judgements about them, feedback that voters add to them, and labels.

An exported log has one record a line; a vote has no field `kind`.
"""

import contextlib
import json
import re

from pydantic import ValidationError

from wire.feedback import FeedbackRecord
from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.strict_json import parse_json, parse_model
from wire.votes import VoteRecord

LogRecord = VoteRecord | Judgement | FeedbackRecord | LabelRecord

_KINDS: dict[object, type[Judgement | FeedbackRecord | LabelRecord]] = {
    "judgement": Judgement,
    "feedback": FeedbackRecord,
    "label": LabelRecord,
}
#: Short votes are decoded by pydantic alone, four times as fast as by the strict parser, unless the pattern finds what
#: that one refuses: numbers that do not fit, NaN, and escapes of characters that cannot be stored.
_PLAIN_BYTES = 16_384
_IS_SPECIAL = re.compile(rb':\s*-?(?:[0-9]{19}|[0-9.]+[eE]\+?[0-9]{3})|NaN|Infinity|\\u|"kind"|"conversations"')


def parse_strictly(line: bytes) -> LogRecord:
    """One line of a log that others wrote, as an import takes it. Raises ApiError INVALID_JSON or INVALID_REQUEST."""
    if len(line) <= _PLAIN_BYTES and not _IS_SPECIAL.search(line):
        with contextlib.suppress(ValidationError):  # what is refused is parsed again, for the reason
            return VoteRecord.model_validate_json(line)
    # No vote has the word, except one on a model or with a comment of that name: then it is parsed twice.
    if b'"kind"' in line and (kind := type_of(parse_json(line))) is not VoteRecord:
        return parse_model(kind, line)
    return parse_model(VoteRecord, line)


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
    match record:
        case VoteRecord():
            return record.vote_id
        case Judgement():
            return record.judgement_id
        case FeedbackRecord():
            return record.feedback_id
        case LabelRecord():
            return record.label_id


def key_of(record: LogRecord) -> str:
    """By what a log knows the record: a vote by its battle, any other by its key."""
    return record.battle_id if isinstance(record, VoteRecord) else record.key
