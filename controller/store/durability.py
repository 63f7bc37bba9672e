"""Looks again and again whether the store keeps what it acknowledges, and logs what has changed; also whether a
journal is kept beside it.

Nothing is refused: hosted stores often forbid CONFIG, and one that cannot be checked may be configured correctly.
"""

import contextlib
import logging

from controller.metrics import Metrics
from controller.store.inspection import inspect
from controller.store.store import Store
from service_kit.logs import log_event
from wire.errors import ApiError

ROUND_S = 10.0

_logger = logging.getLogger(__name__)


class DurabilityWatch:
    """Owns what was logged last. num_replicas: how many replicas a vote must reach."""

    def __init__(self, store: Store, metrics: Metrics, *, has_journal: bool, num_replicas: int) -> None:
        self._store = store
        self._metrics = metrics
        self._num_replicas = num_replicas
        self._logged: tuple[str, ...] | None = None
        self._lacks_journal = not has_journal

    async def look_round(self) -> None:
        """One look, as background work: a store that is away is no error. Logs store_durable, store_not_durable or
        store_durability_unknown when the answer is a new one, and journal_off once."""
        if self._lacks_journal:
            log_event(_logger, "journal_off", logging.WARNING, setting="AGON_JOURNAL_DIR")
            self._lacks_journal = False
        with contextlib.suppress(ApiError):
            found = await inspect(self._store)
            self._metrics.store_replicas.set(found.num_replicas)
            problems = tuple(found.problems(num_replicas=self._num_replicas))
            is_unknown = found.wrong is None and not problems
            seen = ("unknown",) if is_unknown else problems
            if seen == self._logged:
                return
            self._logged = seen
            self._metrics.store_durable.set(not problems)
            if problems:
                log_event(_logger, "store_not_durable", logging.WARNING, problems=problems)
            elif is_unknown:
                log_event(_logger, "store_durability_unknown", logging.WARNING)
            else:
                log_event(_logger, "store_durable", version=found.version, replicas=found.num_replicas)
