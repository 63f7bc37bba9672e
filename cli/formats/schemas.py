"""The schemas in which votes are imported and exported: which there are, how a row tells its own, and conversions."""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from cli.errors import CliError
from cli.formats import arena_rows, comparia, conversations, judged, preferences
from cli.formats.fields import Row
from wire.log_records import LogRecord, parse_log_values
from wire.votes import VoteRecord


class InvalidRow(CliError):
    """A line or row of a file that is no vote. The message has its number."""


class Schema(StrEnum):
    """The schema of exported and imported votes; ARENA and PREFERENCES are those of public data sets."""

    AGON = "agon"
    ARENA = "arena"
    PREFERENCES = "arena-140k"


class SourceSchema(StrEnum):
    """What an import may be told that its file has."""

    AUTO = "auto"
    AGON = "agon"
    ARENA = "arena"
    PREFERENCES = "arena-140k"
    COMPARIA = "comparia"
    REACTIONS = "comparia-reactions"
    ARENA_HARD = "arena-hard"
    ALPACA_EVAL = "alpaca-eval"
    DPO = "dpo"


TO_ROW: dict[Schema, Callable[[VoteRecord], dict[str, Any]]] = {
    Schema.ARENA: conversations.to_row,
    Schema.PREFERENCES: preferences.to_row,
}
_FROM_ROW: dict[SourceSchema, Callable[[Row, int], Sequence[LogRecord]]] = {
    SourceSchema.AGON: lambda row, number: [parse_log_values(row)],
    SourceSchema.ARENA: arena_rows.from_row,
    SourceSchema.PREFERENCES: arena_rows.from_row,
    SourceSchema.COMPARIA: comparia.from_row,
    SourceSchema.REACTIONS: comparia.reaction_from_row,
    SourceSchema.ARENA_HARD: judged.games_from_row,
    SourceSchema.ALPACA_EVAL: judged.annotation_from_row,
    SourceSchema.DPO: judged.triple_from_row,
}
#: Fields that a row of the schema has, the most telling schema first.
_TELLING: tuple[tuple[SourceSchema, tuple[str, ...]], ...] = (
    (SourceSchema.AGON, ("outcome",)),
    (SourceSchema.AGON, ("kind",)),
    (SourceSchema.REACTIONS, ("refers_to_model",)),
    (SourceSchema.COMPARIA, ("model_a_name",)),
    (SourceSchema.ARENA_HARD, ("games", "model")),
    (SourceSchema.ALPACA_EVAL, ("generator_1", "generator_2")),
    (SourceSchema.ARENA, ("model_a", "winner", "question_id")),
    (SourceSchema.PREFERENCES, ("model_a", "winner", "id")),
    (SourceSchema.ARENA, ("model_a", "winner")),
    (SourceSchema.ARENA, ("model_a", "winner_model_a")),
    (SourceSchema.DPO, ("chosen", "rejected")),
)


def detect(row: Row) -> SourceSchema:
    """The schema of a row, by its fields. Raises CliError."""
    for schema, fields in _TELLING:
        if row.keys() >= set(fields):
            return schema
    raise CliError(
        f"the file has none of the known schemas ({', '.join(list(SourceSchema)[1:])}); its fields are "
        f"{', '.join(sorted(map(str, row))) or 'none'}."
    )


def from_row(schema: SourceSchema, row: Row, number: int) -> Sequence[LogRecord]:
    """The votes of a row, or another record of our own log. `number` counts the rows from 1. Raises InvalidRow with the
    reason."""
    try:
        return _FROM_ROW[schema](row, number)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidRow(f"line {number} is not a vote: {where}: {first['msg']}") from None
    except KeyError as error:
        raise InvalidRow(f"line {number} is not a vote: the field {error} is missing") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidRow(f"line {number} is not a vote: {error}") from None


def parse_row(line: bytes, number: int) -> dict[str, Any]:
    """The object of a line. Raises InvalidRow."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRow(f"line {number} is no JSON: {error}") from None
    return as_object(row, number)


def as_object(row: Any, number: int) -> dict[str, Any]:
    """The value of a line or of an element of an array. Raises InvalidRow if it is no object."""
    if not isinstance(row, dict):
        raise InvalidRow(f"line {number} is not a vote: it is no JSON object")
    return row
