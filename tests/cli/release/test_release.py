"""A release holds what visitors agreed to and no more, and gives the boards again."""

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from cli.errors import CliError
from cli.release.notebook import code_of
from cli.release.pseudonyms import Pseudonyms, release_key
from cli.votes import app
from controller.votes.boards.board_view import BoardQuery, fold_log, view_of
from wire.chat import ChatMessage
from wire.feedback import FeedbackRecord
from wire.judgements import Judgement
from wire.labels import LabelRecord
from wire.log_records import LogRecord
from wire.votes import StyleCounts, VotedSide, VoteRecord

MODELS = ("raven", "finch", "robin", "wren")


def talk(prompt: str, answer: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage(role="user", content=prompt), ChatMessage(role="assistant", content=answer))


def vote(number: int, chance: random.Random, **changes: Any) -> VoteRecord:
    a, b = chance.sample(range(len(MODELS)), 2)
    outcome = chance.choices(("a", "b", "tie", "both_bad"), (5 + 2 * (b - a), 5 + 2 * (a - b), 2, 1))[0]
    prompt = f"Question {number % 40}?"
    values: dict[str, Any] = {
        "vote_id": f"{number + 1}-0",
        "battle_id": f"battle-{number}",
        "time": 1_700_000_000.25 + 17 * number,
        "mode": "anonymous",
        "outcome": outcome,
        "a": VotedSide(model=MODELS[a], revision="new", style=StyleCounts(tokens=chance.randint(1, 300), bold=a)),
        "b": VotedSide(model=MODELS[b], revision="new", style=StyleCounts(tokens=chance.randint(1, 300), lists=b)),
        "turns": 1 + number % 2,
        "voter": f"pseudonym-{number % 17}",
        "network": "network-hash",
        "cohort": "staff of acme",
        "comment": "a secret comment",
        "prompt": f"hash of {prompt}",
        "probability": 1 / 6,
        "consent": {0: True, 1: False}.get(number % 3),
        "conversations": {"a": talk(prompt, f"I am at mail{number}@example.org"), "b": talk(prompt, "No idea.")},
    }
    return VoteRecord.model_validate({**values, **changes})


def log() -> list[LogRecord]:
    chance = random.Random(7)
    votes = [vote(number, chance) for number in range(400)]
    votes[5] = vote(5, chance, flags=("stopped",))
    votes[6] = vote(6, chance, mode="named", flags=("named",))
    older = VotedSide(model="raven", revision="old")
    votes[7] = vote(7, chance, time=1_700_000_000.0, a=older, b=VotedSide(model="finch", revision="new"))
    votes[9] = vote(9, chance, conversations=None)
    return [
        *votes,
        judgement("1", "flag", "anomalous_voter", voter="pseudonym-3"),
        judgement("2", "flag", "anomalous_voter", voter="pseudonym-4"),
        judgement("3", "unflag", "anomalous_voter", voter="pseudonym-4"),
        judgement("4", "flag", "withdrawn", battle_ids=("battle-0",)),
        FeedbackRecord(
            feedback_id="1001-0", key="feedback:1", time=2.0, battle_id="battle-3", comment="a secret comment, later"
        ),
        LabelRecord(
            label_id="1002-0", key="label:1", time=2.0, battle_id="battle-3", categories=("labelled",), by="model"
        ),
    ]


def judgement(number: str, action: str, flag: str, **subject: Any) -> Judgement:
    return Judgement.model_validate(
        {"judgement_id": f"1000-{number}", "key": f"judgement:{number}", "time": 1.0, "action": action, "flag": flag}
        | {"by": "judge"}
        | subject
    )


def written(path: Path, entries: Iterable[LogRecord]) -> Path:
    path.write_text("".join(entry.model_dump_json(exclude_none=True) + "\n" for entry in entries), encoding="utf-8")
    return path


def released(folder: Path, *options: str) -> Path:
    source = written(folder / "log.jsonl", log())
    target = folder / "release"
    arguments = ["release", str(target), "--votes", str(source), *options]
    app(args=arguments, standalone_mode=False)
    return target


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    return released(folder, "--board", "overall", "--board", "multi_turn", "--style-control")


def test_the_notebook_gives_the_boards_of_the_controller_to_the_last_digit(release: Path) -> None:
    claims = json.loads((release / "boards.json").read_text())
    assert [(claim["board"], claim["options"]["style"]) for claim in claims] == [
        ("overall", False),
        ("overall", True),
        ("multi_turn", False),
        ("multi_turn", True),
    ]
    table = fold_log(log())
    for claim in claims:
        live = view_of(BoardQuery(claim["board"], claim["options"]["style"]), table, updated_at=0.0)
        assert live is not None
        assert claim["view"]["rows"] == live.model_dump(mode="json")["rows"]
    done = run_cells(release, (release / "recompute.ipynb").read_text())
    assert done.returncode == 0, done.stderr
    assert "equal to the published one, to the last digit" in done.stdout


def test_the_notebook_notices_a_changed_digit_and_a_changed_vote(release: Path, tmp_path: Path) -> None:
    for name in ("votes.jsonl", "votes.parquet", "boards.json"):
        (tmp_path / name).write_bytes((release / name).read_bytes())
    (tmp_path / "code").symlink_to(release / "code")
    claims = json.loads((tmp_path / "boards.json").read_text())
    claims[0]["view"]["rows"][0]["rating"] *= 1 + 1e-15
    (tmp_path / "boards.json").write_text(json.dumps(claims))
    done = run_cells(tmp_path, (release / "recompute.ipynb").read_text())
    assert done.returncode != 0
    assert "rating is" in done.stdout


def test_the_notebook_reads_the_json_lines_where_there_is_no_pyarrow(release: Path) -> None:
    hidden = "import sys; sys.modules['pyarrow'] = None\n"
    done = run_cells(release, (release / "recompute.ipynb").read_text(), hidden)
    assert done.returncode == 0, done.stderr


def run_cells(folder: Path, notebook: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the code cells as one script in a process that knows nothing of this repository."""
    return subprocess.run(
        [sys.executable, "-I", "-c", before + code_of(notebook)], cwd=folder, capture_output=True, text=True
    )


def test_both_files_hold_the_same_votes_and_every_vote(release: Path) -> None:
    rows = rows_of(release / "votes.jsonl")
    assert parquet.read_table(release / "votes.parquet").to_pylist() == rows
    assert len(rows) == 400
    assert len({row["vote"] for row in rows}) == 400
    assert rows[5]["flags"] == ["stopped"]
    assert rows[0]["flags"] == ["withdrawn"]
    assert rows[7]["model_a"] == "raven@old"
    assert rows[3]["categories"] == ["labelled"]
    assert all(("anomalous_voter" in row["flags"]) == (number % 17 == 3) for number, row in enumerate(rows))
    assert all(("overall" in row["boards"]) == (row["flags"] == []) for row in rows)


def test_a_release_names_no_voter_network_cohort_or_comment(release: Path) -> None:
    texts = [path.read_bytes() for path in release.rglob("*") if path.is_file()]
    for secret in (b"pseudonym-", b"network-hash", b"staff of acme", b"secret comment", b"battle-", b"hash of"):
        assert not any(secret in text for text in texts), secret
    rows = rows_of(release / "votes.jsonl")
    assert len({row["voter"] for row in rows}) == 17
    assert {row["hour"][-4:] for row in rows} == {":00Z"}


def test_only_texts_of_visitors_who_agreed_are_released_once_for_each_prompt_and_scrubbed(release: Path) -> None:
    conversations = rows_of(release / "conversations.jsonl")
    assert parquet.read_table(release / "conversations.parquet").to_pylist() == conversations
    votes = {row["vote"]: number for number, row in enumerate(rows_of(release / "votes.jsonl"))}
    numbers = [votes[row["vote"]] for row in conversations]
    assert all(number % 3 == 0 and number not in (0, 9) for number in numbers)
    prompts = [row["conversation_a"][0]["content"] for row in conversations]
    assert sorted(prompts) == sorted({f"Question {number}?" for number in range(40)})
    assert {row["conversation_a"][1]["content"] for row in conversations} == {"I am at [EMAIL_1]"}
    assert sum(row["num_same_prompt"] for row in conversations) == 133  # of 134 agreed, one has no texts any more


def test_the_card_says_what_was_left_out_and_has_the_metadata_of_the_hub(release: Path) -> None:
    card = (release / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\npretty_name: 'Votes of a chat arena'\nlicense: cc-by-4.0\n")
    assert "400 votes, 2023-11-14 to 2023-11-15 (UTC). Models: finch, raven, raven@old, robin, wren." in card
    assert "| stopped | 1 |" in card
    assert "| EMAIL | 40 |" in card
    assert "The visitor of 134 votes agreed" in card
    assert {path.name for path in release.iterdir()} == {
        "README.md",
        "boards.json",
        "code",
        "conversations.jsonl",
        "conversations.parquet",
        "recompute.ipynb",
        "recompute.py",
        "votes.jsonl",
        "votes.parquet",
    }


def test_ids_change_with_every_release_unless_the_key_is_kept(tmp_path: Path) -> None:
    def vote_id(key: bytes) -> str:
        return Pseudonyms(key).of("vote", "battle-1")

    path = tmp_path / "key"
    assert vote_id(release_key(path)) == vote_id(release_key(path))
    assert vote_id(release_key(None)) != vote_id(release_key(None))
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("00")
    with pytest.raises(CliError, match="holds no key"):
        release_key(path)


def test_a_release_goes_into_a_new_folder_and_a_failed_one_leaves_none(tmp_path: Path) -> None:
    source = written(tmp_path / "log.jsonl", log())
    (tmp_path / "there").mkdir()
    with pytest.raises(CliError, match="exists"):
        app(args=["release", str(tmp_path / "there"), "--votes", str(source)], standalone_mode=False)
    with pytest.raises(CliError, match="no board"):
        app(
            args=["release", str(tmp_path / "new"), "--votes", str(source), "--board", "unknown"],
            standalone_mode=False,
        )
    written(tmp_path / "empty.jsonl", [])
    with pytest.raises(CliError, match="no votes"):
        app(args=["release", str(tmp_path / "new"), "--votes", str(tmp_path / "empty.jsonl")], standalone_mode=False)
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "there", "empty.jsonl"}
