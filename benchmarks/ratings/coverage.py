"""How often the truth lies where a board says it does: intervals of newcomers and of all models, ranks, anchors, ties.

Every figure is a share of drawn arenas whose strengths are known; "before" is what the code printed until the ridge of
its sandwich, 1e-5 per vote, was replaced by an exact inverse.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.ratings.draws import SPREAD, add_pair, draw_counts, names_of
from ratings.bradley_terry import NORMAL_975, POINTS, Fit, expected_scores, fit_bradley_terry, laplacian
from ratings.options import FitOptions
from ratings.outcomes import FloatArray, PairCounts
from ratings.ranking import Leaderboard, rank_board
from ratings.rao_kupper import fit_rao_kupper
from ratings.style import VoteColumns, fit_votes
from ratings.weights import propensity_weights, voter_covariance, voter_weights

NUM_MODELS = 30
NEWCOMER_VOTES = 30
OLD_RIDGE = 1e-5


def newcomers(num_votes: int, replications: int, seed: int = 1) -> dict[str, Any]:
    """Coverage of the interval of a model with 30 votes on a board of `num_votes`, and of the models with many."""
    rng, names = np.random.default_rng(seed), names_of(NUM_MODELS)
    hits, old_hits, widths, old_widths, all_hits = [], [], [], [], []
    without = 0
    for _ in range(replications):
        truth = rng.normal(0.0, SPREAD, NUM_MODELS + 1)
        counts = draw_counts(truth[:-1], num_votes * 2 // (NUM_MODELS * (NUM_MODELS - 1)), rng)
        opponents = rng.multinomial(NEWCOMER_VOTES, np.full(NUM_MODELS, 1.0 / NUM_MODELS))
        for opponent in np.flatnonzero(opponents):
            gap = truth[-1] - truth[opponent]
            add_pair(counts, "newcomer", names[opponent], gap, int(opponents[opponent]), rng)
        fit = fit_bradley_terry(counts)
        if not fit.groups.core.all():  # it never lost or never won: the board gives no interval
            without += 1
            continue
        # "newcomer" sorts behind the others.
        off = np.abs(fit.strengths - (truth - truth.mean()))
        half = fit.half_widths / POINTS
        old_half = NORMAL_975 * np.sqrt(np.diag(_ridged_covariance(fit)))
        hits.append(off[-1] <= half[-1])
        old_hits.append(off[-1] <= old_half[-1])
        all_hits.append((off[:-1] <= half[:-1]).mean())
        widths.append(POINTS * half[-1])
        old_widths.append(POINTS * old_half[-1])
    return {
        "num_votes": num_votes,
        "newcomer_votes": NEWCOMER_VOTES,
        "replications": len(hits),
        "without_interval": without,
        "covered": _share(hits),
        "covered_before": _share(old_hits),
        "half_width_points": round(float(np.median(widths)), 1),
        "half_width_points_before": round(float(np.median(old_widths)), 1),
        "others_covered": _share(all_hits),
    }


def whole_boards(num_votes: int, replications: int, *, tie_width: float = 0.0, seed: int = 2) -> dict[str, Any]:
    """Coverage of all intervals of ten models, and how often every rank of the board lies in its range. With a width
    of ties also that of the true strengths by half wins."""
    rng, num_models = np.random.default_rng(seed), 10
    hits, half_win_hits, boards_right, singles_right = [], [], [], []
    options = FitOptions(fit="rao_kupper" if tie_width else "bradley_terry", min_votes=1)
    for _ in range(replications):
        truth = np.sort(rng.normal(0.0, SPREAD, num_models))[::-1]
        counts = draw_counts(truth, num_votes * 2 // (num_models * (num_models - 1)), rng, tie_width=tie_width)
        if tie_width:
            half_win_hits.append(_covered(fit_bradley_terry(counts), truth))
            hits.append(_covered(fit_rao_kupper(counts), truth))
        else:
            hits.append(_covered(fit_bradley_terry(counts), truth))
        board = rank_board(counts, None, options)
        ranks = {name: position + 1 for position, name in enumerate(names_of(num_models))}
        boards_right.append(all(row.rank <= ranks[row.model] <= row.worst_rank for row in board.rows))
        singles_right.append(all(low <= ranks[name] <= high for name, low, high in _interval_ranks(board)))
    figures = {
        "num_votes": num_votes,
        "tie_width_points": round(POINTS * tie_width, 1),
        "replications": replications,
        "covered": _share(hits),
        "boards_with_all_ranks_right": _share(boards_right),
        "boards_with_all_ranks_right_by_overlap": _share(singles_right),
    }
    return {**figures, "covered_by_half_wins": _share(half_win_hits)} if tie_width else figures


def equal_models(num_votes: int, replications: int, seed: int = 3) -> dict[str, Any]:
    """Ten models of one strength: a board that excludes any rank for any of them is wrong."""
    rng, wrong, wrong_by_overlap = np.random.default_rng(seed), [], []
    for _ in range(replications):
        board = rank_board(draw_counts(np.zeros(10), num_votes // 45, rng), None, FitOptions())
        wrong.append(any((row.rank, row.worst_rank) != (1, 10) for row in board.rows))
        wrong_by_overlap.append(any((low, high) != (1, 10) for _, low, high in _interval_ranks(board)))
    return {
        "num_votes": num_votes,
        "replications": replications,
        "boards_wrong": _share(wrong),
        "boards_wrong_by_overlap": _share(wrong_by_overlap),
    }


def anchors(num_votes: int, replications: int, seed: int = 4) -> dict[str, Any]:
    """By how many points a weak newcomer, and five clones of the worst model, move the other models of a board of ten:
    by the newcomer's thirtieth vote, by all 30 and 100 of its votes, and by 100 votes of each clone. The anchor is the
    three models in the middle."""
    rng, names = np.random.default_rng(seed), names_of(10)
    moves: dict[str, list[float]] = {}
    while len(moves.get("newcomer_of_30", [])) < replications:
        truth = np.sort(rng.normal(0.0, SPREAD, 10))[::-1]
        counts = draw_counts(truth, num_votes // 45, rng)
        entered = _entered(counts, truth, [truth[-1] - 1.5], rng)
        if not fit_bradley_terry(entered[0]).groups.core.all():
            continue  # its 29 votes are all lost, so that the thirtieth would lift no flag
        clones = _entered(counts, truth, [truth[-1]] * 5, rng)
        for kind, options in (("", FitOptions()), ("_with_anchor", FitOptions(anchor=names[4:7]))):
            first, *boards = (rank_board(c, None, options) for c in (counts, *entered, *clones))
            before_30, at_30, at_100, *with_clones = boards
            for name, one, other in (
                ("thirtieth_vote", before_30, at_30),
                ("newcomer_of_30", first, at_30),
                ("newcomer_of_100", first, at_100),
                ("five_clones_of_100", first, with_clones[-1]),
            ):
                moves.setdefault(name + kind, []).append(_largest_move(one, other, names))
    figures = {
        name: {"median": _points(np.median(values)), "largest": _points(max(values))} for name, values in moves.items()
    }
    return {"num_votes": num_votes, "replications": replications, "moves_points": figures}


def weightings(replications: int, seed: int = 5) -> dict[str, Any]:
    """Coverage of strengths under each weighting: 20 models, 10,000 votes of 500 voters, pairs of neighbours drawn ten
    times as often; all voters honest, and one in ten a coin."""
    figures: dict[str, Any] = {"replications": replications}
    for name, careless in (("honest", 0), ("one_in_ten_careless", 50)):
        rng = np.random.default_rng(seed)
        hits: dict[str, list[float]] = {"votes": [], "propensity": [], "voters": []}
        widths: dict[str, list[float]] = {"votes": [], "propensity": [], "voters": []}
        for _ in range(replications):
            truth = np.sort(rng.normal(0.0, SPREAD, 20))[::-1]
            columns = _drawn_columns(truth, 10_000, 500, careless, rng)
            weights = {"votes": None, "propensity": propensity_weights(columns), "voters": voter_weights(columns)}
            for weighting, weight in weights.items():
                fit = fit_votes(columns, style=False, weights=weight).fit
                if weighting == "voters":
                    fit = replace(fit, covariance=voter_covariance(columns, weights["voters"], fit))
                hits[weighting].append(_covered(fit, truth))
                widths[weighting].append(float(np.median(fit.half_widths)))
        figures[name] = {
            weighting: {"covered": _share(hits[weighting]), "half_width_points": _points(np.median(widths[weighting]))}
            for weighting in hits
        }
    return figures


def styles(replications: int, seed: int = 6) -> dict[str, Any]:
    """Half of 5,000 votes have no style counts: the coefficient per unit (truth 2.0) as it is fitted, and as it was
    when unknown counts were taken for equal ones."""
    rng, now, before, hits = np.random.default_rng(seed), [], [], []
    strengths = np.array([0.6, 0.2, -0.2, -0.6])
    for _ in range(replications):
        a = rng.integers(4, size=5000)
        b = (a + rng.integers(1, 4, size=a.size)) % 4
        length = np.clip(0.4 * (strengths[b] - strengths[a]) + rng.normal(0, 0.3, a.size), -1, 1)[:, None]
        a_wins = rng.random(a.size) < 1 / (1 + np.exp(strengths[b] - strengths[a] - 2.0 * length[:, 0]))
        known = np.arange(a.size) < 2500
        ones = np.ones(a.size)
        columns = VoteColumns(names_of(4), ("length",), a, b, 1 - a_wins, ones, length, has_style=known)
        style = fit_votes(columns)
        zeros = np.where(known[:, None], length, 0.0)
        diluted = fit_votes(VoteColumns(names_of(4), ("length",), a, b, 1 - a_wins, ones, zeros))
        now.append(style.coefficients[0].value / length[known].std())
        before.append(diluted.coefficients[0].value / zeros.std())
        hits.append(_covered(style.fit, strengths))
    return {
        "replications": replications,
        "true_effect": 2.0,
        "effect": round(float(np.mean(now)), 3),
        "effect_before": round(float(np.mean(before)), 3),
        "strengths_covered": _share(hits),
    }


def measure_coverage(replications: int) -> dict[str, Any]:
    """All of the above."""
    return {
        "newcomers": [newcomers(votes, 5 * replications // 2) for votes in (5_000, 200_000, 2_000_000, 10_000_000)],
        "boards": [whole_boards(votes, replications) for votes in (500, 5_000)],
        "boards_with_ties": [whole_boards(votes, replications, tie_width=0.7) for votes in (500, 5_000)],
        "equal_models": equal_models(5_000, replications),
        "anchors": [anchors(votes, max(replications // 4, 10)) for votes in (5_000, 50_000)],
        "weightings": weightings(max(replications // 4, 10)),
        "styles": styles(max(replications // 2, 10)),
    }


def _ridged_covariance(fit: Fit) -> FloatArray:
    """The sandwich as it was. All models are in the core."""
    chance, battles = expected_scores(fit.strengths), fit.tally.battles
    curvature = laplacian(battles * chance * (1.0 - chance))
    scatter = laplacian(fit.tally.wins * (1.0 - chance) ** 2 + fit.tally.wins.T * chance**2)
    inverse = np.linalg.inv(curvature + OLD_RIDGE * battles.sum() / 2 * np.eye(len(curvature)))
    contrast = np.eye(len(curvature)) - 1.0 / len(curvature)
    covariance: FloatArray = contrast @ inverse @ scatter @ inverse @ contrast
    return covariance


def _covered(fit: Fit, truth: FloatArray) -> float:
    """Share of the models whose true strength lies in its interval, all against the mean; flagged ones are left out."""
    core = fit.groups.core
    off = np.abs(fit.strengths[core] - (truth[core] - truth[core].mean()))
    return float((off <= fit.half_widths[core] / POINTS).mean())


def _interval_ranks(board: Leaderboard) -> Iterator[tuple[str, int, int]]:
    """Best and worst rank as they were: by intervals that do not overlap."""
    rows = [row for row in board.rows if row.lower is not None and row.upper is not None]
    for row in rows:
        best = 1 + sum(other.lower > row.upper for other in rows if other is not row)
        worst = 1 + sum(other.upper >= row.lower for other in rows if other is not row)
        yield row.model, best, worst


def _entered(
    counts: PairCounts, truth: FloatArray, strengths: list[float], rng: np.random.Generator
) -> list[PairCounts]:
    """The counts with 29, 30 and 100 votes of each new model, against random models of the board."""
    names, grown, boards = names_of(len(truth)), PairCounts(), []
    grown.merge(counts)
    for vote in range(100):
        for number, strength in enumerate(strengths):
            opponent = int(rng.integers(len(truth)))
            add_pair(grown, f"new{number}", names[opponent], strength - truth[opponent], 1, rng)
        if vote + 1 in (29, 30, 100):
            boards.append(PairCounts())
            boards[-1].merge(grown)
    return boards


def _largest_move(one: Leaderboard, other: Leaderboard, names: tuple[str, ...]) -> float:
    first, second = ({row.model: row.rating for row in board.rows} for board in (one, other))
    return max(abs(first[name] - second[name]) for name in names)


def _drawn_columns(
    truth: FloatArray, num_votes: int, num_voters: int, careless: int, rng: np.random.Generator
) -> VoteColumns:
    size = len(truth)
    pairs = np.array([(i, j) for i in range(size) for j in range(i + 1, size)])
    share = np.where(pairs[:, 1] - pairs[:, 0] == 1, 10.0, 1.0)
    share /= share.sum()
    drawn = rng.choice(len(pairs), num_votes, p=share)
    flip = rng.random(num_votes) < 0.5
    a, b = np.where(flip, pairs[drawn, 1], pairs[drawn, 0]), np.where(flip, pairs[drawn, 0], pairs[drawn, 1])
    voter = rng.integers(num_voters, size=num_votes)
    chance = np.where(voter < careless, 0.5, 1.0 / (1.0 + np.exp(truth[b] - truth[a])))
    outcome = np.where(rng.random(num_votes) < chance, 0, 1)
    return VoteColumns(
        names_of(size),
        (),
        a,
        b,
        outcome,
        np.ones(num_votes),
        np.zeros((num_votes, 0)),
        probability=share[drawn],
        voter=voter,
    )


def _share(values: list[Any]) -> float:
    return round(float(np.mean(values)), 4)


def _points(value: float) -> float:
    return round(float(value), 2)
