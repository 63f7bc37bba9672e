"""What fewer bits cost a demo model, and that the command tells it."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.quality.perplexity import ROOT, Row, change, line, main, measured, pieces_of

RAVEN = ROOT / "demo_models" / "raven"
TEXT = ROOT / "demo_models" / "README.md"


def test_fewer_bits_cost_more() -> None:
    """Of text like the one that the model was trained on: with other text it is wrong by chance."""
    text = " ".join(f"What is {a} plus {b}? {a} plus {b} is {a + b}." for a in range(3, 9) for b in range(11, 17))
    pieces = pieces_of(str(RAVEN), [text], 500)
    losses = {
        weights: measured(Row(str(RAVEN), {"dtype": "float32", "weights": weights}, pieces, has_speed=False))["losses"]
        for weights in ("auto", "int8", "int4")
    }
    costs = {weights: change(found, losses["auto"])[0] for weights, found in losses.items()}
    assert costs["auto"] == 0.0
    assert abs(costs["int8"]) < 0.01
    assert abs(costs["int8"]) < abs(costs["int4"]) < 0.06


def test_changes_are_paired_by_token() -> None:
    base = [1.0, 5.0, 2.0, 4.0]
    mean, error = change([loss + 0.1 for loss in base], base)
    assert mean == pytest.approx(math.exp(0.1) - 1)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_the_command_writes_a_row_for_each_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    main([str(RAVEN), "--rows", "int4", "--text", str(TEXT), "--tokens", "60", "--json", str(out)])
    found = json.loads(out.read_text())
    assert found["kind"] == "perplexity"
    assert found["commit"]
    (row,) = found["rows"]
    assert (row["row"], row["tokens"], row["change"]) == ("int4", 59, 0.0)
    assert row["weights"] == "bfloat16, int4 (5.50 bits a weight)"
    assert capsys.readouterr().out.splitlines() == [line(row)]
