"""Every test of the controller runs against a real store process and real HTTP servers."""

import contextlib
import secrets
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from controller.store.permissions import acl_rule
from tests.controller.support.arena import Arena, make_settings, running_arena
from tests.controller.support.running import StoreProcess, running_store

USER, PASSWORD = "arena", "password-of-the-arena"


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Generator[StoreProcess, None, None]:
    """One store for all tests that leave it alive; each test has a key prefix of its own. Controllers come as a user
    that may do no more than `agon store acl` allows."""
    with running_store(tmp_path_factory.mktemp("store")) as store:
        store.add_user(acl_rule(USER, ["test"], password=PASSWORD))
        yield store


@pytest.fixture
def own_store(tmp_path: Path) -> Generator[StoreProcess, None, None]:
    """A store that a test may kill."""
    with running_store(tmp_path / "store") as store:
        yield store


OpenArena = Callable[..., contextlib.AbstractAsyncContextManager[Arena]]


@pytest.fixture
def open_arena(shared_store: StoreProcess) -> OpenArena:
    """Opens an arena with settings of the test's choice."""

    def open_(**changes: Any) -> contextlib.AbstractAsyncContextManager[Arena]:
        prefix = changes.pop("key_prefix", None) or f"test:{secrets.token_hex(6)}"
        return running_arena(make_settings(shared_store.url_of(USER, PASSWORD), prefix, **changes))

    return open_


@pytest.fixture
async def arena(open_arena: OpenArena) -> AsyncGenerator[Arena, None]:
    async with open_arena() as arena:
        yield arena
