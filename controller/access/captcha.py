"""The captcha of an arena: asks its service whether a response is that of a person. It knows no cookie.

The request is the `siteverify` of Turnstile, hCaptcha and reCAPTCHA: a form with secret, response and address, answered
with JSON that has `success`.
"""

import json
import logging
from pathlib import Path
from typing import Literal

import aiohttp

from service_kit.logs import log_event
from service_kit.trust import trust

_TIMEOUT_S = 4.0
_MAX_ANSWER_BYTES = 65_536
#: Codes with which a service refuses the arena and not the visitor.
_OUR_FAULT = frozenset({"missing-input-secret", "invalid-input-secret", "bad-request", "internal-error"})

_logger = logging.getLogger(__name__)

Outcome = Literal["passed", "failed", "unavailable"]


class Captcha:
    """One captcha service. `verify_url`: where responses are verified; `secret`: the arena's at the service."""

    def __init__(self, verify_url: str, secret: str, ca_file: Path | None = None) -> None:
        self._verify_url = verify_url
        self._ca_file = ca_file
        self._secret = secret

    async def outcome(self, response: str, address: str) -> Outcome:
        """What the service says of a visitor's `response` from `address`, as ClientAddress has it. unavailable: it did
        not answer within _TIMEOUT_S, or refused the arena itself. Never raises."""
        form = {"secret": self._secret, "response": response}
        if "/" not in address:  # the /64 of an IPv6 address is none
            form["remoteip"] = address
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=True) as http,
                http.post(self._verify_url, data=form, allow_redirects=False, ssl=trust(self._ca_file)) as answer,
            ):
                body = await answer.content.read(_MAX_ANSWER_BYTES)
            found = json.loads(body) if answer.status == 200 else None
            codes = found.get("error-codes", []) if isinstance(found, dict) else ["no-answer"]
            is_answer = isinstance(found, dict) and isinstance(found.get("success"), bool)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            found, codes, is_answer = None, [type(error).__name__], False
        if is_answer and found is not None and found["success"]:
            return "passed"
        if is_answer and not _OUR_FAULT.intersection(map(str, codes)):
            return "failed"
        log_event(_logger, "captcha_unavailable", logging.WARNING, codes=[str(code)[:64] for code in codes[:4]])
        return "unavailable"
