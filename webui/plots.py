"""Small pictures as inline SVG: rating intervals, heat maps, page pools. Pure functions from wire values to markup.

Colours are CSS classes (assets/styles/boards.css), one set per theme. A title describes every picture in words.
Horizontal positions are percentages and text is never scaled, so that pictures are readable on a phone.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from webui import number_formats, sentences, texts
from wire.leaderboard import LeaderboardRow
from wire.workers import PoolPicture

_CELL_W, _CELL_H, _LABEL_W, _TOP = 50, 40, 144, 26
_POOL_COLUMNS = 32
NUM_POOL_COLOURS = 4  #: further families of layer types reuse them
_MAX_LABEL_CHARS = 15
#: Opacity of the faintest and the strongest cell of a heat map; text on the strongest is readable in both themes.
_MIN_HEAT, MAX_HEAT = 0.06, 0.40


@dataclass(frozen=True, slots=True)
class Scale:
    """A rating axis from `low` to `high`."""

    low: float
    high: float

    def percent(self, value: float) -> float:
        """The position of `value` in percent of the width, with a margin of 2 % at both ends."""
        share = (value - self.low) / (self.high - self.low)
        return round(2 + 96 * min(1.0, max(0.0, share)), 2)

    def ticks(self) -> list[float]:
        """Two to six round values inside the scale."""
        rough = (self.high - self.low) / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first = math.ceil(self.low / step)
        return [step * index for index in range(first, math.floor(self.high / step) + 1)]


def rating_scale(rows: Sequence[LeaderboardRow]) -> Scale:
    """A scale that holds every interval of the `rows` with votes."""
    voted = [row for row in rows if row.votes] or rows
    values = [value for row in voted for value in (row.rating, row.lower, row.upper) if value is not None]
    low, high = min(values), max(values)
    room = max(10.0, (high - low) * 0.04)
    return Scale(low - room, high + room)


def interval(row: LeaderboardRow, scale: Scale) -> str:
    """A dot for the rating and a line with end marks for its interval, if it has one."""
    title = escape(sentences.rating_sentence(row.model, row.rating, row.lower, row.upper))
    middle = scale.percent(row.rating)
    parts = [f'<line class="agon-grid" x1="{scale.percent(tick)}%" x2="{scale.percent(tick)}%" y1="0" y2="28"/>'
             for tick in scale.ticks()]  # fmt: skip
    if row.lower is not None and row.upper is not None:
        low, high = scale.percent(row.lower), scale.percent(row.upper)
        parts.append(f'<line class="agon-error" x1="{low}%" x2="{high}%" y1="14" y2="14"/>')
        parts.extend(f'<line class="agon-error" x1="{x}%" x2="{x}%" y1="9" y2="19"/>' for x in (low, high))
    hollow = "" if row.lower is not None else " agon-hollow"
    parts.append(f'<circle class="agon-dot{hollow}" cx="{middle}%" cy="14" r="5"/>')
    return f'<svg class="agon-plot" width="100%" height="28" role="img"><title>{title}</title>{"".join(parts)}</svg>'


def axis(scale: Scale) -> str:
    """The tick labels of a rating axis."""
    labels = "".join(
        f'<text x="{scale.percent(tick)}%" y="14" text-anchor="middle">{tick:.0f}</text>' for tick in scale.ticks()
    )
    return f'<svg class="agon-plot" width="100%" height="20" aria-hidden="true">{labels}</svg>'


def win_rates(names: Sequence[str], rates: Sequence[Sequence[float | None]]) -> str:
    """Heat map of the measured win rates, row against column. None, for two models that never met, is an empty cell."""

    def cell(row: int, column: int) -> "_Cell | None":
        rate = rates[row][column]
        if rate is None or row == column:
            return None
        side = "a" if rate >= 0.5 else "b"
        sentence = sentences.win_rate_sentence(names[row], names[column], rate)
        return _Cell(number_formats.percent(rate), f"agon-heat-{side}", abs(rate - 0.5) * 2, sentence)

    return _heat_map(names, cell, texts.WIN_RATE_PLOT)


def predicted_rates(names: Sequence[str], rates: Sequence[Sequence[float | None]]) -> str:
    """Heat map of the win rates that a board predicts, also for pairs that have not met."""

    def cell(row: int, column: int) -> "_Cell | None":
        rate = rates[row][column]
        if rate is None or row == column:
            return None
        sentence = sentences.predicted_sentence(names[row], names[column], rate)
        return _Cell(
            number_formats.percent(rate), f"agon-heat-{'a' if rate >= 0.5 else 'b'}", abs(rate - 0.5) * 2, sentence
        )

    return _heat_map(names, cell, texts.PREDICTED_PLOT)


def battle_counts(names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Heat map of the number of battles of each pair."""
    most = max((count for row in counts for count in row), default=0)

    def cell(row: int, column: int) -> "_Cell | None":
        count = counts[row][column]
        if not count or row == column:
            return None
        sentence = sentences.count_sentence(names[row], names[column], count)
        return _Cell(number_formats.whole(count), "agon-heat-count", count / most, sentence)

    return _heat_map(names, cell, texts.COUNT_PLOT)


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    css_class: str
    strength: float  #: from 0 to 1
    sentence: str


def _heat_map(names: Sequence[str], cell: Callable[[int, int], _Cell | None], title: str) -> str:
    """Rows have names, columns only their numbers, so that no text is rotated. Sizes are pixels: a wide map scrolls."""
    n = len(names)
    parts = []
    for index, name in enumerate(names):
        y = _TOP + index * _CELL_H + _CELL_H / 2 + 5
        x = _LABEL_W + index * _CELL_W + _CELL_W / 2
        short = name if len(name) <= _MAX_LABEL_CHARS else name[: _MAX_LABEL_CHARS - 1] + "\u2026"
        parts.append(f'<text class="agon-label" x="0" y="{y:g}">{index + 1}  {escape(short)}</text>')
        parts.append(f'<text class="agon-number" x="{x:g}" y="16" text-anchor="middle">{index + 1}</text>')
    for row in range(n):
        for column in range(n):
            parts.append(_heat_cell(row, column, cell(row, column)))
    width, height = _LABEL_W + n * _CELL_W, _TOP + n * _CELL_H
    return (
        f'<div class="agon-scroll" tabindex="0" role="group" aria-label="{escape(title)}">'
        f'<svg class="agon-plot" width="{width}" height="{height}" role="img"><title>{escape(title)}</title>'
        f"{''.join(parts)}</svg></div>"
    )


def _heat_cell(row: int, column: int, cell: _Cell | None) -> str:
    x, y = _LABEL_W + column * _CELL_W, _TOP + row * _CELL_H
    box = f'x="{x + 1}" y="{y + 1}" width="{_CELL_W - 2}" height="{_CELL_H - 2}" rx="4"'
    if cell is None:
        return f'<rect class="agon-heat-none" {box}/>'
    opacity = _MIN_HEAT + (MAX_HEAT - _MIN_HEAT) * cell.strength
    return (
        f"<g><title>{escape(cell.sentence)}</title>"
        f'<rect class="agon-heat-none" {box}/><rect class="{cell.css_class}" {box} fill-opacity="{opacity:.2f}"/>'
        f'<text class="agon-value" x="{x + _CELL_W / 2:g}" y="{y + _CELL_H / 2 + 5:g}" text-anchor="middle">'
        f"{cell.text}</text></g>"
    )


def page_pool(picture: PoolPicture, colours: Mapping[str, int]) -> str:
    """A worker's pool in address order, row by row. In each cell the used share is filled from the bottom, the
    evictable share is drawn pale above it. `colours` maps a family of layer types to a colour's number."""
    families = [family(name) for name in picture.layer_types]
    paths: dict[int, dict[str, list[str]]] = {}
    for index, (which, used, kept) in enumerate(picture.cells):
        if which is None:
            continue
        shapes = paths.setdefault(colours[families[which]] % NUM_POOL_COLOURS, {"used": [], "evictable": []})
        shapes["used"].append(_cell_part(index, 0, used))
        shapes["evictable"].append(_cell_part(index, used, min(used + kept, 100)))
    drawn = "".join(
        f'<g class="agon-pool-type-{colour}">'
        + "".join(f'<path class="agon-page-{state}" d="{"".join(shapes)}"/>' for state, shapes in states.items())
        + "</g>"
        for colour, states in sorted(paths.items())
    )
    ground = "".join(_cell_part(index, 0, 100) for index in range(len(picture.cells)))
    rows = max(1, math.ceil(len(picture.cells) / _POOL_COLUMNS))
    return (
        f'<svg class="agon-pool" viewBox="0 0 {_POOL_COLUMNS} {rows}" role="img">'
        f"<title>{escape(_pool_sentence(picture, families))}</title>"
        f'<path class="agon-page-empty" d="{ground}"/>{drawn}</svg>'
    )


def family(layer_type: str) -> str:
    """The name that a picture uses for a layer type: without its part (name/0, name/1) and without the main model's
    name. Layer types of a second model keep its name."""
    return layer_type.partition("/")[0].removeprefix("main.")


def _pool_sentence(picture: PoolPicture, families: Sequence[str]) -> str:
    num_cells = max(1, len(picture.cells))
    used = sum(used for _, used, _ in picture.cells) / num_cells
    kept = sum(kept for _, _, kept in picture.cells) / num_cells
    cells = Counter(families[which] for which, _, _ in picture.cells if which is not None)
    return sentences.pool_sentence(len(picture.cells), used, kept, sorted(cells.items()))


def _cell_part(index: int, low: int, high: int) -> str:
    """An SVG path: a cell from `low` to `high` percent of its height, with a gap between cells."""
    if low >= high:
        return ""
    x, y = index % _POOL_COLUMNS, index // _POOL_COLUMNS
    top = y + 0.92 - 0.84 * high / 100
    return f"M{x + 0.08:.2f} {top:.2f}h.84v{0.84 * (high - low) / 100:.3g}h-.84z"
