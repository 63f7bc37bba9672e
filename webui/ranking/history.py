"""Ratings over time and votes by day as a picture: lines and bars in SVG that is stretched to the width, and labels in
HTML above it, because stretched text could not be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from html import escape

from webui import number_formats, plots
from webui.number_formats import day
from webui.ranking import words
from wire.leaderboard import HistoryDay, HistoryPoint, HistoryView

MAX_LINES = 6  #: as many as there are colours that can be told apart
_LEAST_GAP = 9.0  #: percent of the height between the numbers at the lines' ends


@dataclass(frozen=True, slots=True)
class _Days:
    """The horizontal axis: each day has a slot of equal width, days without votes too."""

    first: date
    num_days: int

    def left(self, day: str) -> float:
        """The left edge of the day's slot in percent."""
        return 100 * (date.fromisoformat(day) - self.first).days / self.num_days

    def middle(self, day: str) -> float:
        """The middle of the day's slot in percent."""
        return self.left(day) + 50 / self.num_days


def over_time(view: HistoryView, models: Sequence[str]) -> str:
    """The first MAX_LINES of `models` that have a rating on two days; empty if none has."""
    points = {model: _points(view, model) for model in models}
    lines = [(model, found) for model, found in points.items() if len(found) > 1][:MAX_LINES]
    if not lines:
        return ""
    first, last = view.days[0].day, view.days[-1].day
    days = _Days(date.fromisoformat(first), (date.fromisoformat(last) - date.fromisoformat(first)).days + 1)
    ratings = [point.rating for _, found in lines for _, point in found]
    room = max(10.0, (max(ratings) - min(ratings)) * 0.15)
    scale = plots.Scale(min(ratings) - room, max(ratings) + room)
    title = words.history_sentence([model for model, _ in lines], first, last)
    drawn = "".join(_line(number, model, found, scale, days) for number, (model, found) in enumerate(lines))
    return (
        f'<div class="agon-history" role="img" aria-label="{escape(title)}">'
        f'<div class="agon-y">{_rating_labels(scale)}</div>'
        f'<svg class="agon-lines" viewBox="0 0 100 100" preserveAspectRatio="none">{_grid(scale)}{drawn}</svg>'
        f'<div class="agon-ends">{_ends(lines, scale)}</div>{_bars(view.days, days)}'
        f'<div class="agon-x"><span>{day(first)}</span><span>{day(last)}</span></div></div>'
        f"{_legend(lines)}"
    )


_Line = tuple[str, list[tuple[str, HistoryPoint]]]


def _points(view: HistoryView, model: str) -> list[tuple[str, HistoryPoint]]:
    """The days on which the model has votes, with its point."""
    return [(day.day, row) for day in view.days for row in day.rows if row.model == model and row.votes]


def _y(rating: float, scale: plots.Scale) -> float:
    """The height of a rating in percent from above; outside the picture for one beyond the scale."""
    return round(100 * (scale.high - rating) / (scale.high - scale.low), 2)


def _line(number: int, model: str, found: list[tuple[str, HistoryPoint]], scale: plots.Scale, days: _Days) -> str:
    places = [(round(days.middle(day), 2), point) for day, point in found]
    path = " ".join(f"{x},{_y(point.rating, scale)}" for x, point in places)
    known = [
        (x, point.lower, point.upper) for x, point in places if point.lower is not None and point.upper is not None
    ]
    edge = [(x, lower) for x, lower, _ in known] + [(x, upper) for x, _, upper in reversed(known)]
    band = " ".join(f"{x},{min(200.0, max(-100.0, _y(value, scale)))}" for x, value in edge)
    (first_day, first), (last_day, last) = found[0], found[-1]
    title = escape(words.line_sentence(model, first.rating, first_day, last.rating, last_day))
    area = f'<polygon points="{band}"/>' if len(known) > 1 else ""
    return (
        f'<g class="agon-line-{number}"><title>{title}</title>{area}'
        f'<polyline points="{path}" vector-effect="non-scaling-stroke"/></g>'
    )


def _grid(scale: plots.Scale) -> str:
    return "".join(
        f'<line class="agon-grid" x1="0" x2="100" y1="{_y(tick, scale)}" y2="{_y(tick, scale)}" '
        'vector-effect="non-scaling-stroke"/>'
        for tick in scale.ticks()
    )


def _rating_labels(scale: plots.Scale) -> str:
    return "".join(f'<span style="top:{_y(tick, scale)}%">{tick:.0f}</span>' for tick in scale.ticks())


def _ends(lines: Sequence[_Line], scale: plots.Scale) -> str:
    """The number of each line at the height of its end, moved down where two would overlap."""
    heights = sorted((_y(found[-1][1].rating, scale), number) for number, (_, found) in enumerate(lines))
    placed: list[str] = []
    lowest = -_LEAST_GAP
    for index, (height, number) in enumerate(heights):
        below = (len(heights) - 1 - index) * _LEAST_GAP  # room that the others need
        lowest = min(max(height, lowest + _LEAST_GAP), 100 - below)
        placed.append(f'<b class="agon-line-{number}" style="top:{lowest:.2f}%">{number + 1}</b>')
    return "".join(placed)


def _bars(days: Sequence[HistoryDay], axis: _Days) -> str:
    most = max(day.num_votes for day in days)
    if not most:
        return ""
    width = 100 / axis.num_days
    bars = "".join(
        f'<rect x="{axis.left(day.day) + 0.1 * width:.2f}" width="{0.8 * width:.2f}" '
        f'y="{100 * (1 - day.num_votes / most):.2f}" height="{100 * day.num_votes / most:.2f}">'
        f"<title>{words.day_sentence(day.day, day.num_votes)}</title></rect>"
        for day in days
        if day.num_votes
    )
    return (
        f'<div class="agon-y agon-most"><span>{number_formats.whole(most)}</span></div>'
        f'<svg class="agon-bars" viewBox="0 0 100 100" preserveAspectRatio="none">{bars}</svg>'
    )


def _legend(lines: Sequence[_Line]) -> str:
    """The number, name, last rating and change of each line."""
    entries = []
    for number, (model, found) in enumerate(lines):
        last = found[-1][1].rating
        change = last - found[0][1].rating
        entries.append(
            f'<li class="agon-line-{number}"><b>{number + 1}</b><span>{escape(model)}</span>'
            f"<small>{last:.0f} ({number_formats.signed(change)})</small></li>"
        )
    return f'<ol class="agon-line-names">{"".join(entries)}</ol>'
