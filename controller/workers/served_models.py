"""What the worker processes serve, and what an administrator has them do: asked from the processes, kept nowhere here.

A process is named by its URL or by the id of any worker in it. Each process owns the list of its models
(model_worker/models_file.py), so that what was added is there again after a restart.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from controller.workers.routing_table import RoutingTable
from controller.workers.worker_http import WorkerHttp
from wire.errors import ApiError, ErrorCode
from wire.served_models import MAX_MODELS, AddModel, AdminServed, NamedModel, ServedModel, ServedModels, WorkerModels

PATH = "/internal/models"
LOOK_S = 2.0  #: a process that does not answer in this time is listed as silent
ACT_S = 90.0  #: a model that wakes, or finishes its answers
MOVE_S = 600.0  #: until a model that moves has been loaded at its new place
POLL_S = 0.2

Answer = TypeVar("Answer", bound=BaseModel)


class ServedModelsOfWorkers:
    """Asks and tells worker processes. Stateless; runs on the event loop. Every method raises ApiError."""

    def __init__(self, workers: WorkerHttp, table: RoutingTable) -> None:
        self._workers = workers
        self._table = table

    async def view(self) -> AdminServed:
        """Every process with its models, by URL."""
        urls = sorted({worker.url for worker in self._table.live()})
        found = await asyncio.gather(*(self._look(url) for url in urls))
        silent = tuple(url for url, view in zip(urls, found, strict=True) if view is None)
        return AdminServed(processes=tuple(view for view in found if view is not None), silent=silent)

    async def add(self, model: AddModel, process: str | None) -> ServedModel:
        """Begin to load a model in `process`; None: in the one with the fewest models. Raises INVALID_REQUEST with the
        loader's sentence, also when the arena serves a model of that name from another source."""
        view = await self.view()
        for other in view.processes:
            for row in other.models:
                if row.name == model.name and row.source != model.source and row.residence != "failed":
                    message = f"{row.name!r} is served from {row.source} already; remove that first."
                    raise ApiError(ErrorCode.INVALID_REQUEST, message, param="name")
        url = self._emptiest(view.processes) if process is None else self._url(process, view.processes)
        body = AddModel(name=model.name, source=model.source)
        return await self._post(url, "", body, ServedModel)

    async def sleep(self, name: str, process: str | None) -> None:
        """Let a model sleep in every process that serves it, or in one."""
        await self._act("sleep", name, process)

    async def wake(self, name: str, process: str | None) -> None:
        """Bring a model into memory in every process that serves it, or in one."""
        await self._act("wake", name, process)

    async def remove(self, name: str, process: str | None) -> None:
        """Begin to remove a model from every process that serves it, or from one."""
        await self._act("remove", name, process)

    async def move(self, name: str, process: str | None, to: str) -> None:
        """Load the model in another process, which finds it under the same source, then remove it where it was.
        Returns when it answers at its new place."""
        view = await self.view()
        sources = _serving(name, view.processes, None if process is None else self._url(process, view.processes))
        if len(sources) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Several workers serve {name!r}; name one.", param="worker")
        [source], target = sources, self._url(to, view.processes)
        if source.url == target:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{name!r} is there already.", param="to")
        row = next(row for row in source.models if row.name == name)
        await self._post(target, "", AddModel(name=name, source=row.source), ServedModel)
        await self._until_served(name, target)
        await self._post(source.url, "/remove", NamedModel(name=name), ServedModel)

    async def _until_served(self, name: str, url: str) -> None:
        """Wait until the model is resident and registered."""
        try:
            async with asyncio.timeout(MOVE_S):
                while True:
                    view = await self._look(url)
                    row = next((row for row in view.models if row.name == name), None) if view is not None else None
                    if row is not None and row.error is not None:
                        raise ApiError(ErrorCode.INVALID_REQUEST, row.error, param="name")
                    if view is not None and row is not None and row.residence != "loading" and name in view.worker_ids:
                        return
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, f"{name!r} was not loaded in time.") from None

    async def _act(self, verb: str, name: str, process: str | None) -> None:
        view = await self.view()
        url = None if process is None else self._url(process, view.processes)
        found = _serving(name, view.processes, url)
        await asyncio.gather(*(self._post(one.url, f"/{verb}", NamedModel(name=name), ServedModel) for one in found))

    def _emptiest(self, processes: Sequence[WorkerModels]) -> str:
        with_room = [process for process in processes if len(process.models) < MAX_MODELS]
        if not with_room:
            raise ApiError(ErrorCode.NO_WORKER, "No worker process has room for a model.", retry_after_s=5)
        return min(with_room, key=lambda process: len(process.models)).url

    def _url(self, process: str, processes: Iterable[WorkerModels]) -> str:
        for known in processes:
            if process.rstrip("/") == known.url or process in known.worker_ids.values():
                return known.url
        raise ApiError(ErrorCode.INVALID_REQUEST, f"No worker {process!r} answers.", param="worker")

    async def _look(self, url: str) -> WorkerModels | None:
        try:
            async with asyncio.timeout(LOOK_S), self._workers.session.get(url + PATH, allow_redirects=False) as answer:
                content = await answer.read()
            if answer.status != 200:
                return None
            found = ServedModels.model_validate_json(content)
        except (aiohttp.ClientError, TimeoutError, OSError, ValidationError):
            return None
        ids = {worker.card.name: worker.worker_id for worker in self._table.live() if worker.url == url}
        return WorkerModels(url=url, worker_ids=ids, **found.model_dump())

    async def _post(self, url: str, verb: str, body: BaseModel, kind: type[Answer]) -> Answer:
        headers = {"Content-Type": "application/json"}
        data = body.model_dump_json().encode()
        try:
            ask = self._workers.session.post(url + PATH + verb, data=data, headers=headers, allow_redirects=False)
            async with asyncio.timeout(ACT_S), ask as answer:
                content = await answer.read()
            if answer.status in (200, 202):
                return kind.model_validate_json(content)
            raise ApiError.from_body(json.loads(content))
        except TimeoutError:
            raise ApiError(ErrorCode.WORKER_TIMEOUT, f"The worker {url} did not answer in time.") from None
        except (aiohttp.ClientError, OSError, ValueError):
            raise ApiError(ErrorCode.WORKER_FAILED, f"The worker {url} did not answer.") from None


def _serving(name: str, processes: Iterable[WorkerModels], url: str | None) -> list[WorkerModels]:
    """The processes that serve the model, or the one of `url`. Raises ApiError MODEL_NOT_FOUND."""
    found = [
        process
        for process in processes
        if url in (None, process.url) and any(row.name == name for row in process.models)
    ]
    if not found:
        raise ApiError(ErrorCode.MODEL_NOT_FOUND, f"No worker serves {name!r}.", param="name")
    return found
