"""One line of a report of `agon doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    HINT = "hint"  #: works, but could be better
    PROBLEM = "problem"  #: the service will not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    subject: str
    verdict: Verdict
    text: str
