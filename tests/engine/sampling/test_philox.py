"""The counter-based generator, against its published known answers."""

import numpy as np
import pytest

from engine.sampling.philox import philox4x32, uniform


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_the_published_known_answers_come_out(counter: list[int], key: list[int], expected: list[int]) -> None:
    words = philox4x32(np.array(counter, np.uint64)[:, None], np.array(key, np.uint64)[:, None])
    assert words[:, 0].tolist() == expected


def test_numbers_are_uniform_and_lie_below_one() -> None:
    numbers = uniform(np.full(20_000, 7, np.uint64), np.arange(20_000, dtype=np.uint64))
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert np.abs(counts - 1000).max() < 150


def test_a_number_does_not_depend_on_the_others_asked_for_with_it() -> None:
    seeds, counters = np.array([3, 2**64 - 1, 3], np.uint64), np.array([0, 5, 1], np.uint64)
    together = uniform(seeds, counters)
    alone = [uniform(seeds[i : i + 1], counters[i : i + 1])[0] for i in range(3)]
    assert together.tolist() == alone
    assert len(set(alone)) == 3
