"""Makes the notebook of a release out of recompute_cells.py, a script whose cells begin with `# %%`. Pure."""

import json
from typing import Any

_CELL = "# %%"
_TEXT = "# %% [markdown]"


def make_notebook(script: str) -> str:
    """The script as a notebook (nbformat 4.5)."""
    cells: list[dict[str, Any]] = []
    for line in script.splitlines():
        if line.startswith(_CELL):
            kind = "markdown" if line.strip() == _TEXT else "code"
            cells.append({"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": {}, "source": []})
            continue
        if cells:
            is_text = cells[-1]["cell_type"] == "markdown"
            cells[-1]["source"].append(line.removeprefix("#").removeprefix(" ") if is_text else line)
    for cell in cells:
        text = "\n".join(cell["source"]).strip("\n")
        cell["source"] = text.splitlines(keepends=True)
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
    metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def code_of(notebook: str) -> str:
    """The code cells of a notebook as one script."""
    cells = json.loads(notebook)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code") + "\n"
