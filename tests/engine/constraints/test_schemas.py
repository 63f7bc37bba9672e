"""All answers are whole and valid, however few tokens they may have; `python -m tests.engine.constraints` judges
more."""

from collections.abc import Callable
from pathlib import Path

from engine.llm import LLM
from tests.engine.checkpoints import TinyModel
from tests.engine.constraints.schemas import ENDLESS, generated
from tests.engine.constraints.validity import judge

FINCH = Path(__file__).parents[3] / "demo_models/finch"


def test_answers_of_a_random_model_are_valid(tiny_model: Callable[[str], TinyModel]) -> None:
    with LLM(str(tiny_model("llama").folder), kv_cache_bytes=8 << 20, max_running=32, num_threads=1) as llm:
        verdicts = judge(llm, generated(10))
    assert not verdicts.num_refused
    assert not verdicts.invalid
    assert verdicts.num_valid == 10


def test_answers_of_a_real_model_end() -> None:
    with LLM(str(FINCH), kv_cache_bytes=32 << 20, max_running=32, num_threads=1) as llm:
        verdicts = judge(llm, ENDLESS, per_schema=1, is_random=False)
    assert not verdicts.num_refused
    assert not verdicts.invalid
    assert verdicts.num_answers == 20
