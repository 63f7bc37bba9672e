"""A board's question and votes in files, for the fit process: the votes in one, which several questions may share."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from controller.votes.boards.board_view import BoardJob, BoardQuery
from controller.votes.boards.board_votes import BoardVotes
from wire.leaderboard import LeaderboardView


def write_votes(path: Path, job: BoardJob) -> None:
    """Write the columns of the votes. Raises OSError."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **job.votes.columns)


def read_votes(path: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    """What `write_votes` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def job_line(job: BoardJob, votes: Path) -> bytes:
    """All of a question but its votes, which are in the file `votes`, as one line of JSON."""
    rated = job.votes
    values = {
        "votes": str(votes),
        "query": asdict(job.query),
        "models": rated.models,
        "revisions": rated.revisions,
        "frame": job.frame.model_dump(mode="json"),
    }
    return json.dumps(values).encode() + b"\n"


def parse_job(line: bytes, columns: dict[str, np.ndarray[Any, np.dtype[Any]]]) -> BoardJob:
    """The question of a line, about votes that were read."""
    values = json.loads(line)
    query = values["query"]
    anchor = None if query["anchor"] is None else tuple(query["anchor"])
    frame = LeaderboardView.model_validate_json(json.dumps(values["frame"]))
    votes = BoardVotes(tuple(values["models"]), values["revisions"], columns, frame.unrated, frame.num_unrated or 0)
    return BoardJob(BoardQuery(**{**query, "anchor": anchor}), votes, frame)
