"""What the operator does: models in the draw, workers, notices, terms; and the log of all of it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from wire.battles import Outcome
from wire.notices import MAX_NOTICE_CHARS, MAX_TERMS_CHARS, Notice, Severity
from wire.workers import WorkerState

MAX_WEIGHT = 100.0

Reason = Annotated[str, Field(max_length=500, description="why; it is kept in the log of actions")]

ActionName = Literal[
    "set_model",
    "drain_worker",
    "resume_worker",
    "add_notice",
    "remove_notice",
    "set_terms",
    "judge_votes",
    "import_votes",
    "put_card",
    "invite_voter",
    "revoke_voter",
    "add_model",
    "remove_model",
    "sleep_model",
    "wake_model",
    "move_model",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSwitch(_Frozen):
    """Whether a model is offered, and its weight in the draw of anonymous battles."""

    is_on: bool = Field(default=True, description="false: no new battle, no chat and no request of /v1")
    weight: float = Field(
        default=1.0,
        ge=0,
        le=MAX_WEIGHT,
        allow_inf_nan=False,
        description="a pair is drawn in proportion to the product of both weights; 0: only by name",
    )


class SetModel(ModelSwitch):
    """Body of `PUT /arena/admin/models/{model}`."""

    reason: Reason = ""


class DrainWorker(_Frozen):
    """Body of `POST /arena/admin/workers/{worker_id}/drain`. A drained worker finishes its answers and gets no new
    ones, also after a restart, until it is resumed."""

    is_drained: bool
    reason: Reason = ""


class CreateNotice(_Frozen):
    """Body of `POST /arena/admin/notices`."""

    text: str = Field(min_length=1, max_length=MAX_NOTICE_CHARS, pattern=r"\S")
    severity: Severity = "info"
    starts: float | None = Field(default=None, ge=0, le=1e11, description="Unix time; null: now")
    ends: float | None = Field(default=None, ge=0, le=1e11, description="Unix time; null: until it is removed")
    reason: Reason = ""

    @model_validator(mode="after")
    def _ends_after_start(self) -> "CreateNotice":
        if self.ends is not None and self.ends <= (self.starts or 0):
            raise ValueError("a notice ends after its start")
        return self


class SetTerms(_Frozen):
    """Body of `PUT /arena/admin/terms`. Every visitor accepts a new text again; an empty one ends the gate."""

    text: str = Field(max_length=MAX_TERMS_CHARS)
    reason: Reason = ""


class TermsInForce(_Frozen):
    """The terms as the administrator sees them. `source`: where the text comes from."""

    version: str
    text: str
    source: Literal["admin", "file"]


class AdminModel(_Frozen):
    """A model that has a worker, a card or a switch."""

    model: str
    is_on: bool
    weight: float
    is_retired: bool = Field(description="by the date of its card")
    ready_workers: int = Field(description="workers that take requests; 0: not served")
    workers: int = Field(description="workers in any state")


class AdminWorker(_Frozen):
    """A registered worker, or one that is drained and away."""

    worker_id: str
    model: str | None = Field(default=None, description="null: not registered now")
    state: WorkerState | None = None
    is_drained: bool
    in_flight: int = Field(default=0, description="answers that it is writing or that wait there")
    last_heartbeat_age_s: float | None = None


class RateInForce(_Frozen):
    """One rate limit of every address."""

    kind: str = Field(description="which requests it counts")
    per_minute: int
    burst: int


class FailureCount(_Frozen):
    """Failures of one cause at one model, in the last 24 hours."""

    cause: str = Field(description="an error code, or what the controller found")
    model: str
    worker_id: str = Field(description="empty: no worker was reached")
    count: int
    last: float = Field(description="Unix time of the latest")


class FailuresView(_Frozen):
    """Answer of `GET /arena/admin/failures`: the most frequent first, and refusals by rate limits, by kind."""

    failures: tuple[FailureCount, ...]
    rate_limited: dict[str, int]
    since: float = Field(description="Unix time")


class AdminView(_Frozen):
    """Answer of `GET /arena/admin`: what is in force."""

    actor: str = Field(description="how the log of actions will name you")
    models: tuple[AdminModel, ...]
    workers: tuple[AdminWorker, ...]
    notices: tuple[Notice, ...] = Field(description="also those that have not begun or have ended")
    terms: TermsInForce | None
    rates: tuple[RateInForce, ...]


class AdminVote(_Frozen):
    """One vote with the reasons for which it is not rated."""

    vote_id: str
    battle_id: str
    time: float
    outcome: Outcome
    model_a: str
    model_b: str
    voter: str | None
    cohort: str | None
    flags: tuple[str, ...] = Field(description="in force, by the vote itself and by judgements")


class AdminVotes(_Frozen):
    """Answer of `GET /arena/admin/votes`: the newest first."""

    votes: tuple[AdminVote, ...]
    next: str | None = Field(description="`before` of the next page; null at the beginning of the log")


class Action(_Frozen):
    """One entry of the log of actions, which is only appended to."""

    id: str
    time: float = Field(description="Unix time of the store")
    by: str = Field(description="the user named by the proxy, or `admin token`")
    address: str = Field(description="where the request came from")
    action: ActionName
    subject: str = Field(description="model, worker, notice, voter or battles")
    values: dict[str, Any] = Field(default_factory=dict, description="what was set")
    reason: str = ""


class ActionList(_Frozen):
    """Answer of `GET /arena/admin/actions`: the newest first."""

    actions: tuple[Action, ...]
    next: str | None = Field(description="`before` of the next page; null at the beginning of the log")
