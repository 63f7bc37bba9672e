"""The inputs of a request for vectors, side by side: an engine that batches computes several in a step."""

import asyncio
from functools import partial

from model_worker.engine_protocol import Engine
from wire.embeddings import EmbedReply, EmbedRequest, packed

#: Inputs of one request that wait or run in the engine at once, so that its queue keeps room for other requests.
AT_ONCE = 32
_INLINE_CHARS = 2000  #: longer texts are encoded in another thread


async def embed_inputs(engine: Engine, asked: EmbedRequest) -> EmbedReply:
    """The vectors in the order of the inputs. Raises ApiError of the first input that fails; the others are aborted."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> tuple[str, int]:
        async with places:
            source = asked.inputs[index]
            encode = partial(engine.tokenise, source)
            prompt = encode() if len(source) <= _INLINE_CHARS else await asyncio.to_thread(encode)
            request_id = f"{asked.request_id}/{index}"
            vector = await engine.embed(prompt.token_ids, asked, request_id=request_id, cache_salt=asked.cache_salt)
            return packed(vector), len(prompt.token_ids)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(index)) for index in range(len(asked.inputs))]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    found = [task.result() for task in tasks]
    return EmbedReply(vectors=tuple(vector for vector, _ in found), prompt_tokens=sum(count for _, count in found))
