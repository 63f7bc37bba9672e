"""Votes of an arena of eight models over forty days, drawn from known strengths, for the pictures of screenshots.py.

The leaderboard then has something of everything.
"""

import math
import random
from collections.abc import Iterator, Mapping

from wire.model_cards import BoardCard
from wire.votes import StyleCounts, VotedSide, VoteRecord

#: Strengths in rating points. The first three are the demo models; of the others the board has only votes and cards.
STRENGTHS = {
    "raven": 1030,
    "robin": 990,
    "finch": 900,
    "heron-7b-instruct": 1210,
    "otter-3b-chat": 1130,
    "owl-1.5b": 1040,
    "vole-500m": 800,
    "stoat-1b": 975,
}
#: What their labs say of some of them.
CARDS = (
    BoardCard.model_validate(
        {
            **{
                "model": "heron-7b-instruct",
                "provider": "Heron Lab",
                "released": "2026-05-02",
                "licence": "Apache-2.0",
            },
            **{"num_parameters": 7_240_000_000, "link": "https://heron.example/7b"},
        }
    ),
    BoardCard(
        model="otter-3b-chat", provider="Otter AI", released="2026-03-18", licence="MIT", num_parameters=3_100_000_000
    ),
    BoardCard(
        model="owl-1.5b", provider="Owl", released="2025-06-30", retired="2026-11-01", num_parameters=1_540_000_000
    ),
    BoardCard(model="stoat-1b", provider="Stoat", licence="research only", num_parameters=1_030_000_000),
    BoardCard(model="magpie-2b", provider="Magpie Works"),
)
LATE, FIRST_DAY_OF_LATE = "stoat-1b", 22  #: this model joins in the middle
NUM_DAYS = 40
NUM_VOTES = 9000
TIE_SHARE = 0.18
_VERBOSE = {"otter-3b-chat": 1.5, "vole-500m": 0.6}  #: answers longer or shorter than those of the others
_KINDS = (("code", 0.22), ("maths", 0.15), ("creative", 0.18), ("short_prompt", 0.4), ("long_prompt", 0.05))
_LANGUAGES = (("en", 0.68), ("de", 0.14), ("zh", 0.1), ("fr", 0.08))
_UNRATED = (("stopped", 0.008), ("too_quick", 0.005), ("identity_revealed", 0.002))


def simulated_votes(now: float, revisions: Mapping[str, str]) -> Iterator[VoteRecord]:
    """NUM_VOTES votes that end at the Unix time `now`, oldest first. `revisions`: of the models that are served."""
    draw = random.Random(17)
    for number in range(NUM_VOTES):
        day = NUM_DAYS * number / NUM_VOTES
        models = [model for model in STRENGTHS if model != LATE or day >= FIRST_DAY_OF_LATE]
        a, b = draw.sample(models, 2)
        win = 1 / (1 + 10 ** ((STRENGTHS[b] - STRENGTHS[a] - 8) / 400))  # side A is worth 8 points
        yield VoteRecord(
            vote_id=f"0-{number + 1}",
            battle_id=f"simulated-{number + 1}",
            time=now - 86_400 * (NUM_DAYS - day) + draw.uniform(0, 3600),
            mode="anonymous",
            outcome="tie" if draw.random() < TIE_SHARE else "a" if draw.random() < win else "b",
            a=_side(a, revisions, draw),
            b=_side(b, revisions, draw),
            probability=2 / (len(models) * (len(models) - 1)),
            turns=1 + (draw.random() < 0.25),
            voter=f"voter-{int(draw.expovariate(1 / 90))}",
            language=_one_of(_LANGUAGES, draw),
            categories=tuple(name for name, share in _KINDS if draw.random() < share),
            flags=tuple(name for name, share in _UNRATED if draw.random() < share),
            identity="cookie",
            read_ms=round(math.exp(draw.gauss(9.3, 0.6)), 1),
        )


def _side(model: str, revisions: Mapping[str, str], draw: random.Random) -> VotedSide:
    tokens = round(_VERBOSE.get(model, 1.0) * math.exp(draw.gauss(5.0, 0.5)))
    counts = StyleCounts(tokens=tokens, headers=draw.randrange(3), lists=draw.randrange(6), bold=draw.randrange(5))
    return VotedSide(
        model=model,
        revision=revisions.get(model, "5e0c1d7a"),
        style=counts,
        completion_tokens=tokens,
        finish_reason="stop",
    )


def _one_of(shares: tuple[tuple[str, float], ...], draw: random.Random) -> str:
    names, weights = zip(*shares, strict=True)
    return str(draw.choices(names, weights)[0])
