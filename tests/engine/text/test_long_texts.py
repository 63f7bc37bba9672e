"""Encoding a long text beside other threads."""

import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("tokenizers")

from engine.text.tokenizer import Tokenizer

RAVEN = Path(__file__).parents[3] / "demo_models/raven"


def test_other_threads_go_on_while_a_long_text_is_encoded() -> None:
    tokenizer = Tokenizer.from_folder(RAVEN)
    begin, has_ended = threading.Event(), threading.Event()

    def encode() -> None:
        begin.wait()
        tokenizer.encode("x" * 300_000)
        has_ended.set()

    thread = threading.Thread(target=encode)
    thread.start()
    begin.set()
    num_turns = 0
    while not has_ended.is_set():
        time.sleep(0.001)
        num_turns += 1
    thread.join()
    assert num_turns > 5, "the interpreter was held"


def test_a_long_text_has_the_ids_of_its_encoding() -> None:
    tokenizer = Tokenizer.from_folder(RAVEN)
    text = "Once upon a time, there were 17 + 25 birds. \U0001f600 " * 200
    assert tokenizer.encode(text) == tokenizer._backend.encode(text, add_special_tokens=False).ids
    assert tokenizer.encode(text, add_special_tokens=True) == tokenizer._backend.encode(text).ids
