"""A store of the operator's own, which the environment names (AGON_REDIS_URL), and what it says of itself."""

import asyncio
import os

from pydantic import ValidationError

from cli.errors import CliError
from cli.store_client import connected
from controller.errors import ConfigurationError
from controller.store.inspection import Inspection, inspect
from controller.store_config import StoreSettings


def external_store() -> StoreSettings | None:
    """The settings of the store that the environment names; None: it is the one of the data directory. Raises
    CliError."""
    names = ("AGON_REDIS_URL", "REDIS_URL", "AGON_REDIS_URL_FILE")
    if not any(os.environ.get(name) for name in names):
        return None
    try:
        return StoreSettings()
    except (ConfigurationError, ValidationError) as error:
        raise CliError(str(error)) from None


def problems_of(settings: StoreSettings) -> tuple[str, list[str]]:
    """One line about the store, and what may lose votes there. Raises CliError where it does not answer."""
    try:
        address = settings.store_address()
    except ConfigurationError as error:
        raise CliError(str(error)) from None

    async def look() -> Inspection:
        async with connected(address, timeout_s=5.0) as store:
            return await inspect(store)

    found = asyncio.run(look())
    line = f"{address.shown}: version {found.version}, {found.num_replicas} replicas"
    if found.wrong is None:
        line += "; it does not tell its settings (CONFIG GET is forbidden)"
    return line, found.problems(num_replicas=settings.needed_replicas)
