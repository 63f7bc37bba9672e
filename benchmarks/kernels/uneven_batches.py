"""Simulates one layer of decode attention over rows of uneven contexts, for several numbers of programs a row. It chose
_PROGRAMS_PER_MULTIPROCESSOR of attention_tiles.py.

python -m benchmarks.kernels.uneven_batches prints microseconds. Assumed: 8 key/value heads of 128 channels in bfloat16,
132 multiprocessors with three programs each, 4.3 TB/s that running programs share, 45 GB/s at most for one of them, 1.2
us for filling the pipeline and storing a part, 0.9 ns between launches. No device is needed, and none was measured.
"""

import random
from collections.abc import Sequence

_NUM_HEADS, _TOKEN_BYTES = 8, 512
_AT_ONCE = 3 * 132
_BYTES_PER_NS, _BYTES_PER_NS_OF_ONE = 4300.0, 45.0
_START_NS, _PART_NS, _LAUNCH_NS = 300.0, 1200.0, 0.9
_STEP_NS = 100.0
_PROGRAMS = (1, 2, 3, 4, 6, 8, 16, 33)


def parts(context: int, most: int = 33, least: int = 256) -> list[int]:
    """Tokens of each part of a row, as attend_pages cuts it."""
    shortest = -(-context // most)
    length = max(-(-shortest // 64) * 64, least)
    return [min(length, context - first) for first in range(0, context, length)]


def microseconds(contexts: Sequence[int], programs: int) -> float:
    """Of a launch with so many programs for each row and head."""
    rows = [parts(context) for context in contexts]
    waiting = [row[z::programs] for z in range(programs) for _ in range(_NUM_HEADS) for row in rows][::-1]
    # What is left of each running program: nanoseconds of its own, and then bytes to read, alternating.
    running: list[list[float]] = []
    time = 0.0
    while waiting or running:
        for _ in range(min(int(_STEP_NS / _LAUNCH_NS), _AT_ONCE - len(running), len(waiting))):
            tokens = waiting.pop()
            running.append([_START_NS, *(number for part in tokens for number in (part * _TOKEN_BYTES, _PART_NS))])
        num_readers = sum(len(left) % 2 == 0 for left in running)
        rate = min(_BYTES_PER_NS_OF_ONE, _BYTES_PER_NS / max(num_readers, 1))
        for left in running:
            left[0] -= _STEP_NS * (rate if len(left) % 2 == 0 else 1.0)
            if left[0] <= 0:
                del left[0]
        running = [left for left in running if left]
        time += _STEP_NS
    return time / 1000


def main() -> None:
    """Print a table: batches by numbers of programs."""
    chosen = random.Random(1)
    batches = {
        "256 x 1k": [1024] * 256,
        "255 x 1k, then 8k": [*[1024] * 255, 8192],
        "256 x 200": [200] * 256,
        "256 of a chat": [int(chosen.lognormvariate(6.5, 0.9)) + 1 for _ in range(256)],
        "64 x 1k": [1024] * 64,
        "63 x 1k, then 16k": [*[1024] * 63, 16384],
        "64 x 200": [200] * 64,
        "16 x 1k": [1024] * 16,
        "15 x 1k, then 32k": [*[1024] * 15, 32768],
    }
    print("programs".ljust(20), *(f"{programs:5}" for programs in _PROGRAMS))
    for name, contexts in batches.items():
        print(name.ljust(20), *(f"{microseconds(contexts, programs):5.0f}" for programs in _PROGRAMS))


if __name__ == "__main__":
    main()
