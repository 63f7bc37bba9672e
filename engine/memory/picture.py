"""A page pool as an SVG drawing, from a snapshot of it: one cell per run of large pages, coloured by type and state.

Pure string building, for documents and for a page that shows a worker's memory. Knows nothing of a cache: the ledger
takes the snapshot.
"""

from collections.abc import Sequence
from html import escape

from engine.memory.ledger import PoolCell

_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
_EMPTY = "#e8e8e8"
_EVICTABLE_OPACITY = 0.4


def draw_pool(cells: Sequence[PoolCell], *, cells_per_row: int = 64, cell_px: int = 12) -> str:
    """The pool in address order, row by row. In each cell used bytes are solid from the bottom, cached ones pale above
    them, and what is grey is empty."""
    names = sorted({cell.layer_type.partition("/")[0] for cell in cells if cell.layer_type is not None})
    colour_of = {name: _COLOURS[index % len(_COLOURS)] for index, name in enumerate(names)}
    num_rows = -(-len(cells) // cells_per_row)
    width = max(1, min(len(cells), cells_per_row)) * cell_px
    legend_top = num_rows * cell_px + 6
    height = legend_top + 18 * len(names)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, 240)} {height}" role="img" '
        f'aria-label="page pool">'
    ]
    for index, cell in enumerate(cells):
        left, top = index % cells_per_row * cell_px, index // cells_per_row * cell_px
        parts.append(_rectangle(left, top, cell_px - 1, cell_px - 1, _EMPTY))
        if cell.layer_type is None:
            continue
        colour, bottom = colour_of[cell.layer_type.partition("/")[0]], float(top + cell_px - 1)
        for share, opacity in ((cell.used, 1.0), (cell.evictable, _EVICTABLE_OPACITY)):
            if share > 0:
                part = share * (cell_px - 1)
                bottom -= part
                parts.append(_rectangle(left, bottom, cell_px - 1, part, colour, opacity))
    for index, name in enumerate(names):
        top = legend_top + 18 * index
        parts.append(_rectangle(0, top, 12, 12, colour_of[name]))
        parts.append(f'<text x="18" y="{top + 10}" font-size="11" font-family="sans-serif">{escape(name)}</text>')
    parts.append("</svg>")
    return "".join(parts)


def _rectangle(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0) -> str:
    shape = f'<rect x="{x:g}" y="{y:.2f}" width="{width:g}" height="{height:.2f}" fill="{colour}"'
    return shape + ("/>" if opacity == 1.0 else f' fill-opacity="{opacity:g}"/>')
