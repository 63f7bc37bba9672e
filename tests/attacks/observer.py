"""What an attacker can see without a credential, as numbers, and the simplest ways to guess from them.

The routes come from the applications' own tables: a new public route is polled too, and one that the attacker cannot
use by itself fails the test until the attack takes it into account.
"""

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
from fastapi import FastAPI
from fastapi.routing import APIRoute

Figures = dict[str, float]  #: a number for each name under which it was seen

#: Public routes that change something: a battle uses the first ones, the attack probes with the last ones.
USED_BY_A_BATTLE = {
    "POST /arena/battles",
    "GET /arena/battles/{battle_id}",
    "POST /arena/battles/{battle_id}/turns",
    "GET /arena/battles/{battle_id}/stream",
    "POST /arena/battles/{battle_id}/stop",
    "POST /arena/battles/{battle_id}/regenerate",
    "POST /arena/battles/{battle_id}/vote",
    "POST /arena/battles/{battle_id}/feedback",
    "GET /arena/battles/{battle_id}/feedback",
    "POST /arena/battles/{battle_id}/share",
    "DELETE /arena/battles/{battle_id}/share",
    "DELETE /arena/history/{battle_id}",
}
#: The second line holds other forms of the first two routes, which run the same code.
PROBES = {
    *("POST /v1/chat/completions", "POST /v1/completions"),
    *("POST /v1/responses", "POST /v1/messages", "POST /v1/embeddings"),
    "POST /arena/chats",
    "GET /arena/chats/{chat_id}",
    "DELETE /arena/chats/{chat_id}",
    "POST /arena/chats/{chat_id}/turns",
    "POST /arena/chats/{chat_id}/regenerate",
    "GET /arena/chats/{chat_id}/stream",
    "POST /arena/chats/{chat_id}/stop",
}
#: A token that nobody made is refused whatever it is, and one that holds changes only who its own client is.
#: Tokens are found by a tokenizer beside the engine, which no battle changes.
TELLS_NOTHING = {
    *("POST /arena/voters/join/{invitation}", "POST /arena/voters/check"),
    *("POST /tokenize", "POST /detokenize", "POST /v1/messages/count_tokens"),
}
_SAMPLE = re.compile(r"^([a-zA-Z_:][\w:]*(?:\{.*\})?) (\S+)$", re.MULTILINE)
_NAMES = ("model", "name", "id", "worker_id")


def routes_of(app: FastAPI) -> set[str]:
    """All routes of an application, as `METHOD /path`."""
    routes = [inner for route in app.router.routes for inner in _flat(route)]
    return {f"{method} {route.path}" for route in routes for method in (route.methods or ())}


def _flat(route: Any) -> list[APIRoute]:
    if isinstance(route, APIRoute):
        return [route]
    inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", [])
    return [each for part in inner for each in _flat(part)]


class Observer:
    """Polls what it may read. `headers` are those of all its requests: none for an attacker."""

    def __init__(self, clients: Mapping[str, httpx.AsyncClient], paths: Iterable[tuple[str, str]], **headers: str):
        self._clients = clients
        self._paths = sorted(paths)
        self._headers = headers

    async def look(self) -> Figures:
        """Every number in the answers of all paths at this moment."""
        answers = await asyncio.gather(*(self._get(service, path) for service, path in self._paths))
        return {name: value for figures in answers for name, value in figures.items()}

    async def _get(self, service: str, path: str) -> Figures:
        response = await self._clients[service].get(path, headers=self._headers)
        at = f"{service} {path}"
        figures: Figures = {f"{at} status": response.status_code, f"{at} length": len(response.content)}
        if response.headers.get("content-type", "").startswith("application/json"):
            flatten(response.json(), at, figures)
        else:
            for name, value in _SAMPLE.findall(response.text):
                figures[f"{at} {name}"] = float(value)
        return {name: value for name, value in figures.items() if math.isfinite(value)}


def flatten(value: Any, name: str, found: Figures) -> None:
    """Numbers of a JSON value; an item of a list is named after its model, so that its place does not matter."""
    if isinstance(value, bool | int | float):
        found[name] = float(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            flatten(part, f"{name}.{key}", found)
    elif isinstance(value, list):
        found[f"{name}.count"] = len(value)
        for index, part in enumerate(value):
            own = next((part[key] for key in _NAMES if isinstance(part, dict) and key in part), index)
            flatten(part, f"{name}[{own}]", found)


def movements(before: Figures, during: Sequence[Figures], after: Figures) -> Figures:
    """How far each figure moved in one battle: from before to after, and its range meanwhile."""
    moved: Figures = {}
    for name in set(before).union(after, *during):
        seen = [figures[name] for figures in (before, *during, after) if name in figures]
        moved[f"{name} | moved"] = after.get(name, 0.0) - before.get(name, 0.0)
        moved[f"{name} | range"] = max(seen) - min(seen)
    return moved


class Guesses:
    """The attacker's record of battles: movements of each, with what the vote revealed."""

    def __init__(self, models: Sequence[str]) -> None:
        self._models = models
        self._seen: list[Figures] = []
        self._sides: list[tuple[str, str]] = []
        self._draw = np.random.default_rng(0)

    def add(self, moved: Figures, sides: tuple[str, str]) -> None:
        """One battle; `sides` are the models of a and b."""
        self._seen.append(moved)
        self._sides.append(sides)

    @property
    def num_battles(self) -> int:
        """Battles recorded."""
        return len(self._seen)

    @property
    def names(self) -> list[str]:
        """Figures that moved in at least one battle."""
        return sorted({name for moved in self._seen for name, value in moved.items() if value})

    def pair_scores(self) -> dict[str, tuple[int, int]]:
        """For each classifier: pairs guessed right, of how many."""
        pairs = ["+".join(sorted(sides)) for sides in self._sides]
        return {**self._by_the_largest(_PAIR), **self._by_the_nearest(pairs, lambda _, label: True)}

    def side_scores(self) -> dict[str, tuple[int, int]]:
        """For each classifier: sides guessed right by an attacker who knows the pair, of how many."""
        orders = [">".join(sides) for sides in self._sides]

        def is_of_pair(battle: int, label: str) -> bool:
            return sorted(label.split(">")) == sorted(self._sides[battle])

        return {**self._by_the_largest(_SIDE), **self._by_the_nearest(orders, is_of_pair)}

    def sides_by_sign(self, figure: str, order: Sequence[str]) -> dict[str, tuple[int, int]]:
        """As `side_scores`, of one classifier: where the figure is above 0, side a has the model that is later in
        `order`."""
        right = 0
        for moved, (a, b) in zip(self._seen, self._sides, strict=True):
            right += (moved.get(figure, 0.0) > 0) == (order.index(a) > order.index(b))
        return {figure: (right, len(self._seen))}

    def _by_the_largest(self, side: bool) -> dict[str, tuple[int, int]]:
        """Figures that exist for each model: the models of the battle are those whose figure moved most."""
        families = {name.replace(model, "*") for name in self.names for model in self._models if model in name}
        scores = {}
        for family in sorted(families):
            right = 0
            for moved, sides in zip(self._seen, self._sides, strict=True):
                of = {model: moved.get(family.replace("*", model), 0.0) for model in self._models}
                if side:
                    right += of[sides[0]] > of[sides[1]]
                else:
                    outside = [of[model] for model in self._models if model not in sides]
                    right += min(of[model] for model in sides) > max(outside)
            scores[f"largest of {family}"] = (right, len(self._seen))
        return scores

    def _by_the_nearest(
        self, labels: Sequence[str], is_possible: Callable[[int, str], bool]
    ) -> dict[str, tuple[int, int]]:
        """Learned from the first half, used on the second: of the labels that are possible for a battle, the one whose
        mean is nearest. One classifier for each figure, and one for all of them."""
        names = self.names
        half = len(self._seen) // 2
        if not names or half < 2:
            return {}
        table = np.array([[moved.get(name, 0.0) for name in names] for moved in self._seen])
        scale = table[:half].std(axis=0)
        table = (table - table[:half].mean(axis=0)) / np.where(scale > 0, scale, 1.0)
        known = sorted(set(labels[:half]))
        centres = np.array([table[[i for i in range(half) if labels[i] == label]].mean(axis=0) for label in known])
        distances = (table[half:, None, :] - centres[None]) ** 2  # battle, label, figure
        possible = np.array([[is_possible(i, label) for label in known] for i in range(half, len(labels))])
        truth = np.array(labels[half:])
        scores = {}
        for name, distance in [
            *((name, distances[:, :, n]) for n, name in enumerate(names)),
            ("all figures", distances.sum(axis=2)),
        ]:
            # Equal distances say nothing: the attacker draws, so that a figure that never moves is no classifier.
            noise = self._draw.random(distance.shape) * 1e-9
            guessed = np.array(known)[np.where(possible, distance + noise, np.inf).argmin(axis=1)]
            scores[f"nearest mean of {name}"] = (int((guessed == truth).sum()), len(truth))
        return scores


_PAIR, _SIDE = False, True


def best(scores: Mapping[str, tuple[int, int]], chance: float) -> tuple[str, int, int, float]:
    """The classifier that is least likely to be so good by chance: its name, hits, trials, and the probability that the
    best of all classifiers reaches that by chance (Bonferroni). ("none", 0, 0, 1.0) without a figure that moved."""
    if not scores:
        return "none", 0, 0, 1.0
    name = min(scores, key=lambda each: binomial_tail(*scores[each], chance))
    hits, trials = scores[name]
    return name, hits, trials, min(1.0, len(scores) * binomial_tail(hits, trials, chance))


def binomial_tail(hits: int, trials: int, chance: float) -> float:
    """The probability of at least `hits` of `trials` by chance."""
    return sum(math.comb(trials, k) * chance**k * (1 - chance) ** (trials - k) for k in range(hits, trials + 1))


def rank_sum_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value of the Mann-Whitney test, by the normal approximation; ties get their mean rank."""
    values = sorted((*one, *other))
    count = Counter(values)
    rank = {value: values.index(value) + (count[value] + 1) / 2 for value in count}
    n, m = len(one), len(other)
    u = sum(rank[value] for value in one) - n * (n + 1) / 2
    spread = math.sqrt(n * m * (n + m + 1) / 12)
    return math.erfc(abs(u - n * m / 2) / spread / math.sqrt(2)) if spread else 1.0
