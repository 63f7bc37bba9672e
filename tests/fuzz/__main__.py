"""`python -m tests.fuzz`: fuzz all services, one JSON line for each; `--case N` sends one case again and shows it.

Exits with 1 if a service answered 5xx (other than a typed 503), hung, cut an answer or stalled its event loop.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import campaign, placed
from tests.fuzz.exchange import exchange
from tests.fuzz.maker import NUM_BATTLES, NUM_CHATS, Maker
from tests.fuzz.services import TARGETS, running_arena

MOST_STALL_MS = 100.0


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=50_000, help="cases, divided over the targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this service; may be repeated")
    parser.add_argument("--case", type=int, help="send only this case of the target, and show it with its answer")
    options = parser.parse_args()
    targets = options.target or TARGETS
    share = options.requests // len(TARGETS)  # not of the targets given: a case must not depend on them
    failed = False
    with (
        tempfile.TemporaryDirectory() as folder,
        running_arena(Path(folder), num_battles=NUM_BATTLES, num_chats=NUM_CHATS) as arena,
    ):
        for target in targets:
            maker = Maker(target, options.seed, share)
            if options.case is not None:
                case = placed(maker.case(options.case), arena)
                print(case.kind, *case.pieces, sep="\n")
                print(asyncio.run(exchange(arena.services[target].port, case)))
                print(arena.services[target].ask())
                continue
            report = asyncio.run(campaign(arena, maker, share))
            print(json.dumps(report), flush=True)
            failed |= is_failure(report)
        if failed:
            for target in targets:
                print(f"--- log of {target}\n{arena.services[target].log.read_text()[-4000:]}", file=sys.stderr)
    return int(failed)


def is_failure(report: dict[str, object]) -> bool:
    """Whether a report shows what must not happen."""
    stall_ms = report["stall_ms"]
    assert isinstance(stall_ms, float | int)
    faults = ("server_errors", "hangs", "cuts")
    return any(report[fault] for fault in faults) or stall_ms > MOST_STALL_MS or not report["healthy"]


if __name__ == "__main__":
    sys.exit(main())
