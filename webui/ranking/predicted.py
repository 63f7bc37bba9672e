"""The win rates that a board predicts."""

from wire.leaderboard import LeaderboardView


def predicted_rates(view: LeaderboardView) -> list[list[float | None]]:
    """A rate for each pair of models with votes, row against column, also where the two have not met: the controller's
    where it gives one, else by the difference of the ratings."""
    rated = [row.rating if row.votes else None for row in view.rows]
    return [
        [
            None
            if one is None or other is None or i == j
            else _given(view, i, j) or 1 / (1 + 10 ** ((other - one) / 400))
            for j, other in enumerate(rated)
        ]
        for i, one in enumerate(rated)
    ]


def _given(view: LeaderboardView, row: int, column: int) -> float | None:
    return view.predicted[row][column] if view.predicted else None
