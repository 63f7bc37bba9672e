"""The pace of one turn as its visitor sees it, as numbers that do not depend on what the answers say."""

import itertools
import json
import time

import httpx

from tests.attacks.observer import Figures
from tests.controller.support.arena import Arena
from wire.battles import SIDES

#: Events of both sides that are so close together were written at once. Those with which the shorter answer ends are
#: left out: how much of it was left, and on which side, says how long the answers are, which every visitor sees.
_SAME_WRITE_S = 0.005


async def pace_of_turn(arena: Arena, battle_id: str, prompt: str, client: httpx.AsyncClient) -> Figures:
    """Take a turn and return its delays, speeds, gaps and sizes of events, per side and as the lead of side a."""
    began = time.perf_counter()
    deltas: dict[str, list[tuple[float, int]]] = {side: [] for side in SIDES}
    path = f"/arena/battles/{battle_id}/turns"
    async for event in arena.streamed("POST", path, client=client, json={"content": prompt}):
        if event.event == "delta":
            delta = json.loads(event.data)
            deltas[delta["side"]].append((time.perf_counter() - began, len(delta["text"])))
    if not all(deltas.values()):
        return {}
    end_s = min(seen[-1][0] for seen in deltas.values())  # of the shorter answer
    figures: Figures = {}
    for side, seen in deltas.items():
        both = [(at, size) for at, size in seen if at < end_s - _SAME_WRITE_S]
        rest = [(at, size) for at, size in seen if at > end_s + _SAME_WRITE_S]
        gaps = [after - before for (before, _), (after, _) in itertools.pairwise(both)]
        figures[f"pace first {side}"] = seen[0][0]
        if not both:  # one answer is over as soon as it is shown
            continue
        figures |= {
            f"pace speed {side}": sum(size for _, size in both[1:]) / max(both[-1][0] - both[0][0], 0.01),
            f"pace largest event {side}": max(size for _, size in both[:-1] or both),
            f"pace longest gap {side}": max(gaps, default=0.0),
            f"pace events a second {side}": len(both) / max(both[-1][0] - both[0][0], 0.05),
        }
        if len(rest) > 2:  # of the longer answer
            figures["pace of the rest"] = sum(size for _, size in rest[1:]) / (rest[-1][0] - rest[0][0])
    for name in [name for name in figures if name.endswith(" a")]:
        kind = name.removesuffix(" a")
        figures[f"{kind} lead of a"] = figures[name] - figures.get(f"{kind} b", 0.0)
        figures[f"{kind} of both"] = figures[name] + figures.get(f"{kind} b", 0.0)
    return figures
