"""Two real models in one worker process: one engine host, one page pool, answers as of a process of their own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from model_worker.config import WorkerSettings
from model_worker.model_spec import ModelSpec
from model_worker.models import Models
from model_worker.worker import Worker
from wire.answers import Delta
from wire.chat import ChatMessage, SamplingOptions
from wire.workers import GenerateRequest

DEMO_MODELS = Path(__file__).parents[2] / "demo_models"
FINCH, ROBIN = DEMO_MODELS / "finch", DEMO_MODELS / "robin"


@pytest.fixture
async def models(make_settings: Callable[..., WorkerSettings]) -> AsyncIterator[Models]:
    settings = make_settings(model=(f"finch={FINCH}",), engine="paged", kv_cache_bytes=32 << 20, threads=1)
    served = Models(settings)
    await served.start()
    try:
        yield served
    finally:
        await served.shutdown()


async def answer(worker: Worker, question: str = "What is 17 + 25?", num_tokens: int = 24) -> str:
    asked = GenerateRequest(
        request_id="r",
        messages=(ChatMessage(role="user", content=question),),
        sampling=SamplingOptions(temperature=0, max_tokens=num_tokens),
    )
    async with aclosing(worker.answer(asked)) as pieces:
        return "".join([piece.text async for piece in pieces if isinstance(piece, Delta)])


async def test_two_models_come_sleep_wake_and_go_in_one_process_and_answer_the_same(
    models: Models, eventually: Any
) -> None:
    def states() -> dict[str, str]:
        return {row.name: row.residence for row in models.view().models}

    alone = await answer(models.get("finch"))
    running = [asyncio.create_task(answer(models.get("finch"), num_tokens=200)) for _ in range(2)]
    card = await models.add(ModelSpec("robin", str(ROBIN)))
    await eventually(lambda: states() == {"finch": "resident", "robin": "resident"})
    robin = await answer(models.get("robin"))
    assert robin
    assert len({await task for task in running}) == 1  # adding disturbed none of them

    view = models.view()
    assert view.pool_bytes == 32 << 20
    assert view.memory_bytes == view.pool_bytes + sum(row.wanted_bytes for row in view.models)
    assert card.source == str(ROBIN)

    for _ in range(3):
        await models.sleep("robin")
        assert states() == {"finch": "resident", "robin": "asleep"}
        slept, awake = await asyncio.gather(answer(models.get("robin")), answer(models.get("finch")))
        assert (slept, awake) == (robin, alone)
    assert models.get("robin").wake_s is not None

    await models.remove("robin")
    await eventually(lambda: states() == {"finch": "resident"})
    await models.add(ModelSpec("robin", str(ROBIN)))
    await eventually(lambda: states()["robin"] == "resident")
    assert (await answer(models.get("robin")), await answer(models.get("finch"))) == (robin, alone)
