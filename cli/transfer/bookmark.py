"""Where an interrupted transfer of votes goes on: a small file beside the file that is read or written.

It says which transfer it belongs to, so that a bookmark of another one is not followed.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Bookmark:
    """The bookmark of one transfer. `transfer` is what must be equal for it to be followed."""

    def __init__(self, path: Path, transfer: Mapping[str, Any]) -> None:
        self.path = path
        self._transfer = dict(transfer)

    def read(self) -> dict[str, Any] | None:
        """The position that was set last; None if there is none, or one of another transfer."""
        try:
            values = json.loads(self.path.read_bytes())
            if values["transfer"] == self._transfer:
                position: dict[str, Any] = values["position"]
                return position
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def set(self, position: Mapping[str, Any]) -> None:
        """Keep a position, in place of the one before. A folder that cannot be written keeps none: the transfer then
        begins anew when it is interrupted."""
        partial = self.path.with_name(self.path.name + ".part")
        try:
            partial.write_text(json.dumps({"transfer": self._transfer, "position": dict(position)}))
            partial.replace(self.path)
        except OSError:
            partial.unlink(missing_ok=True)

    def remove(self) -> None:
        """The transfer is complete."""
        self.path.unlink(missing_ok=True)
