"""The gauntlet: voters, honest and not, against the rules that the judge applies: python -m benchmarks.integrity

Writes benchmarks/results/integrity.json: the share of voters that is flagged, by kind and number of votes; the votes
that a rigger casts until the target stands one rank higher, with and without each defence; what clones gain.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.integrity import voters
from benchmarks.integrity.arena_log import ArenaLog, Identity
from benchmarks.integrity.voters import Voter
from benchmarks.ratings.arenas import Arena, Mode
from cli.bench.record import commit, machine
from controller.config import Settings
from controller.votes.boards.vote_flags import flag_bits
from controller.votes.boards.vote_table import number_of
from controller.votes.integrity.findings import Rules
from ratings.bradley_terry import POINTS
from ratings.outcomes import FloatArray
from ratings.sequential import decided_pairs
from wire.votes import IdentityKind

RESULT = Path("benchmarks/results/integrity.json")
NUM_MODELS = 20
SPREAD = 0.8  #: standard deviation of the true log strengths: 139 points
HONEST_VOTES = 5000
DAYS = 5
RIGGER = "rigger-"
ATTACKS = ("target_only", "boosting", "omnipresent")
STEPS = ((60, 5), (400, 20))  #: up to so many votes of the rigger, so many lie between two rounds of the judge
COMPANY = 2  #: honest votes that come with each of them
MOST_VOTES = STEPS[-1][0]


def default_rules() -> Rules:
    """The limits of a controller without settings."""
    fields = Settings.model_fields
    names = ("surprise_limit", "voter_cap", "address_cap", "prompt_cap", "probation_votes")
    return Rules(**{name: fields[name].default for name in names})


def make_log(
    seed: int, kind: IdentityKind = "cookie"
) -> tuple[ArenaLog, FloatArray, Callable[[ArenaLog, float], None]]:
    """A log with HONEST_VOTES of honest voters (the median casts 11, one of forty more than 80), the true strengths,
    and a function that adds one more honest vote on a day."""
    rng = np.random.default_rng(seed)
    strengths = -np.sort(-rng.normal(0.0, SPREAD, NUM_MODELS))
    log, honest = ArenaLog(NUM_MODELS, rng), voters.honest(strengths)
    sizes = np.ceil(rng.lognormal(math.log(11), 1.0, 2 * HONEST_VOTES)).astype(int)
    names = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)[:HONEST_VOTES])
    people = [Identity(f"honest-{name}", f"home-{name // 2}", kind) for name in names]
    for position, identity in enumerate(people):
        log.vote(identity, honest, day=DAYS * position / HONEST_VOTES)

    def one_more(target: ArenaLog, day: float) -> None:
        target.vote(people[int(target.rng.integers(len(people)))], honest, day=day)

    return log, strengths, one_more


def attack_of(name: str, target: int, strengths: FloatArray) -> Voter:
    """The voter of this name."""
    attacks: dict[str, Callable[[], Voter]] = {
        "target_only": lambda: voters.target_only(target),
        "boosting": lambda: voters.boosting(target, strengths),
        "omnipresent": lambda: voters.omnipresent(target),
        "careless": lambda: voters.careless,
        "honest": lambda: voters.honest(strengths),
    }
    return attacks[name]()


def detect(seed: int, *, num_votes: int) -> dict[str, list[bool]]:
    """By kind: whether each of some voters with so many votes is flagged, amid the honest ones."""
    log, strengths, one_more = make_log(seed)
    kinds = {"honest": 4, "careless": 1, "target_only": 1, "boosting": 1, "omnipresent": 1}
    queue = [(kind, number) for kind, times in kinds.items() for number in range(times) for _ in range(num_votes)]
    targets = log.rng.integers(3, NUM_MODELS, size=len(kinds) + 4)
    known = {
        (kind, number): attack_of(kind, int(targets[place]), strengths)
        for place, (kind, number) in enumerate(dict.fromkeys(queue))
    }
    for kind, number in (queue[place] for place in log.rng.permutation(len(queue))):
        name = f"{kind}#{number}"
        log.vote(Identity(name, f"network-of-{name}"), known[kind, number], day=DAYS)
        for _ in range(COMPANY):
            one_more(log, DAYS)  # others go on voting meanwhile
    log.judge(replace(default_rules(), voter_cap=0))
    judged = log.votes.columns["judged"] & flag_bits(("anomalous_voter",))
    found: dict[str, list[bool]] = defaultdict(list)
    for kind, number in known:
        rows = log.votes.columns["voter"] == number_of(f"{kind}#{number}")
        found[kind].append(bool(judged[rows].any()))
    ordinary = np.unique(log.votes.columns["voter"][log.is_by("honest-")])
    flagged = np.unique(log.votes.columns["voter"][log.is_by("honest-") & (judged != 0)])
    found["ordinary"] = [True] * len(flagged) + [False] * (len(ordinary) - len(flagged))
    return found


#: As whom the rigger casts vote number k.
PLANS: dict[str, Callable[[int], Identity]] = {
    "one cookie": lambda k: Identity(f"{RIGGER}0", "lair-0"),
    "cookies of 4 votes on one network": lambda k: Identity(f"{RIGGER}{k // 4}", "lair-0"),
    "cookies of 4 votes, each on another network": lambda k: Identity(f"{RIGGER}{k // 4}", f"lair-{k // 4}"),
    "3 invitations": lambda k: Identity(f"{RIGGER}{k % 3}", f"lair-{k % 3}", "invite"),
    "10 invitations": lambda k: Identity(f"{RIGGER}{k % 10}", f"lair-{k % 10}", "invite"),
}


def defences() -> dict[str, Rules | None]:
    """Rules by name; None: every vote counts."""
    rules = default_rules()
    return {
        "none": None,
        "caps": replace(rules, surprise_limit=math.inf, probation_votes=0),
        "test": replace(rules, voter_cap=0, address_cap=0, prompt_cap=0, probation_votes=0),
        "all": rules,
    }


def move(seed: int) -> dict[tuple[str, str, str], tuple[float, float]]:
    """By attack, plan and defence: votes that the rigger cast, and battles opened for them, until the target stood one
    rank higher than by the honest votes alone. Infinite: not with MOST_VOTES."""
    results = {}
    for kind in ("cookie", "invite"):
        plans = [plan for plan in PLANS if ("invit" in plan) == (kind == "invite")]
        for defence, rules in defences().items():
            base, strengths, one_more = make_log(seed, kind)
            if rules is not None:
                base.judge(rules)
            for plan in plans if rules is not None else plans[:1]:  # without rules the identity does not matter
                for attack in ATTACKS if defence in ("none", "all") else ATTACKS[:1]:
                    target = 5 + seed % 10
                    log = base.copy(seed)
                    cast = attack_of(attack, target, strengths)
                    results[attack, plan, defence] = _votes_to_move(log, PLANS[plan], cast, target, rules, one_more)
    return results


def _votes_to_move(
    log: ArenaLog,
    plan: Callable[[int], Identity],
    cast: Voter,
    target: int,
    rules: Rules | None,
    one_more: Callable[[ArenaLog, float], None],
) -> tuple[float, float]:
    num_opened = 0
    for number in range(MOST_VOTES):
        before = log.num_opened
        log.vote(plan(number), cast, day=DAYS)
        num_opened += log.num_opened - before
        for _ in range(COMPANY):
            one_more(log, DAYS)
        if (number + 1) % next(step for end, step in STEPS if number < end):
            continue
        log.flush()
        if rules is not None:
            log.judge(rules)
        counted = log.votes.columns["judged"] == 0
        if log.rank(target, counted) < log.rank(target, counted & ~log.is_by(RIGGER)):
            return number + 1, num_opened
    return math.inf, math.inf


def clones(seed: int, *, num_copies: int, mode: Mode) -> tuple[float, float]:
    """Points by which the best of the copies of one model stands above their mean after HONEST_VOTES, and whether any
    copy is stated to be above another."""
    rng = np.random.default_rng(seed)
    strengths = -np.sort(-np.concatenate([rng.normal(0.0, SPREAD, 9), np.full(num_copies, 0.3)]))
    arena = Arena(strengths, rng, mode=mode)
    while arena.num_votes < HONEST_VOTES:
        arena.vote(200)
    fit = arena.fit()
    copies = np.flatnonzero(strengths == 0.3)
    ratings = POINTS * fit.strengths[copies]
    decided = decided_pairs(fit.strengths, fit.covariance)[np.ix_(copies, copies)]
    return float(ratings.max() - ratings.mean()), float(decided.any())


def _median(values: list[float]) -> float | None:
    middle = float(np.sort(values)[(len(values) - 1) // 2])
    return middle if math.isfinite(middle) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=12)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    detected: dict[str, Any] = {}
    with ProcessPoolExecutor(options.processes) as pool:
        for num_votes in (10, 30, 100, 300):
            found: dict[str, list[bool]] = defaultdict(list)
            for one in pool.map(partial(detect, num_votes=num_votes), range(options.arenas)):
                for kind, flags in one.items():
                    found[kind] += flags
            detected[str(num_votes)] = {
                kind: {"voters": len(flags), "flagged": round(sum(flags) / len(flags), 4)}
                for kind, flags in found.items()
            }
            print(num_votes, detected[str(num_votes)], flush=True)
        moves: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
        for results in pool.map(move, range(options.arenas)):
            for case, result in results.items():
                moves[case].append(result)
        best = {
            f"{num_copies} copies, {mode}": [
                round(float(value), 3)
                for value in np.mean(
                    list(pool.map(partial(clones, num_copies=num_copies, mode=mode), range(4 * options.arenas))), axis=0
                )
            ]
            for num_copies in (3, 10)
            for mode in ("uniform", "active")
        }
    report = {
        "benchmark": "integrity",
        "commit": commit(),
        "machine": {**machine(), "numpy": np.__version__},
        "arenas": options.arenas,
        "honest_votes": HONEST_VOTES,
        "models": NUM_MODELS,
        "rules": default_rules().as_numbers(),
        "flagged_by_number_of_votes": detected,
        "votes_to_move_one_rank": {
            attack: {
                plan: {
                    defence: {
                        "votes": _median([votes for votes, _ in moves[attack, plan, defence]]),
                        "battles": _median([battles for _, battles in moves[attack, plan, defence]]),
                        "moved": sum(math.isfinite(votes) for votes, _ in moves[attack, plan, defence]),
                    }
                    for defence in defences()
                    if (attack, plan, defence) in moves
                }
                for plan in PLANS
                if (attack, plan, "all") in moves
            }
            for attack in ATTACKS
        },
        "most_votes": MOST_VOTES,
        "best_clone_points_above_mean_and_share_of_false_statements": best,
    }
    RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
