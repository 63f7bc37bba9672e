"""Votes in Parquet, a part at a time. Needs pyarrow, the extra `parquet`; nothing is imported before it is used.

Columns have the names and types of the fields of a schema. In Agon's own schema there are three more, `judgement`,
`feedback` and `label`, for the JSON of records that are no votes; each is null in all other rows.
"""

import json
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from cli.errors import CliError
from cli.formats.schemas import TO_ROW, Schema
from wire.log_records import LogRecord
from wire.votes import VoteRecord

if TYPE_CHECKING:
    import pyarrow

MAGIC = b"PAR1"
ROWS_AT_ONCE = 2000  #: of a read
ROWS_PER_GROUP = 5_000  #: of a written file: some 20 MB of objects while they are gathered, without texts

_OTHERS = ("judgement", "feedback", "label")  #: kinds of records that are no votes, each with a column


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do. Raises OSError."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_rows(path: Path, *, skip: int = 0) -> Iterator[dict[str, Any]]:
    """The rows of a file without its first `skip` ones, without fields that are null. Raises CliError."""
    arrow = _require_arrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=_columns(file.schema_arrow.names)):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                rows, skip = batch.slice(skip).to_pylist(), 0
                yield from (_as_log_line(row) for row in rows)
    except (OSError, arrow.ArrowException) as error:
        raise CliError(f"cannot read {path}: {error}") from None


class ParquetWriter:
    """Writes entries as row groups. `close` completes the file."""

    def __init__(self, path: Path, schema: Schema) -> None:
        arrow = _require_arrow()
        from pyarrow import parquet

        self._arrow = arrow
        self._to_row = TO_ROW.get(schema)
        self._schema = arrow_schema(schema)
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, entry: LogRecord) -> bool:
        """Add an entry; False if the schema has no such entries. Raises OSError."""
        if self._to_row is not None:
            if not isinstance(entry, VoteRecord):
                return False
            self._rows.append(_with_datetime(self._to_row(entry)))
        elif isinstance(entry, VoteRecord):
            self._rows.append(entry.model_dump(mode="json"))
        else:
            self._rows.append({entry.kind: entry.model_dump_json(exclude_none=True)})
        if len(self._rows) >= ROWS_PER_GROUP:
            self._flush()
        return True

    def close(self) -> None:
        """Write what is left and the end of the file. Raises OSError."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []


def arrow_schema(schema: Schema) -> "pyarrow.Schema":
    """The columns of a file."""
    arrow = _require_arrow()
    text, whole, number, truth = arrow.string(), arrow.int64(), arrow.float64(), arrow.bool_()
    if schema is Schema.AGON:
        return arrow.schema([*_model_fields(VoteRecord, arrow), *((kind, text) for kind in _OTHERS)])
    if schema is Schema.ARENA:
        messages = arrow.list_(arrow.struct([("content", text), ("role", text)]))
        last = [("turn", whole), ("anony", truth), ("language", text), ("tstamp", number)]
        first = [(name, text) for name in ("question_id", "model_a", "model_b", "winner", "judge")]
        return arrow.schema([*first, ("conversation_a", messages), ("conversation_b", messages), *last])
    parts = arrow.list_(arrow.struct([("type", text), ("text", text)]))
    messages = arrow.list_(arrow.struct([("role", text), ("content", parts)]))
    first = [(name, text) for name in ("id", "model_a", "model_b", "winner", "evaluation_session_id")]
    return arrow.schema(
        [
            *first,
            ("evaluation_order", arrow.int32()),
            ("conversation_a", messages),
            ("conversation_b", messages),
            ("conv_metadata", arrow.struct([*_count_fields("a", arrow), *_count_fields("b", arrow), ("turns", whole)])),
            ("language", text),
            ("is_code", truth),
            ("timestamp", arrow.timestamp("us")),
        ]
    )


def _count_fields(side: str, arrow: Any) -> list[tuple[str, Any]]:
    def kinds(*names: str) -> Any:
        return arrow.struct([(name, arrow.int64()) for name in names])

    return [
        (f"sum_assistant_{side}_tokens", arrow.int64()),
        (f"header_count_{side}", kinds("h1", "h2", "h3", "h4", "h5", "h6")),
        (f"list_count_{side}", kinds("ordered", "unordered")),
        (f"bold_count_{side}", kinds("**", "__")),
    ]


def _model_fields(model: type[BaseModel], arrow: Any) -> list[tuple[str, Any]]:
    return [
        (field.serialization_alias or field.alias or name, _arrow_type(field.annotation, arrow))
        for name, field in model.model_fields.items()
    ]


def _arrow_type(annotation: Any, arrow: Any) -> Any:
    """The type of a column for a field of a wire type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    plain = {str: arrow.string(), int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_()}
    if annotation in plain:
        return plain[annotation]
    if origin in (Union, types.UnionType):
        [inner] = [argument for argument in arguments if argument is not type(None)]
        return _arrow_type(inner, arrow)
    if origin is Literal:
        return plain[type(arguments[0])]
    if origin is tuple:
        return arrow.list_(_arrow_type(arguments[0], arrow))
    if origin is dict:
        return arrow.struct([(str(name), _arrow_type(arguments[1], arrow)) for name in get_args(arguments[0])])
    if hasattr(annotation, "__metadata__"):
        return _arrow_type(annotation.__origin__, arrow)
    return arrow.struct(_model_fields(annotation, arrow))


def _columns(names: list[str]) -> list[str]:
    """All columns but those that are large and not needed."""
    return [name for name in names if name != "full_conversation"]


def _as_log_line(row: dict[str, Any]) -> dict[str, Any]:
    for kind in _OTHERS:
        if (record := row.get(kind)) is not None:
            values: dict[str, Any] = json.loads(record)
            return values
    known: dict[str, Any] = _without_nulls(row)
    return known


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        known = {name: _without_nulls(part) for name, part in value.items() if part is not None}
        return {name: part for name, part in known.items() if part != {}}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _with_datetime(row: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    if isinstance(row.get("timestamp"), str):
        return {**row, "timestamp": datetime.fromisoformat(row["timestamp"])}
    return row


def _require_arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise CliError("Parquet needs the package pyarrow; `pip install 'agon[parquet]'` has it.") from None
    return pyarrow
