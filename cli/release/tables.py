"""Writes rows twice, as JSON lines and as Parquet. Needs pyarrow, the extra `parquet`."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROWS_PER_GROUP = 10_000


class TwoFiles:
    """Writes NAME.jsonl and NAME.parquet in `folder`; use it in a with block. `columns` are names with the types that
    pyarrow's functions of these names make, or a nested dict for a list of structs. Raises OSError."""

    def __init__(self, folder: Path, name: str, columns: Mapping[str, Any]) -> None:
        import pyarrow
        from pyarrow import parquet

        self._arrow = pyarrow
        self._names = tuple(columns)
        self._schema = pyarrow.schema([(name, _type(kind, pyarrow)) for name, kind in columns.items()])
        self._lines = open(folder / f"{name}.jsonl", "w", encoding="utf-8")  # noqa: SIM115 - closed by __exit__
        self._parquet = parquet.ParquetWriter(folder / f"{name}.parquet", self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self.num_rows = 0

    def write(self, row: Mapping[str, Any]) -> None:
        """Add a row that has every column."""
        assert tuple(row) == self._names, "the columns of a table are fixed"
        self._lines.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n")
        self._rows.append(dict(row))
        self.num_rows += 1
        if len(self._rows) >= _ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._parquet.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush()
        finally:
            self._parquet.close()
            self._lines.close()


def _type(kind: Any, arrow: Any) -> Any:
    if isinstance(kind, dict):
        return arrow.list_(arrow.struct([(name, _type(inner, arrow)) for name, inner in kind.items()]))
    if kind.startswith("list:"):
        return arrow.list_(_type(kind.removeprefix("list:"), arrow))
    return getattr(arrow, kind)()
