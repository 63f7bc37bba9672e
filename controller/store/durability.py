"""Checks once, at start, whether Redis is configured to keep what it acknowledges, and logs the result; also whether a
journal is kept beside it.

Nothing is refused: hosted stores often forbid CONFIG, and one that cannot be checked may be configured correctly.
"""

import asyncio
import logging

from redis.exceptions import ResponseError

from controller.store.store import Store
from service_kit.logs import log_event
from wire.errors import ApiError

RETRY_S = 2.0

#: With these settings "acknowledged" means "on disk", and votes are never evicted.
NEEDED = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}

_logger = logging.getLogger(__name__)


async def check_durability(store: Store, *, has_journal: bool) -> None:
    """Wait until the store answers, then log one line: store_durable, store_not_durable or store_durability_unknown.
    Without a journal first the line journal_off."""
    if not has_journal:
        log_event(_logger, "journal_off", logging.WARNING, setting="AGON_JOURNAL_DIR")
    while True:
        try:
            with store.guard("config"):
                found = {name: (await store.redis.config_get(name)).get(name) for name in NEEDED}
            break
        except ResponseError:
            log_event(_logger, "store_durability_unknown", logging.WARNING)
            return
        except ApiError:
            await asyncio.sleep(RETRY_S)
    wrong = {name: value for name, value in found.items() if value != NEEDED[name]}
    if wrong:
        log_event(_logger, "store_not_durable", logging.WARNING, found=wrong, needed=NEEDED)
    else:
        log_event(_logger, "store_durable")
