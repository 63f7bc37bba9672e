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
from dataclasses import dataclass, replace
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
CHECKS = (*range(5, 60, 5), *range(60, 241, 20))  #: votes of the rigger after which the judge and the ranks are asked
COMPANY = 2  #: honest votes that come with each of them


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


@dataclass(frozen=True)
class Moved:
    """Of one arena, at each of CHECKS: whether the target stands higher than by the honest votes alone, and the battles
    that were opened for the rigger's votes."""

    is_higher: tuple[bool, ...]
    num_opened: tuple[int, ...]


def move(seed: int, *, names: tuple[str, ...]) -> dict[tuple[str, str, str], Moved]:
    """By attack, plan and defence, one of `names`."""
    results = {}
    for kind in ("cookie", "invite"):
        plans = [plan for plan in PLANS if ("invit" in plan) == (kind == "invite")]
        for defence in names:
            rules = defences()[defence]
            if rules is None and kind == "invite":
                continue  # without rules the identity does not matter
            base, strengths, one_more = make_log(seed, kind)
            if rules is not None:
                base.judge(rules)
            for plan in plans if rules is not None else plans[:1]:
                for attack in ATTACKS if defence in ("none", "all") else ATTACKS[:1]:
                    target = 5 + seed % 10
                    log = base.copy(seed)
                    cast = attack_of(attack, target, strengths)
                    results[attack, plan, defence] = _moved(log, PLANS[plan], cast, target, rules, one_more)
    return results


def _move(asked: tuple[int, tuple[str, ...]]) -> dict[tuple[str, str, str], Moved]:
    seed, names = asked
    return move(seed, names=names)


def _moved(
    log: ArenaLog,
    plan: Callable[[int], Identity],
    cast: Voter,
    target: int,
    rules: Rules | None,
    one_more: Callable[[ArenaLog, float], None],
) -> Moved:
    is_higher, num_opened, opened = [], [], 0
    for number in range(CHECKS[-1]):
        before = log.num_opened
        log.vote(plan(number), cast, day=DAYS)
        opened += log.num_opened - before
        for _ in range(COMPANY):
            one_more(log, DAYS)
        if number + 1 not in CHECKS:
            continue
        log.flush()
        if rules is not None:
            log.judge(rules)
        counted = log.votes.columns["judged"] == 0
        is_higher.append(log.rank(target, counted) < log.rank(target, counted & ~log.is_by(RIGGER)))
        num_opened.append(opened)
    return Moved(tuple(is_higher), tuple(num_opened))


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
    return _or_none(sorted(values)[(len(values) - 1) // 2])


def median_interval(values: list[float]) -> tuple[float | None, float | None]:
    """95 % interval of the median from the order of the values: it holds for any distribution, infinite values too."""
    ordered, size = sorted(values), len(values)
    below = 0.0  # probability that at most `rank` of the values lie below the true median
    for rank in range(size):
        below += math.comb(size, rank) / 2.0**size
        if below > 0.025:
            return _or_none(ordered[max(rank - 1, 0)]), _or_none(ordered[min(size - rank, size - 1)])
    raise AssertionError("half of the probability lies below the middle")


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _row(results: list[Moved]) -> dict[str, Any]:
    """`first`: votes until the target stands higher at some check, median; it may be back at the next one, because
    honest votes move close neighbours past each other all the time. `share`: of the arenas in which it stands higher
    after so many votes. `half`: the fewest votes after which that is so in half of the arenas."""
    first = [next((CHECKS[i] for i, higher in enumerate(one.is_higher) if higher), math.inf) for one in results]
    opened = [next((one.num_opened[i] for i, h in enumerate(one.is_higher) if h), math.inf) for one in results]
    shares = np.mean([one.is_higher for one in results], axis=0)
    half = next((votes for votes, share in zip(CHECKS, shares, strict=True) if share >= 0.5), None)
    return {
        "half": half,
        "share": {str(votes): round(float(share), 3) for votes, share in zip(CHECKS, shares, strict=True)},
        "first": _median(first),
        "first_95": median_interval(first),
        "battles": _median(opened),
        "moved": sum(map(math.isfinite, first)),
        "arenas": len(results),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arenas", type=int, default=12)
    parser.add_argument("--move-arenas", type=int, default=40, help="for votes to move a rank, which differ widely")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=list(_PARTS),
        metavar="PARTS",
        help=f"Some of {','.join(_PARTS)}; the others stay in the file as they are.",
    )
    options = parser.parse_args()
    report: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    report |= {
        "benchmark": "integrity",
        "honest_votes": HONEST_VOTES,
        "models": NUM_MODELS,
        "rules": default_rules().as_numbers(),
        "most_votes": CHECKS[-1],
    }
    with ProcessPoolExecutor(options.processes) as pool:
        for part in options.only:
            report[part] = {
                "commit": commit(),
                "machine": {**machine(), "numpy": np.__version__},
                **_PARTS[part](pool, options),
            }
            RESULT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


def _detections(pool: ProcessPoolExecutor, options: argparse.Namespace) -> dict[str, Any]:
    detected: dict[str, Any] = {}
    for num_votes in (10, 30, 100, 300):
        found: dict[str, list[bool]] = defaultdict(list)
        for one in pool.map(partial(detect, num_votes=num_votes), range(options.arenas)):
            for kind, flags in one.items():
                found[kind] += flags
        detected[str(num_votes)] = {
            kind: {"voters": len(flags), "flagged": round(sum(flags) / len(flags), 4)} for kind, flags in found.items()
        }
        print(num_votes, detected[str(num_votes)], flush=True)
    return {"arenas": options.arenas, "by_number_of_votes": detected}


def _moves(pool: ProcessPoolExecutor, options: argparse.Namespace) -> dict[str, Any]:
    """Single defences are tried in the first arenas only."""
    names = tuple(defences())
    asked = [(seed, names if seed < options.arenas else ("none", "all")) for seed in range(options.move_arenas)]
    moves: dict[tuple[str, str, str], list[Moved]] = defaultdict(list)
    for results in pool.map(_move, asked):
        for case, result in results.items():
            moves[case].append(result)
        marks = {"/".join(case): "".join(".#"[higher] for higher in one.is_higher) for case, one in results.items()}
        print(json.dumps(marks), flush=True)
    return {
        attack: {
            plan: {
                defence: _row(moves[attack, plan, defence])
                for defence in defences()
                if (attack, plan, defence) in moves
            }
            for plan in PLANS
            if (attack, plan, "all") in moves
        }
        for attack in ATTACKS
    }


def _clones(pool: ProcessPoolExecutor, options: argparse.Namespace) -> dict[str, Any]:
    best: dict[str, Any] = {"arenas": 4 * options.arenas}
    for num_copies in (3, 10):
        for mode in ("uniform", "active"):
            drawn = list(pool.map(partial(clones, num_copies=num_copies, mode=mode), range(4 * options.arenas)))
            points, false_share = np.mean(drawn, axis=0).tolist()
            best[f"{num_copies} copies, {mode}"] = [round(points, 3), round(false_share, 3)]
    return best


_PARTS: dict[str, Callable[[ProcessPoolExecutor, argparse.Namespace], dict[str, Any]]] = {
    "flagged": _detections,
    "votes_to_move_one_rank": _moves,
    "clones": _clones,
}


if __name__ == "__main__":
    main()
