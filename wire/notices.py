"""What the operator tells visitors: notices on every page, and the terms that a visitor accepts before the first
battle."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.ids import NoticeId

Severity = Literal["info", "warning", "critical"]

MAX_NOTICE_CHARS = 500
MAX_TERMS_CHARS = 50_000


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Notice(_Frozen):
    """A sentence for every visitor. It is shown from `starts` on, until `ends` if that is set."""

    id: NoticeId
    text: str
    severity: Severity
    starts: float = Field(description="Unix time")
    ends: float | None = Field(default=None, description="Unix time; null: until it is removed")

    def is_shown(self, now: float) -> bool:
        """Whether visitors see it at the Unix time `now`."""
        return self.starts <= now and (self.ends is None or now < self.ends)


class NoticeList(_Frozen):
    """Answer of `GET /arena/notices`: the notices that are shown now, the most severe first."""

    notices: tuple[Notice, ...]


TermsVersion = Annotated[str, Field(pattern="^[0-9a-f]{12}$", description="digest of the text")]


class TermsView(_Frozen):
    """Answer of `GET /arena/terms`: the terms in force, and whether this visitor has accepted this version."""

    version: TermsVersion | None = Field(default=None, description="null: this arena has no terms")
    text: str = ""
    is_accepted: bool = Field(default=True, description="true where there are no terms")


class AcceptTerms(_Frozen):
    """Body of `POST /arena/terms`. `version` is the one that the visitor has read."""

    version: TermsVersion
