"""Tables of the fastest measured tile sizes, looked up by kernel and shape class; nothing is measured while serving.

A table is a JSON document {"device", "when", "commit", "entries": [{the key's fields, "values": {name: number},
"measured": the times of the measurement}]}.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from engine.kernels import tuned

TABLES = Path(tuned.__file__).parent


@dataclass(frozen=True, slots=True)
class Key:
    """A shape class: everything that the choice of tiles depends on."""

    kernel: str
    mode: str
    dtype: str
    page_dtype: str
    head_dim: int
    rows: int  #: queries times group size, rounded up to a power of two; 16 (the least tile) to 128

    @classmethod
    def of_attention(
        cls, mode: str, dtype: torch.dtype, page_dtype: torch.dtype, head_dim: int, group_size: int, max_queries: int
    ) -> "Key":
        """The key of attend_pages in that mode. max_queries: of a row, or of a group in prefix mode."""
        rows = 1 << (max_queries * group_size - 1).bit_length()
        name, page_name = (str(kind).removeprefix("torch.") for kind in (dtype, page_dtype))
        return cls("paged_attention", mode, name, page_name, head_dim, min(max(rows, 16), 128))


def tuned_values(key: Key, architecture: int, tables: Path = TABLES) -> Mapping[str, int] | None:
    """The measured values for that key; None: it was not measured on that architecture."""
    return _table(tables / f"sm_{architecture}.json").get(key)


@functools.cache
def _table(path: Path) -> Mapping[Key, Mapping[str, int]]:
    if not path.exists():
        return {}
    return dict(map(_entry, json.loads(path.read_text(encoding="utf-8"))["entries"]))


def _entry(entry: Mapping[str, object]) -> tuple[Key, Mapping[str, int]]:
    values = entry["values"]
    assert isinstance(values, dict)
    return Key(**{field.name: entry[field.name] for field in fields(Key)}), values  # type: ignore[arg-type]


def as_entry(key: Key, values: Mapping[str, int]) -> dict[str, object]:
    """An entry of a table, without its measured times."""
    return {**asdict(key), "values": dict(values)}
