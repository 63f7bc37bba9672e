"""Workloads: fixed token ids, lengths, and files of prompts."""

import hashlib
import json
from pathlib import Path

import pytest

from cli.bench.workloads import (
    TextWork,
    Work,
    named,
    random_work,
    read_texts,
    read_workload,
    texts_like,
    within_vocabulary,
)
from cli.errors import CliError


@pytest.mark.parametrize(
    ("name", "requests", "prompt_tokens", "output_tokens", "digest"),
    [
        ("sharegpt", 32, 3116, 3899, "262ed4a3d2dffec2"),
        ("alpaca", 64, 1127, 3217, "b4891eeb190e4d14"),
        ("single", 1, 128, 128, "4f843fff166d402e"),
    ],
)
def test_the_named_workloads_never_change(
    name: str, requests: int, prompt_tokens: int, output_tokens: int, digest: str
) -> None:
    """Results of different days and engines are compared, so no id may change."""
    work = named(name)
    assert len(work) == requests
    assert (sum(len(item.ids) for item in work), sum(item.out for item in work)) == (prompt_tokens, output_tokens)
    assert hashlib.sha256(repr([(item.ids, item.out) for item in work]).encode()).hexdigest()[:16] == digest


def test_more_requests_begin_with_the_same_ones() -> None:
    assert named("alpaca", 70)[:64] == named("alpaca")


def test_a_small_vocabulary_gets_ids_that_it_has() -> None:
    work = within_vocabulary(named("sharegpt"), 500)
    assert max(max(item.ids) for item in work) < 500
    assert [(len(item.ids), item.out) for item in work] == [(len(item.ids), item.out) for item in named("sharegpt")]
    assert within_vocabulary(named("sharegpt"), 8192) == named("sharegpt")


def test_random_work_is_the_same_every_time_and_shares_no_prefix() -> None:
    work = random_work(8, input_len=16, output_len=4, vocab_size=1000)
    assert work == random_work(8, input_len=16, output_len=4, vocab_size=1000)
    assert len({item.ids[:2] for item in work}) == 8


def test_texts_have_a_word_for_every_token_of_the_workload() -> None:
    assert [len(item.text.split()) for item in texts_like("alpaca", 5)] == [len(i.ids) for i in named("alpaca", 5)]


def test_a_workload_is_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text('[{"ids": [1, 2], "out": 3, "note": "ignored"}]')
    assert read_workload(path) == [Work((1, 2), 3)]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '[{"ids": []}]', '[{"ids": [], "out": 1}]', '[{"ids": [1], "out": 0}]', '[{"ids": [-1]}]']
)
def test_a_broken_workload_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "work.json"
    path.write_text(text)
    with pytest.raises(CliError):
        read_workload(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "one\n\ntwo words\n"),
        ("p.jsonl", '"one"\n{"prompt": "two words"}\n'),
        ("p.json", json.dumps(["one", {"prompt": "two words", "out": None}])),
    ],
)
def test_texts_are_read_from_lines_and_from_json(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    texts = read_texts(path, 9)
    assert [item.text for item in texts] == ["one", "two words"]
    assert texts[0] == TextWork("one", 9)


def test_a_prompt_may_say_how_long_its_answer_is(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a", "out": 3}\n')
    assert read_texts(path, 9) == [TextWork("a", 3)]


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.txt", "\n"), ("p.json", "{}"), ("p.json", "["), ("p.jsonl", '{"text": "a"}'), ("p.json", '[{"prompt": 3}]')],
)
def test_a_broken_file_of_prompts_is_refused(name: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(CliError):
        read_texts(path, None)
