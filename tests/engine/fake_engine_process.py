"""`python -m tests.engine.fake_engine_process FD`: an engine's process without a model. The model's name says how it
behaves.
"""

import logging
import os
import sys
import time
from dataclasses import replace
from typing import NoReturn

from engine.async_engine import AsyncEngine
from engine.batch import StepPlan
from engine.config import EngineConfig
from engine.engine_process.child import serve_parent
from engine.errors import CheckpointError, CheckpointUnavailable
from engine.loaded_engine import LoadedEngine
from engine.model_info import ModelInfo
from tests.engine.fakes import LetterTokenizer, loaded, make_core

MODULE = "tests.engine.fake_engine_process"
STEP_S = 0.01  #: of the model "slow"
INFO = ModelInfo("fake", "Fake", 7, "float32", 1024, "dummy", "cpu")


async def start_process(model: str, **settings: object) -> AsyncEngine:
    """An engine in a process that behaves as the name says."""
    config = EngineConfig(model, page_tokens=4, **settings)  # type: ignore[arg-type]
    return await AsyncEngine.in_own_process(config, MODULE, lambda config: LetterTokenizer())  # type: ignore[arg-type, return-value]


def load(config: EngineConfig) -> LoadedEngine:
    match config.model:
        case "no checkpoint":
            raise CheckpointError("there is no such model")
        case "no hub":
            raise CheckpointUnavailable("the hub cannot be reached")
        case "no memory":
            raise MemoryError("not enough memory")
        case "unheard of":
            raise KeyError("a defect")
        case "killed":
            os.kill(os.getpid(), 9)
        case "endless":
            time.sleep(3600)
    core, runner = make_core(1000, has_queue_bound=False, max_running=config.max_running)
    launch, close = runner.launch, runner.close

    def slow(plan: StepPlan) -> None:
        time.sleep(STEP_S)
        launch(plan)

    def stuck(plan: StepPlan) -> NoReturn:
        while True:
            time.sleep(1)

    def broken(plan: StepPlan) -> NoReturn:
        raise RuntimeError("an illegal memory access was encountered")

    def not_closing() -> NoReturn:
        close()
        raise RuntimeError("it cannot be closed")

    steps = {"slow": slow, "stuck": stuck, "broken": broken}
    runner.launch = steps.get(config.model, launch)  # type: ignore[method-assign]
    if config.model == "not closing":
        runner.close = not_closing  # type: ignore[method-assign]
    until = time.monotonic() + 1
    is_alive = (lambda: time.monotonic() < until) if config.model == "losing a rank" else (lambda: True)
    return replace(loaded(core, is_alive), info=INFO)


if __name__ == "__main__":
    logging.basicConfig(format="child: %(message)s")
    sys.exit(serve_parent(load))
