"""Style sheets, put together from the files of assets/styles.

Colours and sizes come from tokens.css. Gradio prefixes the rules of its pages with its container, so their specificity
is higher than that of its own rules.
"""

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "assets/styles"
_LAYOUT: Final = (
    *("frame", "empty_state", "sides", "conversation", "dock", "voting", "reveal", "choosing", "boards", "about"),
    *("workers", "thoughts"),
)
#: The sheets, as names of files in the order of the cascade: what stands later wins.
HEAD: Final = ("tokens", "notices")  #: in the head of Gradio's pages: Gradio applies its own sheet late
GRADIO: Final = (*_LAYOUT, "ranking", "feedback", "language", "compact")
ADMIN: Final = (*_LAYOUT, "admin")
OWN_PAGES: Final = ("tokens", "history", "feedback", "language", "notices")  #: a visitor's battles, shared battles


def style_sheet(names: tuple[str, ...]) -> str:
    """The rules of these files, one after the other."""
    return "".join((_FOLDER / f"{name}.css").read_text(encoding="utf-8") for name in names)
