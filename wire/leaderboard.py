"""The leaderboard as clients see it."""

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LeaderboardRow(_Frozen):
    """One model. `lower` and `upper` bound the 95 % interval and are null where the votes cannot support one: `flags`
    says why (for instance "too_few_votes", "never_lost", "disconnected")."""

    model: str
    rating: float
    lower: float | None
    upper: float | None
    rank: int
    votes: int
    wins: int
    losses: int
    ties: int
    win_rate: float | None
    flags: tuple[str, ...] = ()


class LeaderboardView(_Frozen):
    """`GET /arena/leaderboard`. Matrices are ordered like `rows`; an entry is null where two models never met."""

    board: str
    num_votes: int
    last_vote_id: str | None
    updated_at: float  #: Unix time of the store
    rows: tuple[LeaderboardRow, ...]
    win_rate: tuple[tuple[float | None, ...], ...] = ()
    battle_count: tuple[tuple[int, ...], ...] = ()
    predicted: tuple[tuple[float | None, ...], ...] = ()
