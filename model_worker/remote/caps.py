"""Limits of what a hosted model may be asked: requests in a minute, tokens and cost in a UTC day.

The counters of the day are kept in a file beside the list of models (AGON_MODELS_FILE), so that a restart does not
reset them; without that file they last as long as the process. An answer is counted when it has ended, so the last one
may exceed a limit.
"""

import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service_kit.logs import log_event
from wire.chat import Usage
from wire.hosted_models import HostedModel

_logger = logging.getLogger(__name__)

_MINUTE_S = 60.0
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that is reached: which one, in words, and until it is free again."""

    sentence: str
    reason: str
    free_in_s: float


class Caps:
    """Counts the requests, tokens and cost of one hosted model. `path`: where the day's counters are kept. `clock`
    gives Unix time."""

    def __init__(self, model: HostedModel, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._model = model
        self._path = path
        self._clock = clock
        self._begun: deque[float] = deque()
        self._day = 0
        self.tokens = 0  #: of the day
        self.cost = 0.0  #: of the day, in the unit of the prices
        self._read()

    def reached(self) -> Reached | None:
        """The limit that forbids another request now; None: there is none."""
        now = self._clock()
        self._turn_day(now)
        until_tomorrow_s = (self._day + 1) * _DAY_S - now
        model = self._model
        if model.tokens_per_day is not None and self.tokens >= model.tokens_per_day:
            return Reached(
                f"its {model.tokens_per_day:,} tokens of today are used up", "tokens_per_day", until_tomorrow_s
            )
        if model.cost_per_day is not None and self.cost >= model.cost_per_day:
            return Reached(f"its cost of today, {model.cost_per_day:g}, is used up", "cost_per_day", until_tomorrow_s)
        while self._begun and self._begun[0] <= now - _MINUTE_S:
            self._begun.popleft()
        limit = model.requests_per_minute
        if limit is not None and len(self._begun) >= limit:
            free_in_s = self._begun[len(self._begun) - limit] + _MINUTE_S - now
            return Reached(f"its {limit} requests of this minute are used up", "requests_per_minute", free_in_s)
        return None

    def note_request(self) -> None:
        """A request is sent. Call it for each attempt."""
        if self._model.requests_per_minute is not None:
            self._begun.append(self._clock())

    def note_usage(self, usage: Usage) -> None:
        """An answer has ended, or broken off."""
        self._turn_day(self._clock())
        model = self._model
        self.tokens += usage.total_tokens
        self.cost += (usage.prompt_tokens * model.prompt_price + usage.completion_tokens * model.answer_price) / 1e6
        if model.tokens_per_day is not None or model.cost_per_day is not None:
            self._write()

    def _turn_day(self, now: float) -> None:
        day = int(now // _DAY_S)
        if day != self._day:
            self._day, self.tokens, self.cost = day, 0, 0.0

    def _read(self) -> None:
        self._turn_day(self._clock())
        if self._path is None:
            return
        try:
            kept = json.loads(self._path.read_bytes())
            day, tokens, cost = int(kept["day"]), int(kept["tokens"]), float(kept["cost"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError):
            log_event(_logger, "usage_not_read", logging.ERROR, path=str(self._path))
            return
        if day == self._day:
            self.tokens, self.cost = tokens, cost

    def _write(self) -> None:
        if self._path is None:
            return
        partial = self._path.with_suffix(".new")
        try:
            partial.write_text(json.dumps({"day": self._day, "tokens": self.tokens, "cost": self.cost}))
            os.replace(partial, self._path)
        except OSError as error:
            log_event(_logger, "usage_not_kept", logging.ERROR, path=str(self._path), reason=error.strerror)
