"""Write docs/fifty-names.md: by which way Agon runs the architectures that people run most: `make pages`."""

from pathlib import Path

from tests.engine.fifty_names import NAMES, way_of

PAGE = Path(__file__).resolve().parent / "fifty-names.md"
_HEAD = """# The architectures that people run most

The names of text models in `architectures` that are downloaded most in 2026, and whose code runs each. With "Agon" it is code of our own
([models.md](models.md)); with "transformers" it is transformers' modelling code on our pages, which is slower. Tests compare both with
transformers' own results (`tests/engine/models`). The others are refused when they are loaded, with the reason in the table.

"""  # noqa: E501 - lines of a page are as long as in the other pages
_COLUMNS = "| name in config.json | whose code | why not |\n|---|---|---|\n"
_REASON = "cannot run on pages: "


def page() -> str:
    """The whole page."""
    ways = {name: way_of(name) for name in NAMES}
    loaded = sum(way in _CODES for way in ways.values())
    rows = "".join(_row(name, way) for name, way in ways.items())
    return f"{_HEAD}Loaded: {loaded} of {len(ways)}.\n\n{_COLUMNS}{rows}"


_CODES = {"agon": "Agon", "transformers": "transformers"}


def _row(name: str, way: str) -> str:
    if way in _CODES:
        return f"| `{name}` | {_CODES[way]} |  |\n"
    reason = way.partition(_REASON)[2].rpartition("; the nearest")[0]
    return f"| `{name}` | none | {reason} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
