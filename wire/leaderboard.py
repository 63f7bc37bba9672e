"""The leaderboard as clients see it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.model_cards import BoardCard, CardState


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


FitModel = Literal["bradley_terry", "rao_kupper"]
Weighting = Literal["votes", "propensity", "voters"]


class LeaderboardRow(_Frozen):
    """One contestant: a model, or an older revision of one. `lower` and `upper` bound the 95 % interval. They are null
    if the votes cannot support an interval, and `flags` says why (for instance "too_few_votes", "never_lost",
    "disconnected"). `rank` and `worst_rank` are the best and the worst rank that the differences of the ratings leave
    open, at 95 % for the whole board. `ties` counts ties of both kinds, `both_bad` those of the second kind. After
    `votes_to_flip` more votes for the next model below and against this one, that model would rank above.
    """

    model: str
    revision: str | None = Field(default=None, description="digest of the checkpoint; null if votes of several count")
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


class Statement(_Frozen):
    """What the votes say of two neighbours on the board, valid at any time, however often one looks: `is_decided` is
    wrong for any pair of the board with probability 5 % at most."""

    above: str
    below: str
    is_decided: bool
    lower: float | None = Field(description="rating points by which `above` is ahead, at least; null: unknown")
    upper: float | None
    votes_needed: int | None = Field(
        description="about so many more votes of the board decide, if the ratings are right; null: decided, or unknown"
    )


class StyleCoefficient(_Frozen):
    """Effect of one standard deviation more of a style feature, in rating points, with its 95 % interval (null if the
    votes cannot support one)."""

    feature: str
    points: float
    lower: float | None
    upper: float | None


class PositionBias(_Frozen):
    """Rating points that side a has over side b for standing first, with the 95 % interval."""

    points: float
    lower: float | None
    upper: float | None


class PropensityDiagnostics(_Frozen):
    """How far the drawing of pairs was from even, and what weighting it away costs."""

    num_known: int = Field(description="votes whose probability of being drawn is known")
    smallest: float | None = Field(description="smallest probability of a pair")
    effective_votes: float | None = Field(description="votes that the weighted ones are worth (Kish)")


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
    fit: FitModel = "bradley_terry"
    weighting: Weighting = "votes"
    anchor: tuple[str, ...] = Field(
        default=(),
        description="models whose mean rating is 1000, against which intervals are; none: all with intervals",
    )
    tie_points: float | None = Field(
        default=None, description="Rao-Kupper: so many points ahead a model wins half of its votes"
    )
    position_bias: PositionBias | None = None
    propensity: PropensityDiagnostics | None = None
    statements: tuple[Statement, ...] = Field(default=(), description="of neighbours, from the top")
    unrated: dict[str, int] = Field(
        default_factory=dict, description="votes that this board leaves out, by flag; one with two flags counts twice"
    )
    num_unrated: int | None = Field(default=None, description="votes that this board leaves out; null: not counted")
    cards: dict[str, BoardCard] = Field(default_factory=dict, description="by model, as far as there are any")
    states: dict[str, CardState] = Field(default_factory=dict, description="by model")


class HistoryPoint(_Frozen):
    """One contestant at the end of a day."""

    model: str
    rating: float
    lower: float | None
    upper: float | None
    votes: int


class HistoryDay(_Frozen):
    """The board at the end of one day (UTC): all votes up to then, with the judgements of then."""

    day: str
    num_votes: int = Field(description="votes of this day on this board")
    rows: tuple[HistoryPoint, ...]


class HistoryView(_Frozen):
    """Answer of `GET /arena/leaderboard/history`."""

    board: str
    days: tuple[HistoryDay, ...]


class CohortComparison(_Frozen):
    """One model on the boards of two groups of voters: is it liked better by one of them?"""

    model: str
    first: float | None
    second: float | None
    difference: float | None
    lower: float | None
    upper: float | None


class CohortView(_Frozen):
    """Answer of `GET /arena/leaderboard/cohorts`: the ratings by two cohorts, or boards, and their differences."""

    first: str
    second: str
    num_votes: tuple[int, int]
    rows: tuple[CohortComparison, ...]
