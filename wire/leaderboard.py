"""The leaderboard as clients see it."""

from pydantic import BaseModel, ConfigDict, Field


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LeaderboardRow(_Frozen):
    """One model. `lower` and `upper` bound the 95 % interval. They are null if the votes cannot support an interval,
    and `flags` says why (for instance "too_few_votes", "never_lost", "disconnected"). `worst_rank` is the rank if every
    model with an overlapping interval were better. `ties` counts ties of both kinds, `both_bad` those of the second
    kind. After `votes_to_flip` more votes for the next model below and against this one, that model would rank above.
    """

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
    worst_rank: int | None = None
    both_bad: int = 0
    votes_to_flip: int | None = None
    flags: tuple[str, ...] = ()


class StyleCoefficient(_Frozen):
    """Effect of one standard deviation more of a style feature, in rating points, with its 95 % interval (null if the
    votes cannot support one)."""

    feature: str
    points: float
    lower: float | None
    upper: float | None


class LeaderboardView(_Frozen):
    """Answer of `GET /arena/leaderboard`. Matrices are ordered like `rows`; an entry is null if two models never
    met."""

    board: str
    num_votes: int
    last_vote_id: str | None
    updated_at: float = Field(description="Unix time of the store")
    restored_at: float | None = Field(
        default=None, description="Unix time at which votes that the store had lost were restored; null: never"
    )
    num_restored: int = Field(default=0, description="votes that were restored then")
    rows: tuple[LeaderboardRow, ...]
    win_rate: tuple[tuple[float | None, ...], ...] = ()
    battle_count: tuple[tuple[int, ...], ...] = ()
    predicted: tuple[tuple[float | None, ...], ...] = ()
    boards: tuple[str, ...] = Field(default=(), description="names that the parameter `board` takes")
    style_controlled: bool = False
    coefficients: tuple[StyleCoefficient, ...] = ()
