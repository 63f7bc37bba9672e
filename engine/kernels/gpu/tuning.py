"""Tables of measured launch parameters, looked up by kernel and shape class. Nothing is tuned while serving.

A table is a JSON document {"device", "when", "commit", "entries": [{the key's fields, "values": {name: number},
"measured": the times that justify them}]}; `python -m benchmarks.kernels tune` writes it.
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
    """A shape class: everything that the choice of parameters depends on, except the architecture."""

    kernel: str
    mode: str
    dtype: str
    page_dtype: str
    head_dim: int
    rows: int  #: queries times query heads per key/value head, rounded up to a power of two in [16, 128]

    @classmethod
    def of_attention(
        cls, mode: str, dtype: torch.dtype, page_dtype: torch.dtype, head_dim: int, group_size: int, max_queries: int
    ) -> "Key":
        """The key of paged attention; arguments as in attention_tiles.tiles_for."""
        rows = 1 << (max_queries * group_size - 1).bit_length()
        name, page_name = (str(kind).removeprefix("torch.") for kind in (dtype, page_dtype))
        return cls("paged_attention", mode, name, page_name, head_dim, min(max(rows, 16), 128))


@dataclass(frozen=True, slots=True)
class ProductKey:
    """A product of few rows, or with quantised weights: the weights' shape, and the number of rows
    (products.ROW_COUNTS, quantised_products.ROW_COUNTS)."""

    kernel: str
    dtype: str
    size: int
    channels: int
    rows: int

    @classmethod
    def of(cls, dtype: torch.dtype, size: int, channels: int, rows: int) -> "ProductKey":
        """The key of weights [channels, size]."""
        return cls("skinny_product", str(dtype).removeprefix("torch."), size, channels, rows)

    @classmethod
    def of_codes(cls, form: str, dtype: torch.dtype, size: int, channels: int, rows: int) -> "ProductKey":
        """The key of quantised weights [channels, size] of a form (CodeForm.name), with x of that dtype."""
        return cls("quantised_product", f"{str(dtype).removeprefix('torch.')} x {form}", size, channels, rows)


def tuned_product(key: ProductKey, architecture: int, tables: Path = TABLES) -> Mapping[str, int] | None:
    """Tiles that were measured to beat cuBLAS; empty where cuBLAS was faster; None if nothing was measured."""
    return _table(tables / f"sm_{architecture}.json").get(key)


def tuned_values(key: Key, architecture: int, tables: Path = TABLES) -> Mapping[str, int] | None:
    """Parameters measured for the key on this architecture (80, 89, 90 and so on); None if there are none."""
    return _table(tables / f"sm_{architecture}.json").get(key)


@functools.cache
def _table(path: Path) -> Mapping[Key | ProductKey, Mapping[str, int]]:
    if not path.exists():
        return {}
    return dict(map(_entry, json.loads(path.read_text(encoding="utf-8"))["entries"]))


def _entry(entry: Mapping[str, object]) -> tuple[Key | ProductKey, Mapping[str, int]]:
    values = entry["values"]
    assert isinstance(values, dict)
    kind: type[Key | ProductKey] = ProductKey if "channels" in entry else Key
    return kind(**{field.name: entry[field.name] for field in fields(kind)}), values  # type: ignore[arg-type]


def as_entry(key: Key | ProductKey, values: Mapping[str, int]) -> dict[str, object]:
    """The entry of a table for measured values; benchmarks/kernels/tune.py writes it."""
    return {**asdict(key), "values": dict(values)}
