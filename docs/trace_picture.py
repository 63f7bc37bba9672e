"""Draws the trace of a battle's last turn: `agon why BATTLE_ID --json | python -m docs.trace_picture`."""

import json
import sys
from pathlib import Path

import matplotlib

from controller.battles.spans import Span, turn_span
from wire.trails import TrailView

OUTPUT = Path(__file__).parent / "images" / "trace.png"
_COLOURS = {
    "turn": "#9aa5b1",
    "answer": "#c3cbd4",
    "wait": "#e0b040",
    "queue": "#e07b39",
    "prefill": "#4f7cac",
    "decode": "#5b9a68",
    "replay": "#b05279",
    "retry": "#b05279",
}


def rows(span: Span, depth: int = 0) -> list[tuple[int, Span]]:
    """A span and those below it, in order, with their depths."""
    return [(depth, span), *(row for child in span.children for row in rows(child, depth + 1))]


def draw(span: Span, path: Path) -> None:
    """A bar for each span, one below the other; the time since the turn began in seconds."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = rows(span)
    figure, axes = pyplot.subplots(figsize=(10, 0.36 * len(found) + 1))
    for line, (depth, one) in enumerate(found):
        axes.barh(line, one.end - one.start, left=one.start - span.start, color=_COLOURS.get(one.name, "#888888"))
        said = [str(one.attributes[name]) for name in ("agon.model", "agon.worker") if name in one.attributes]
        label = "    " * depth + " ".join([one.name, *said])
        axes.text(
            one.start - span.start, line, f" {label}  {1000 * (one.end - one.start):.0f} ms", va="center", fontsize=8
        )
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.set_xlabel("seconds since the turn began")
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Read what `agon why --json` prints, and write docs/images/trace.png."""
    trail = TrailView.model_validate(json.load(sys.stdin)["trail"])
    last = max(entry.turn for entry in trail.entries if entry.turn is not None)
    draw(turn_span([entry for entry in trail.entries if entry.turn == last]), OUTPUT)


if __name__ == "__main__":
    main()
