"""Write the table of docs/models.md from the registry of models: `make pages`."""

from pathlib import Path

from engine.models.registry import ARCHITECTURES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
HEAD = "| name in config.json | what is special | refused | divisible |\n|---|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with its table replaced; the rest stays."""
    before, _, rest = page.partition(HEAD)
    after = rest[rest.index("\n\n") + 1 :]
    rows = (
        f"| `{each.name}` | {each.summary} | {each.refused} | {'yes' if each.is_divisible else 'no'} |\n"
        for each in ARCHITECTURES.values()
    )
    return before + HEAD + "".join(rows) + after


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
