"""Asks a worker of a model for the tokens of a prompt, or for the text of tokens. Takes no lease: the engine computes
nothing for it."""

import asyncio
import json

import aiohttp

from controller.workers.routing_table import RoutingTable
from controller.workers.worker_http import WorkerHttp
from wire.errors import STATUS, ApiError, ErrorCode
from wire.workers import TokensReply, TokensRequest

TOKENS_PATH = "/internal/tokens"
TIMEOUT_S = 30.0  #: long prompts are encoded in a thread of the worker
MAX_AT_ONCE = 16  #: questions to workers at the same time


class WorkerTokens:
    """Owns the limit on concurrent questions."""

    def __init__(self, workers: WorkerHttp, table: RoutingTable) -> None:
        self._workers = workers
        self._table = table
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    async def ask(self, model: str, asked: TokensRequest) -> TokensReply:
        """The answer of the first ready worker that gives one. Raises ApiError: what the worker says of the request,
        MODEL_NOT_FOUND, NO_WORKER or WORKER_FAILED."""
        if model not in self._table.ready_models():
            raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"The model {model!r} does not exist.", param="model")
        named = asked.model_copy(update={"model": model})
        body = named.model_dump_json(exclude_none=True, exclude_defaults=True).encode()
        for worker in self._table.ready(model):
            async with self._room:
                status, content = await self._post(worker.url, body)
            if status == 200:
                return TokensReply.model_validate_json(content)
            if status in (400, 413):
                error = ApiError.from_body(json.loads(content))
                if STATUS[error.code] == status:
                    raise error
        raise ApiError(ErrorCode.WORKER_FAILED, "No worker of the model answered.")

    async def _post(self, url: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; 0 without an answer."""
        headers = {"Content-Type": "application/json"}
        try:
            ask = self._workers.session.post(url + TOKENS_PATH, data=body, headers=headers, allow_redirects=False)
            async with asyncio.timeout(TIMEOUT_S), ask as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError):
            return 0, b""
