"""The quick tier of the fuzzer: about 2,000 requests. `make fuzz` sends 50,000."""

import asyncio
import json
from collections.abc import Generator

import pytest

from tests.fuzz.__main__ import is_failure
from tests.fuzz.campaign import campaign
from tests.fuzz.maker import NUM_BATTLES, NUM_CHATS, Maker
from tests.fuzz.services import TARGETS, Arena, running_arena

SHARE = 650
SEED = 1


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Generator[Arena, None, None]:
    with running_arena(tmp_path_factory.mktemp("fuzz"), num_battles=NUM_BATTLES, num_chats=NUM_CHATS) as arena:
        yield arena


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_no_request_breaks_hangs_or_stalls_a_service(arena: Arena, target: str) -> None:
    report = asyncio.run(campaign(arena, Maker(target, SEED, SHARE), SHARE))
    assert not is_failure(report), f"{json.dumps(report)}\n{arena.services[target].log.read_text()[-3000:]}"


def test_a_case_is_a_function_of_seed_and_number() -> None:
    one, two = Maker("worker", 7, 200), Maker("worker", 7, 200)
    assert [one.case(number) for number in range(100)] == [two.case(number) for number in reversed(range(100))][::-1]
    assert Maker("worker", 8, 200).case(3) != one.case(3)
