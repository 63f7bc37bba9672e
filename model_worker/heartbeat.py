"""Tells every configured controller that a model of this process exists, what it is and how busy it is.

One link per model and controller, independent of the others: all controllers write the same record into a shared Redis,
so one link suffices. A link registers, then sends heartbeats. It retries quickly while its controller does not answer,
and registers again when the controller does not know the worker any more. Requests carry the epoch that a registration
gave; the worker refuses all others.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from pathlib import Path

import httpx
from pydantic import BaseModel

from model_worker.worker import Worker
from service_kit.logs import log_event
from service_kit.trust import tls_problem, trust
from wire.errors import ApiError, ErrorCode
from wire.releases import RELEASE
from wire.workers import Capacity, HeartbeatReply, HeartbeatRequest, Load, ModelCard, RegisterReply, RegisterRequest

_logger = logging.getLogger(__name__)

_TIMEOUT = httpx.Timeout(2.0, connect=1.0)
_RETRY_S = 0.25  #: a controller that restarts is found again within a second
_MAX_RETRY_S = 1.0
_MAX_BEAT_S = 30.0
#: Delay of the first heartbeat: short, so that the controller learns the load soon; not 0, to avoid a register loop
#: with a controller that lost its state.
_FIRST_BEAT_S = 0.05
_FAREWELL_S = 1.0
_NOT_YET = "it has not been registered at a controller yet"
#: What only a change of settings mends.
_REFUSALS = (ErrorCode.FORBIDDEN, ErrorCode.UNAUTHORIZED, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_PARAMETER)


def controller_client(
    token: str, transport: httpx.AsyncBaseTransport | None = None, *, ca_file: Path | None = None
) -> httpx.AsyncClient:
    """A client for requests to controllers. The caller closes it."""
    # trust_env=False: an HTTP proxy in the environment is not meant for traffic between our own processes.
    return httpx.AsyncClient(
        timeout=_TIMEOUT,
        headers={"Authorization": f"Bearer {token}"},
        transport=transport,
        trust_env=False,
        verify=trust(ca_file),
    )


class Heartbeat:
    """Owns the links, and sets the worker's epochs to those of their registrations."""

    def __init__(self, worker: Worker, client: httpx.AsyncClient, *, url: str, boot_id: str) -> None:
        """`client`: of `controller_client`, shared by the models of the process."""
        self._worker = worker
        self._links = [
            ControllerLink(client, controller.rstrip("/"), worker, url, boot_id, self._publish)
            for controller in worker.settings.controller_urls
        ]
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to register; called when the model can be asked."""
        self._publish()
        self._tasks = [asyncio.create_task(link.run()) for link in self._links]

    def announce(self) -> None:
        """Send a heartbeat now, because the worker's state has changed, after a registration if its card or its
        capacity has."""
        for link in self._links:
            link.wake()

    async def stop(self) -> None:
        """Deregister at every controller."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(link.deregister() for link in self._links))

    def _publish(self) -> None:
        self._worker.epochs = frozenset(link.epoch for link in self._links if link.epoch is not None)
        self._worker.has_broken_link = any(link.is_broken for link in self._links)
        problems = [link.problem for link in self._links]
        was_registered = not problems or any(link.was_registered for link in self._links)
        self._worker.registration_problem = None if was_registered else next(filter(None, problems), _NOT_YET)


class ControllerLink:
    """The registration at one controller, and the task that keeps it alive."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        controller: str,
        worker: Worker,
        url: str,
        boot_id: str,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when the epoch has changed, or whether the link is broken."""
        self._client = client
        self._controller = controller
        self._base = f"{controller}/internal/workers"
        self._worker = worker
        self._url = url
        self._boot_id = boot_id
        self._on_change = on_change
        self._registration: RegisterReply | None = None
        self._told: tuple[ModelCard, Capacity] | None = None  #: at the last registration
        self._wake = asyncio.Event()
        self._failures = 0
        self.is_broken = False  #: its last attempt raised what no failure of a controller raises
        self.was_registered = False  #: since the start of the process
        self.problem: str | None = None  #: why the last attempt failed, for people

    @property
    def epoch(self) -> int | None:
        """The epoch of the current registration; None before the first."""
        return self._registration.epoch if self._registration is not None else None

    def wake(self) -> None:
        """Send the next heartbeat without waiting for its time."""
        self._wake.set()

    async def run(self) -> None:
        """Register and send heartbeats until cancelled. Failures are logged and retried."""
        while True:
            self._wake.clear()
            try:
                pause_s = await self._beat()
                self._failures = 0
                self._note(is_broken=False, problem=None)
            except (httpx.HTTPError, ApiError, ValueError) as error:
                pause_s = self._on_failure(error)
                self._note(is_broken=False, problem=self._explain(error))
            except Exception as error:  # a defect, or a library's error that nothing maps: the link must go on
                log_event(_logger, "link_failed", logging.ERROR, exc_info=error)
                pause_s = self._on_failure(error)
                self._note(is_broken=True, problem=f"registering at {self._controller} fails: see the log")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()

    async def deregister(self) -> None:
        """Deregister, best effort: at a controller that cannot be reached, the registration expires."""
        if self._registration is None:
            return
        with contextlib.suppress(httpx.HTTPError):
            await self._client.delete(
                f"{self._base}/{self._registration.worker_id}",
                params={"epoch": self._registration.epoch},
                timeout=_FAREWELL_S,
            )
        self._registration = None
        self._on_change()

    async def _beat(self) -> float:
        """Register or send one heartbeat; returns how long to wait for the next."""
        if not self._worker.is_healthy():
            return _RETRY_S  # no heartbeat: the registration expires, so controllers send no work to a hanging engine
        if self._registration is None or self._told != (self._worker.card, self._worker.capacity):
            self._registration = await self._register()
            self.was_registered = True
            self._on_change()
            log_event(_logger, "registered", worker_id=self._registration.worker_id, epoch=self._registration.epoch)
            return _FIRST_BEAT_S
        elif not await self._send_heartbeat(self._registration):
            log_event(_logger, "forgotten_by_controller", worker_id=self._registration.worker_id)
            self._registration = None  # the epoch stays published until there is a new one
            return 0.0
        return min(self._registration.heartbeat_s, _MAX_BEAT_S)

    async def _register(self) -> RegisterReply:
        card, capacity = self._worker.card, self._worker.capacity
        body = RegisterRequest(
            boot_id=self._boot_id,
            url=self._url,
            card=card,
            capacity=capacity,
            state=self._worker.state,
            version=RELEASE,
        )
        answer = await self._post(self._base, body)
        self._told = card, capacity
        return RegisterReply.model_validate_json(answer)

    async def _send_heartbeat(self, registration: RegisterReply) -> bool:
        body = HeartbeatRequest(epoch=registration.epoch, state=self._worker.state, load=self._worker.load() or Load())
        url = f"{self._base}/{registration.worker_id}/heartbeat"
        try:
            answer = await self._post(url, body)
        except ApiError as error:
            if error.code in (ErrorCode.STALE_EPOCH, ErrorCode.NOT_FOUND):
                return False
            raise
        return HeartbeatReply.model_validate_json(answer).known

    async def _post(self, url: str, body: BaseModel) -> bytes:
        headers = {"Content-Type": "application/json"}
        answer = await self._client.post(url, content=body.model_dump_json(), headers=headers)
        if answer.is_success:
            return answer.content
        try:
            raise ApiError.from_body(answer.json())
        except ValueError:
            raise ApiError(ErrorCode.INTERNAL_ERROR, f"The controller answered {answer.status_code}.") from None

    def _note(self, *, is_broken: bool, problem: str | None) -> None:
        if (is_broken, problem) != (self.is_broken, self.problem):
            self.is_broken, self.problem = is_broken, problem
            self._on_change()

    def _explain(self, error: Exception) -> str:
        """Why the controller has not registered the worker, and what to change where that is known."""
        if isinstance(error, ApiError) and error.code is ErrorCode.UNAUTHORIZED:
            return f"{self._controller} refuses the worker token (AGON_WORKER_TOKEN): {error.message}"
        if isinstance(error, ApiError):
            return f"{self._controller}: {error.message}"
        return f"{self._controller} {tls_problem(error) or f'does not answer ({type(error).__name__})'}"

    def _on_failure(self, error: Exception) -> float:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # 1, 2, 4, 8, ...: a long outage does not fill the log
            code = error.code.value if isinstance(error, ApiError) else type(error).__name__
            reason = self._explain(error)
            if isinstance(error, ApiError) and error.code in _REFUSALS:
                log_event(_logger, "registration_refused", logging.WARNING, reason=reason, failures=self._failures)
            else:
                log_event(_logger, "controller_unreachable", reason=code, failures=self._failures, problem=reason)
        # Jitter: the workers of an arena must not all retry at the same moment.
        return min(_MAX_RETRY_S, _RETRY_S * 1.2 ** min(self._failures - 1, 20)) * random.uniform(0.8, 1.2)
