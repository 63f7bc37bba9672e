"""The table of `agon leaderboard`."""

import csv
import io
import json
from pathlib import Path

import pytest

from cli.errors import CliError
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


def test_models_without_a_rank_stand_below_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = log(tmp_path / "log.jsonl", 60)
    stray = json.loads(path.read_text().splitlines()[0])
    for side, model in (("a", "robin"), ("b", "owl")):  # 1000.0 each, between the two that have a rank
        stray[side]["model"] = model
    path.write_text(path.read_text() + json.dumps({**stray, "battle_id": "b-x", "outcome": "tie"}) + "\n")
    app(args=["--recompute", "--votes", str(path)], standalone_mode=False)
    rows = [[cell.strip() for cell in line.split("\u2502")[1:3]] for line in capsys.readouterr().out.splitlines()]
    models = [row[1] for row in rows if row and row[1] in ("raven", "finch", "owl", "robin")]
    assert models == ["raven", "finch", "owl", "robin"]


def test_an_anchor_and_the_rows_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    votes = str(log(tmp_path / "log.jsonl", 90))
    app(args=["--recompute", "--votes", votes, "--anchor", "finch", "--csv"], standalone_mode=False)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))

    assert [row["model"] for row in rows] == ["raven", "finch"]
    assert float(rows[1]["rating"]) == pytest.approx(1000.0)
    assert float(rows[0]["rating"]) > 1000


def test_the_table_is_followed_by_what_the_votes_say_of_neighbours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app(args=["--recompute", "--votes", str(log(tmp_path / "log.jsonl", 900))], standalone_mode=False)

    assert "raven is above finch." in capsys.readouterr().out


@pytest.mark.parametrize(
    "option", [["--fit", "elo"], ["--weighting", "none"], ["--anchor", "crow"]], ids=lambda o: o[0]
)
def test_an_option_that_makes_no_sense_is_refused(option: list[str], tmp_path: Path) -> None:
    votes = str(log(tmp_path / "log.jsonl", 90))

    with pytest.raises(CliError, match=option[0]):
        app(args=["--recompute", "--votes", votes, *option], standalone_mode=False)
