"""Two groups of voters side by side: is a model liked better by one of them?

Both boards are fitted apart and brought to one scale by the models that have an interval on both, whose mean is set to
1000. The interval of a difference adds the variances: exact for cohorts, which share no vote; too wide for boards that
share some.
"""

import numpy as np

from controller.votes.boards.board_votes import COHORT_PREFIX, rated_votes, scope_of
from controller.votes.boards.vote_table import TableSnapshot
from ratings.bradley_terry import CENTER, NORMAL_975, POINTS
from ratings.options import FitOptions
from ratings.outcomes import FloatArray
from ratings.ranking import Leaderboard, rank_board
from wire.leaderboard import CohortComparison, CohortView


def board_of_group(group: str, votes: TableSnapshot) -> str | None:
    """The board of a cohort, or else the board of this name; None if there is neither."""
    for board in (COHORT_PREFIX + group, group):
        if scope_of(board, votes) is not None:
            return board
    return None


def compare_groups(first: str, second: str, votes: TableSnapshot) -> CohortView | None:
    """The ratings by two cohorts or boards and their differences; None if there is no such group."""
    boards = (board_of_group(first, votes), board_of_group(second, votes))
    if boards[0] is None or boards[1] is None:
        return None
    rated = tuple(rated_votes(board, votes) for board in boards if board is not None)
    ranked = tuple(rank_board(group.counts(), None, FitOptions(), models=group.models) for group in rated)
    certain = [{row.model for row in board.rows if row.lower is not None} for board in ranked]
    common = sorted(certain[0] & certain[1])
    points, variances = zip(*(_on_common_scale(board, common) for board in ranked), strict=True)
    differences = points[0] - points[1]
    half_widths = NORMAL_975 * np.sqrt(variances[0] + variances[1])
    ratings = [{row.model: row.rating for row in board.rows if row.votes} for board in ranked]
    rows = []
    for model in sorted(set(ratings[0]) | set(ratings[1])):
        if model in common:
            place = common.index(model)
            both = (float(CENTER + points[0][place]), float(CENTER + points[1][place]))
            gap, half = float(differences[place]), float(half_widths[place])
            rows.append(
                CohortComparison(
                    model=model, first=both[0], second=both[1], difference=gap, lower=gap - half, upper=gap + half
                )
            )
        else:
            rows.append(
                CohortComparison(
                    model=model,
                    first=ratings[0].get(model),
                    second=ratings[1].get(model),
                    difference=None,
                    lower=None,
                    upper=None,
                )
            )
    return CohortView(first=first, second=second, num_votes=(rated[0].num_votes, rated[1].num_votes), rows=tuple(rows))


def _on_common_scale(board: Leaderboard, common: list[str]) -> tuple[FloatArray, FloatArray]:
    """Points of the common models around their mean, and the variances of these."""
    places = [board.models.index(model) for model in common]
    if not places:
        return np.zeros(0), np.zeros(0)
    centring = np.eye(len(places)) - 1.0 / len(places)
    covariance = centring @ board.covariance[np.ix_(places, places)] @ centring
    points: FloatArray = POINTS * (centring @ board.strengths[places])
    return points, POINTS**2 * np.diag(covariance)
