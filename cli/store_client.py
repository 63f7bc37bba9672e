"""A connection of a command to a store."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cli.errors import CliError
from controller.metrics import Metrics
from controller.store.store import Store
from controller.store.troubles import reason_of
from controller.store_address import StoreAddress
from wire.errors import ApiError

TIMEOUT_S = 60.0


@asynccontextmanager
async def connected(address: StoreAddress, *, timeout_s: float = TIMEOUT_S) -> AsyncIterator[Store]:
    """A client of a store. Raises CliError, with the reason, where it does not answer."""
    store = Store(address, timeout_s=timeout_s, metrics=Metrics())
    try:
        yield store
    except ApiError as error:
        reason = reason_of(error.__cause__) if error.__cause__ is not None else "unknown"
        raise CliError(f"{address.shown}: {error.message} ({reason})") from None
    finally:
        await store.close()
