"""The table of `agon leaderboard`."""

from pathlib import Path

import pytest

from cli.leaderboard import app
from wire.votes import VotedSide, VoteRecord


def log(path: Path, num_votes: int) -> Path:
    lines = [
        VoteRecord(
            vote_id=f"{number + 1}-0",
            battle_id=f"b-{number}",
            time=1700000000.0 + number,
            mode="anonymous",
            outcome="a" if number % 3 else "b",
            a=VotedSide(model="raven", revision="1"),
            b=VotedSide(model="finch", revision="1"),
            turns=1,
        ).model_dump_json(exclude_none=True)
        for number in range(num_votes)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(("num_votes", "first_cells"), [(12, ["-", "raven"]), (60, ["1", "raven"])])
def test_a_model_with_too_few_votes_for_an_interval_has_no_rank(
    num_votes: int, first_cells: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app(args=["--recompute", "--votes", str(log(tmp_path / "log.jsonl", num_votes))], standalone_mode=False)
    rows = [[cell.strip() for cell in line.split("\u2502")[1:3]] for line in capsys.readouterr().out.splitlines()]
    assert first_cells in rows
