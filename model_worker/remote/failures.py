"""What a failure of another server means: the error for clients, and a short reason for the operator.

The text of the other server's errors is never passed on or logged, because it may name the model, quote the request or
repeat the key.
"""

import email.utils
import math
import random
import time
from dataclasses import dataclass

import httpx

from service_kit.trust import tls_problem
from wire.errors import ApiError, Blame, ErrorCode

FIRST_PAUSE_S = 0.5  #: before the second attempt; doubled each time
MAX_PAUSE_S = 8.0
PATIENCE_S = 15.0  #: an answer without a token is attempted again for so long; a controller waits longer for one
MAX_ATTEMPTS = 5
MAX_RETRY_AFTER_S = 3600.0
CLOSED_S = 60.0  #: after a failure that the next request would meet, too; doubled each time
MAX_CLOSED_S = 900.0

#: Statuses that only the operator can mend, in words for the operator.
_PROBLEMS = {
    401: "the host refuses the key (401)",
    402: "the host asks for payment (402)",
    403: "the host does not allow this key the model (403)",
    404: "the host does not know the model, or the URL is wrong (404)",
}
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


@dataclass(eq=False)
class Failure(Exception):
    """One attempt failed. `error` is for the client and `reason` for log, metrics and the administrator. `may_pass`:
    another attempt may succeed. `problem`: a sentence for the operator about what every request would meet. `blame`:
    WORKER where the other server seems to fail everybody, HOST where it failed this answer only; None: as the status of
    `error` says."""

    error: ApiError
    reason: str
    status: int | None = None  #: HTTP status of the other server; None: there was none
    may_pass: bool = False
    retry_after_s: float | None = None
    problem: str | None = None
    blame: Blame | None = None

    def as_error(self) -> ApiError:
        """The client's error with reason and blame, which controllers log and count."""
        self.error.reason, self.error.blame = self.reason, self.blame
        return self.error


#: What clients are told of failures without a status, by reason.
_MESSAGES = {
    "content_filter": "The filter of the model's server stopped the answer.",
    "empty_answer": "The model's server gave an empty answer.",
    "garbage": "The model's server gave an answer that is not understood.",
    "endless": "The model's server wrote more than was asked for.",
    "error_in_stream": "The model's server failed while it answered.",
    "cut": "The model's server broke off the answer.",
    "no_events": "The model's server broke off the answer.",
    "no_key": "The model's server cannot be asked.",
    "tls": "The model's server cannot be reached.",
    "unreachable": "The model's server cannot be reached.",
    "silent": "The model's server did not answer in time.",
}
#: Reasons that lie in what was asked: they say nothing of other answers.
_OF_ONE_ANSWER = frozenset({"content_filter", "empty_answer", "endless"})


def failed(reason: str, *, may_pass: bool = False) -> Failure:
    """A failure without a status of its own. `reason` is a key of _MESSAGES."""
    code = ErrorCode.WORKER_TIMEOUT if reason == "silent" else ErrorCode.WORKER_FAILED
    blame = Blame.HOST if reason in _OF_ONE_ANSWER else Blame.WORKER
    return Failure(ApiError(code, _MESSAGES[reason]), reason, may_pass=may_pass, blame=blame)


def refused(status: int, headers: httpx.Headers, body: bytes) -> Failure:
    """The failure that an answer with another status than 200 means."""
    reason, retry_after_s = f"status_{status}", retry_after(headers.get("retry-after"))
    if status in (400, 413, 422):
        if b"context" in body:
            error = ApiError(ErrorCode.CONTEXT_LENGTH_EXCEEDED, "The conversation is too long.", param="messages")
        else:
            error = ApiError(ErrorCode.INVALID_REQUEST, "The model's server does not take this request.")
        return Failure(error, reason, status)
    if status in (429, 503, 529):
        message = "The model's server has no room now."
        error = ApiError(ErrorCode.QUEUE_FULL, message, retry_after_s=retry_after_s or 5.0)
        return Failure(error, reason, status, may_pass=True, retry_after_s=retry_after_s)
    problem = _PROBLEMS.get(status)
    if 300 <= status < 400:
        problem = f"the host answers with a redirect ({status}): give the URL to which it leads"
    error = ApiError(ErrorCode.WORKER_FAILED, "The model's server failed.")
    may_pass = status in _PASSING or status >= 500
    blame = Blame.WORKER if status >= 500 else Blame.HOST
    return Failure(error, reason, status, may_pass, retry_after_s, problem, blame)


def broken(error: httpx.HTTPError, *, has_begun: bool) -> Failure:
    """The failure that a broken connection means. `has_begun`: the answer had begun to come."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return failed("silent")
    if has_begun:
        return failed("cut", may_pass=True)
    if (tls := tls_problem(error)) is not None:
        failure = failed("tls")
        failure.problem = f"the host {tls}"
        return failure
    return failed("unreachable", may_pass=True)


def retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header (RFC 9110, section 10.2.3: seconds or a date); None: absent or not understood."""
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER_S) if math.isfinite(seconds) else None


def pause_s(num_failures: int, retry_after_s: float | None) -> float:
    """How long to wait after so many failures in a row; at least what the other server asks for. With jitter, so that
    requests that failed together do not come back together."""
    pause: float = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (num_failures - 1)) * random.uniform(0.5, 1.0)
    return pause if retry_after_s is None else retry_after_s + random.uniform(0.0, 0.25) * pause
