"""The adapters of a step's rows, put into the step's upload."""

from dataclasses import replace

from engine.kernels.adapters import AdapterRows, AdapterTiles, tile_columns
from engine.runner.device.transfer import Upload

_COLUMNS = ("tile_first_rows", "tile_num_rows", "tile_slots")


def send_tiles(upload: Upload, adapters: AdapterRows, num_rows: int) -> None:
    """Write the tiles of a decode step into their columns. num_rows: with padding; there are no more tiles."""
    for name, values in zip(_COLUMNS, tile_columns(adapters.runs), strict=True):
        column = upload.column(name)
        column[: len(values)], column[len(values) : num_rows] = values, 0


def put_tiles(upload: Upload, adapters: AdapterRows) -> AdapterRows:
    """The same rows with their tiles on the device, valid until the next step."""
    return replace(adapters, tiles=AdapterTiles(*map(upload.put, tile_columns(adapters.runs))))
