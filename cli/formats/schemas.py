"""The schemas in which votes are imported and exported: which there are, how a row tells its own, and conversions."""

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from cli.errors import CliError
from cli.formats import comparia, conversations, preferences
from cli.formats.fields import Row
from wire.log_records import LogRecord, parse_log_values
from wire.votes import VoteRecord


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


TO_ROW: dict[Schema, Callable[[VoteRecord], dict[str, Any]]] = {
    Schema.ARENA: conversations.to_row,
    Schema.PREFERENCES: preferences.to_row,
}
_FROM_ROW: dict[SourceSchema, Callable[[Row, int], LogRecord]] = {
    SourceSchema.AGON: lambda row, number: parse_log_values(row),
    SourceSchema.ARENA: conversations.from_row,
    SourceSchema.PREFERENCES: preferences.from_row,
    SourceSchema.COMPARIA: comparia.from_row,
}


def detect(row: Row) -> SourceSchema:
    """The schema of a row, by its fields. Raises CliError."""
    fields = row.keys()
    if "outcome" in fields or "kind" in fields:
        return SourceSchema.AGON
    if "model_a_name" in fields:
        return SourceSchema.COMPARIA
    if "winner" in fields and "question_id" in fields:
        return SourceSchema.ARENA
    if "winner" in fields and "id" in fields:
        return SourceSchema.PREFERENCES
    raise CliError(
        f"the file has none of the known schemas ({', '.join(list(SourceSchema)[1:])}); its fields are "
        f"{', '.join(sorted(map(str, fields))) or 'none'}."
    )


def from_row(schema: SourceSchema, row: Row, number: int) -> LogRecord:
    """A vote, or another record of our own log. `number` counts the rows from 1. Raises CliError with the reason."""
    try:
        return _FROM_ROW[schema](row, number)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CliError(f"line {number} is not a vote: {where}: {first['msg']}") from None
    except KeyError as error:
        raise CliError(f"line {number} is not a vote: the field {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CliError(f"line {number} is not a vote: {error}") from None


def parse_row(line: bytes, number: int) -> dict[str, Any]:
    """The object of a line. Raises CliError."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise CliError(f"line {number} is no JSON: {error}") from None
    if not isinstance(row, dict):
        raise CliError(f"line {number} is not a vote: it is no JSON object")
    return row
