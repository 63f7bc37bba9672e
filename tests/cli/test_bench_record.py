import json
import math
from pathlib import Path

import pytest

from cli import bench_record
from cli.bench_offline import Work, random_work, read_workload
from cli.errors import CliError


@pytest.mark.parametrize(("percent", "expected"), [(50, 5), (95, 10), (99, 10), (10, 1)])
def test_percentiles_are_values_that_occurred(percent: float, expected: float) -> None:
    assert bench_record.percentile(list(range(1, 11)), percent) == expected


def test_of_nothing_there_is_no_percentile() -> None:
    assert math.isnan(bench_record.percentile([], 50))


def test_a_result_tells_the_machine_and_the_commit(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    bench_record.write(path, bench_record.document("offline", {"threads": 2}, [{"tokens_per_s": 1.0}]))
    result = json.loads(path.read_text())
    assert {"kind", "when", "commit", "machine", "settings", "rows"} <= set(result)
    assert result["machine"]["packages"]["agon"]


def test_random_work_is_the_same_every_time_and_shares_no_prefix() -> None:
    work = random_work(8, input_len=16, output_len=4, vocab_size=1000)
    assert work == random_work(8, input_len=16, output_len=4, vocab_size=1000)
    assert len({item.ids[:2] for item in work}) == 8


def test_a_workload_is_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text('[{"ids": [1, 2], "out": 3, "note": "ignored"}]')
    assert read_workload(path) == [Work((1, 2), 3)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '[{"ids": []}]', '[{"ids": [], "out": 1}]', '[{"ids": [1], "out": 0}]']
)
def test_a_broken_workload_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text(text)
    with pytest.raises(CliError):
        read_workload(path)
