"""Many models in one process: `EngineHost`, the composition root of a worker that serves several.

    host = EngineHost(pool_bytes=4 << 30, num_threads=None)     # starts the engine thread; loads nothing
    engine = await host.add("raven", EngineConfig(PATH))        # an AsyncEngine: generate, embed, stats, picture, ...
    await host.sleep("raven"); await host.wake("raven")         # requests wait meanwhile; none is refused or lost
    host.states()                                               # {"raven": "resident"}: see ModelState
    report = await host.report()                                # bytes of the pool, by model and state
    await host.remove("raven", drain_s=30.0)                    # as engine.shutdown(30.0), which does the same
    await host.shutdown()

`add` also takes floor_bytes and ceiling_bytes of the pool. EngineConfig.kv_cache_bytes of the models is not used: the
pool is the host's. Models of several processes (tensor_parallel) have an engine of their own, AsyncEngine.from_config.
"""

from engine.hosting.engine_host import MAX_MODELS, EngineHost
from engine.hosting.hosted_model import ModelState
from engine.hosting.pool_report import ModelMemory, PoolReport

__all__ = ["MAX_MODELS", "EngineHost", "ModelMemory", "ModelState", "PoolReport"]
