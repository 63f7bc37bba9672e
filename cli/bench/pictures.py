"""Draws results. matplotlib is optional and imported only here, if a picture is requested."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.errors import CliError

Series = Mapping[str, Sequence[float]]  #: one line or group of bars by name


def require_matplotlib(path: Path | None) -> None:
    """Check before a measurement that `path` can be drawn; raises CliError. None: no picture is requested."""
    if path is None:
        return
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise CliError("--plot needs matplotlib: pip install matplotlib") from None
    known = ("png", "svg", "pdf")
    if path.suffix.lstrip(".") not in known:
        raise CliError(f"--plot must end in one of {', '.join(known)}, got {path.name}.")
    matplotlib.use("Agg")


def draw_bars(path: Path, title: str, unit: str, bars: Mapping[str, float], width: float = 7.0) -> None:
    """Horizontal bars with their values, the first name at the top."""
    figure, axes = _figure(title, width, 0.9 + 0.36 * len(bars))
    drawn = axes.barh(list(bars), list(bars.values()), color="#4a6fa5", height=0.7)
    axes.bar_label(drawn, fmt="{:,.4g}", padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.margins(x=0.14)
    _save(figure, path)


def draw_lines(path: Path, title: str, x_label: str, y_label: str, x: Sequence[float], lines: Series) -> None:
    """Lines over the same x values; y begins at 0."""
    figure, axes = _figure(title, 7.0, 3.6)
    for name, values in lines.items():
        axes.plot(x, values, marker="o", markersize=4, label=name)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    _save(figure, path)


def _figure(title: str, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
