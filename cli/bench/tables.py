"""How `agon bench` shows its rows: a table for each command, ratios of a comparison, curves over load levels."""

import math
from pathlib import Path
from typing import Any

from rich.table import Table

from cli.bench import pictures


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Speed ratios of a comparison. `rows` are: theirs one at a time, theirs together, ours one at a time, ours
    together."""
    size = rows[3]["concurrency"]
    return {
        "one at a time": _ratio(rows[2], rows[0]),
        f"{size} at once": _ratio(rows[3], rows[1]),
        f"{size} at once against transformers one at a time": _ratio(rows[3], rows[0]),
    }


def _ratio(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    return round(float(ours["tokens_per_s"]) / float(theirs["tokens_per_s"]), 3)


def offline_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """The rows of `agon bench offline` as a table."""
    table = Table(title=title, title_justify="left")
    for column in ("system", "at once", "prompts", "output tokens", "seconds", "tokens/s"):
        table.add_column(column, justify="left" if column == "system" else "right", overflow="fold")
    for row in rows:
        seconds = ", ".join(f"{second:.2f}" for second in row["seconds"])
        cells = (row["concurrency"], row["num_prompts"], row["output_tokens"], seconds, f"{row['tokens_per_s']:.1f}")
        table.add_row(row["system"], *(str(cell) for cell in cells))
    return table


def latency_table(title: str, row: dict[str, Any]) -> Table:
    """The row of `agon bench latency` as a table."""
    table = Table(title=title, title_justify="left")
    cells = {
        "tokens in": row["prompt_tokens"],
        "out": row["output_tokens"],
        "first token ms": row["ttft_ms"],
        "ms per token": row.get("tpot_ms", "-"),
        "tokens/s": row.get("tokens_per_s", "-"),
        "gaps ms p50/p95/p99": "/".join(str(row.get(f"itl_ms_p{percent}", "-")) for percent in (50, 95, 99)),
    }
    for column in cells:
        table.add_column(column, justify="right", overflow="fold")
    table.add_row(*(str(cell) for cell in cells.values()))
    return table


def serving_table(url: str, rows: list[dict[str, Any]], level: str) -> Table:
    """The rows of `agon bench serve` as a table; `level` is the title of the first column."""
    table = Table(title=url, title_justify="left")
    times = ("ttft_ms", "tpot_ms", "itl_ms")
    has_goodput = any("goodput_requests_per_s" in row for row in rows)
    heads = [level, "requests", "failed", "tokens/s", *(f"{name[:4].upper()} ms p50/p95/p99" for name in times)]
    heads[-1] = "ITL ms p50/p95/p99"
    for column in (*heads, *(["within targets/s"] if has_goodput else [])):
        table.add_column(column, justify="right", overflow="fold")
    for row in rows:
        percentiles = ("/".join(milliseconds(row[f"{name}_p{percent}"]) for percent in (50, 95, 99)) for name in times)
        numbers = (row.get("concurrency", row.get("request_rate")), row["requests"], row["failed"])
        good = [str(row["goodput_requests_per_s"])] if has_goodput else []
        table.add_row(*(str(number) for number in (*numbers, row["output_tokens_per_s"])), *percentiles, *good)
    return table


def milliseconds(value: float | None) -> str:
    """A time with three digits, so that three of them fit on one line; the JSON result has all digits."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def plot_serving(plot: Path, url: str, rows: list[dict[str, Any]], levels: list[float], *, is_open: bool) -> None:
    """Draw percentiles of TTFT and TPOT over the levels."""
    shown = [(level, row) for level, row in zip(levels, rows, strict=True) if math.isfinite(level) and row["requests"]]
    names = ("ttft_ms_p50", "ttft_ms_p99", "tpot_ms_p50", "tpot_ms_p99")
    lines = {name.replace("_ms_", " "): [row[name] or math.nan for _, row in shown] for name in names}
    x_label = "requests per second" if is_open else "requests at once"
    pictures.draw_lines(plot, url, x_label, "ms", [level for level, _ in shown], lines)
