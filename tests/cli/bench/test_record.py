"""Percentiles and the JSON document of a benchmark."""

import json
import math
from pathlib import Path

import pytest

from cli.bench import record


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (95, 10), (99, 10), (10, 1)])
def test_percentiles_are_values_that_occurred(percent: float, expected: float) -> None:
    assert record.percentile(list(range(1, 11)), percent) == expected


def test_of_nothing_there_is_no_percentile() -> None:
    assert math.isnan(record.percentile([], 50))


def test_a_result_tells_the_machine_and_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    record.write(path, record.document("offline", {"threads": 2}, [{"tokens_per_s": 1.0}]))
    result = json.loads(path.read_text())
    assert {"kind", "when", "commit", "machine", "settings", "rows"} <= set(result)
    assert result["machine"]["packages"]["agon"]
