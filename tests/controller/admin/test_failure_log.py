"""Failures are counted in memory first, and their number of kinds is bounded there and in the store."""

from collections.abc import AsyncGenerator
from secrets import token_hex

import pytest

from controller.admin.failure_log import MAX_KINDS, FailureLog
from controller.metrics import Metrics
from controller.store.keys import Keys
from controller.store.store import Store
from controller.store_address import parse_address
from tests.controller.support.running import StoreProcess


@pytest.fixture
async def store(shared_store: StoreProcess) -> AsyncGenerator[Store, None]:
    store = Store(parse_address(shared_store.url), timeout_s=10, metrics=Metrics())
    yield store
    await store.close()


async def test_an_hour_has_a_bounded_number_of_kinds(store: Store) -> None:
    keys = Keys(f"test:{token_hex(6)}")
    for controller in range(2):
        log = FailureLog(store, keys, lambda: 7200.0)
        for number in range(MAX_KINDS + 10):
            log.note("refused", f"model-{controller}-{number}")
        await log.flush_round()
    assert len((await FailureLog(store, keys, lambda: 7200.0).view()).failures) == MAX_KINDS


async def test_a_day_ends_after_24_hours(store: Store) -> None:
    keys = Keys(f"test:{token_hex(6)}")
    now = 100 * 3600.0
    log = FailureLog(store, keys, lambda: now)
    log.note("refused", "raven")
    await log.flush_round()
    now += 23 * 3600
    assert [failure.count for failure in (await log.view()).failures] == [1]
    now += 3600
    assert (await log.view()).failures == ()


async def test_what_was_noted_while_the_store_was_away_is_counted_later(own_store: StoreProcess) -> None:
    store = Store(parse_address(own_store.url), timeout_s=1, metrics=Metrics())
    log = FailureLog(store, Keys("test"))
    own_store.kill()
    log.note("worker vanished", "raven")
    await log.flush_round()
    log.note("worker vanished", "raven")
    own_store.start()
    [failure] = (await log.view()).failures
    assert failure.count == 2
    await store.close()
