"""How an adapter talks to the benchmark: JSON lines on stdin and stdout, and the clock around the peer's own call.

Runs in the peer's environment, so it imports nothing but the standard library. Whatever the peer prints goes to
stderr. Every peer is timed by the same code: a throughput run is one call with all requests; a single stream is one
call for 1 token and one for 129, and the difference over 128 is the time per token.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

Tokens = list[int]
SHOWN = 16  #: tokens of each answer that are reported, for comparison between peers


class Peer(Protocol):
    version: str

    def generate(self, prompts: list[Tokens], lengths: list[int]) -> list[Tokens] | None:
        """Greedy, past the end of sequence, exactly `lengths` tokens. None: the peer shows no token ids."""
        ...


def serve(load: Callable[[dict[str, Any]], Peer]) -> None:
    """The first line holds the settings; each further line asks for one run."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    settings = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    peer = load(settings)
    answer(version=peer.version, load_s=round(time.perf_counter() - started, 2))
    for line in sys.stdin:
        request = json.loads(line)
        run = _single if request["is_single"] else _throughput
        answer(**run(peer, request["prompts"], request["lengths"]))


def _throughput(peer: Peer, prompts: list[Tokens], lengths: list[int]) -> dict[str, Any]:
    started = time.perf_counter()
    tokens = peer.generate(prompts, lengths)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "tokens": _checked(tokens, lengths)}


def _single(peer: Peer, prompts: list[Tokens], lengths: list[int]) -> dict[str, Any]:
    (length,) = lengths

    def run(count: int) -> tuple[float, list[Tokens] | None]:
        started = time.perf_counter()
        tokens = peer.generate(prompts, [count])
        return time.perf_counter() - started, tokens

    first_s = min(run(1)[0] for _ in range(3))
    whole_s, tokens = run(length + 1)
    return {
        "seconds": whole_s,
        "ttft_s": first_s,
        "tpot_s": (whole_s - first_s) / length,
        "tokens": _checked(tokens, [length + 1]),
    }


def _checked(tokens: list[Tokens] | None, lengths: list[int]) -> list[Tokens] | None:
    if tokens is None:
        return None
    counts = [len(answer) for answer in tokens]
    if counts != lengths:
        raise RuntimeError(f"the peer made {counts} tokens instead of {lengths}")
    return [answer[:SHOWN] for answer in tokens]
