"""The headers x-ratelimit-*: what remains of a client's limit, in the head of each answer to a request that counted in
it. Names and formats are OpenAI's; /v1 has them (controller/routes/openai.py)."""

import time
from dataclasses import dataclass

from starlette.types import Scope

from service_kit.request_ids import note_headers

_STATE = "rate_limit"
_MS_PER_MINUTE = 60_000
_MS_PER_HOUR = 3_600_000


@dataclass(frozen=True)
class Remaining:
    """A limit after one request was counted or refused."""

    limit: int  #: requests at once, when none was sent for a while
    requests: int  #: that would be allowed now
    reset_us: int  #: microseconds until `limit` requests are allowed again

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The headers of the answer."""
        return {
            b"x-ratelimit-limit-requests": str(self.limit).encode(),
            b"x-ratelimit-remaining-requests": str(self.requests).encode(),
            b"x-ratelimit-reset-requests": duration(self.reset_us).encode(),
        }


def duration(us: int) -> str:
    """A time as OpenAI writes it, rounded up to milliseconds: 0s, 120ms, 1.2s, 1m26.4s, 2h0m5s."""
    ms = -(-us // 1000)
    if 0 < ms < 1000:
        return f"{ms}ms"
    hours, ms = divmod(ms, _MS_PER_HOUR)
    minutes, ms = divmod(ms, _MS_PER_MINUTE)
    seconds = f"{ms / 1000:g}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def note_remaining(scope: Scope, remaining: Remaining) -> None:
    """Give the answer to the request of `scope` the headers, if its head has not been sent.

    A request with several prompts counts several times at once: of these the newest place in the bucket is told, which
    is the one with the latest reset, whatever the order of the store's answers.
    """
    reset_at = time.monotonic() + remaining.reset_us / 1e6
    state = scope.setdefault("state", {})
    if state.get(_STATE, 0.0) < reset_at:
        state[_STATE] = reset_at
        note_headers(scope, remaining.headers)
