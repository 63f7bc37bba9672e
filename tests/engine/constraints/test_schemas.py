"""Whole answers of a random-weight model are valid; `python -m tests.engine.constraints` judges 500 schemas."""

from collections.abc import Callable

from engine.llm import LLM
from tests.engine.checkpoints import TinyModel
from tests.engine.constraints.schemas import generated
from tests.engine.constraints.validity import judge


def test_answers_are_valid(tiny_model: Callable[[str], TinyModel]) -> None:
    with LLM(str(tiny_model("llama").folder), kv_cache_bytes=8 << 20, max_running=32, num_threads=1) as llm:
        verdicts = judge(llm, generated(24))
    assert not verdicts.num_refused
    assert not verdicts.invalid
    assert verdicts.num_valid >= 20
