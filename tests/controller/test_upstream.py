"""One request to one worker, read by somebody who takes his time."""

import asyncio
from typing import Any, cast

from fake_worker import FakeWorker, words
from running import running_app

from controller.keys import Keys
from controller.routing_table import RoutingTable, Worker
from controller.upstream import Delta, Finished, Upstream
from controller.worker_http import WorkerHttp
from wire.workers import Capacity, GenerateRequest, Load, ModelCard

CARD = ModelCard(
    name="alpha", revision="r", architecture="llama", num_parameters=1, dtype="float32", context_length=4096
)


async def test_a_slow_reader_is_not_taken_for_a_worker_that_stands_still() -> None:
    fake, http = FakeWorker("alpha", num_tokens=5, delay_s=0.05), WorkerHttp("token", 5.0)
    fake.token = "token"
    table = RoutingTable(cast(Any, None), Keys("unused"), refresh_s=60.0)  # nobody looks at the registry here
    upstream = Upstream(http, table, first_token_timeout_s=20.0, token_timeout_s=2.0)
    async with running_app(fake.app) as url:
        http.start()
        worker = Worker(
            "w", 1, "boot", url, "ready", CARD, Capacity(max_running=1, max_queued=0, kv_tokens=64), Load(), 0, 0
        )
        text, is_finished = "", False
        async for event in upstream.attempt(worker, GenerateRequest(request_id="r", epoch=fake.epoch, prompt="hello")):
            if isinstance(event, Delta) and text == words(1):
                await asyncio.sleep(2.5)  # the rest comes meanwhile and waits to be read
            text += event.text if isinstance(event, Delta) else ""
            is_finished = isinstance(event, Finished)
        await http.stop()

    assert (text, is_finished) == (words(5), True)
