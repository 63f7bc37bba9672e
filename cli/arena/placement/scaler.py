"""Reads the load of models with a scaled number of replicas from the controller, and applies the rule (scaling.py).

Queues come from the heartbeats of the workers (`GET /arena/workers`), the time to a first token from the controller's
histogram. A controller that does not answer changes nothing. Runs beside the fleet in the event loop of `agon up`.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

import httpx
from pydantic import TypeAdapter

from cli.arena.placement.fleet import Fleet
from cli.arena.placement.scaling import ModelLoad, Scaling, ScalingRule
from cli.errors import CliError
from wire.workers import WorkerView

_EVERY_S = 1.0
_TIMEOUT_S = 2.0
_VIEWS = TypeAdapter(list[WorkerView])
_FIRST_TOKEN = "arena_time_to_first_token_seconds"
_WINDOW_S = 15.0  #: over which first tokens are averaged


class Scaler:
    """Owns the state of the rule for each model."""

    def __init__(
        self,
        fleet: Fleet,
        client: httpx.AsyncClient,
        controller_url: str,
        headers: Mapping[str, str],
        report: Callable[[str, str], None],
        rule: ScalingRule | None = None,
    ) -> None:
        """`headers`: with the admin token, because only the admin sees loads."""
        self._fleet = fleet
        self._client = client
        self._url = controller_url
        self._headers = dict(headers)
        self._report = report
        self._rule = rule or ScalingRule()
        self._states: dict[str, Scaling] = {}
        self._totals: list[tuple[float, float, float]] = []  #: (time, sum, count) of first tokens

    async def run(self) -> None:
        """Look and scale until cancelled."""
        while True:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                await self.step(time.monotonic())
            await asyncio.sleep(_EVERY_S)

    async def step(self, now_s: float) -> None:
        """One look at the controller, if any model is scaled by its load. Raises httpx.HTTPError, ValueError."""
        scaled = [group for group in self._fleet.groups if group.is_scaled]
        self._states = {group.model: self._states.get(group.model) or Scaling(self._rule) for group in scaled}
        if not scaled:
            return
        workers = _VIEWS.validate_json(await self._get("/arena/workers"))
        first_token_s = self._mean_first_token(now_s, (await self._get("/metrics")).decode())
        for group in scaled:
            load = load_of(group.model, workers, first_token_s)
            number = self._states[group.model].step(now_s, load, group.replicas, group.least, group.most)
            if number == group.replicas:
                continue
            why = f"{load.waiting} waiting with {load.queued_tokens} tokens, {load.running} running"
            try:
                self._fleet.set_replicas(group.model, number)
            except CliError as error:  # the file could not be written
                self._report(group.model, str(error))
            else:
                self._report(group.model, f"{group.replicas} -> {number} replicas ({why})")

    async def _get(self, path: str) -> bytes:
        answer = await self._client.get(f"{self._url}{path}", headers=self._headers, timeout=_TIMEOUT_S)
        return answer.raise_for_status().content

    def _mean_first_token(self, now_s: float, metrics: str) -> float | None:
        """Mean of the first tokens of the last seconds; None without any."""
        values = dict(line.split(" ")[:2] for line in metrics.splitlines() if line.startswith(_FIRST_TOKEN))
        total = float(values.get(f"{_FIRST_TOKEN}_sum", 0.0))
        count = float(values.get(f"{_FIRST_TOKEN}_count", 0.0))
        if self._totals and count < self._totals[-1][2]:
            self._totals.clear()  # the controller has started anew
        self._totals = [*(entry for entry in self._totals if now_s - entry[0] <= _WINDOW_S), (now_s, total, count)]
        _, first_total, first_count = self._totals[0]
        return (total - first_total) / (count - first_count) if count > first_count else None


def load_of(model: str, workers: list[WorkerView], first_token_s: float | None) -> ModelLoad:
    """The load of a model over its ready workers."""
    ready = [view for view in workers if view.model == model and view.state == "ready"]
    loads = [view.load for view in ready if view.load is not None]
    return ModelLoad(
        num_ready=len(ready),
        running=sum(load.running for load in loads),
        waiting=sum(load.waiting for load in loads),
        queued_tokens=sum(load.queued_tokens for load in loads),
        max_running=sum(view.capacity.max_running for view in ready),
        first_token_s=first_token_s,
    )
