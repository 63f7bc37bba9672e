"""Errors as they travel: a stable machine code, an HTTP status and a human sentence, in the OpenAI shape.

Services raise ApiError anywhere and map it to a response in one exception handler; clients parse the same shape back.
"""

import math
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ErrorCode(StrEnum):
    """Stable codes that programs may rely on. STATUS has the HTTP status of each, MEANINGS what it tells a client."""

    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    REQUEST_TOO_LARGE = "request_too_large"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    MODEL_NOT_FOUND = "model_not_found"
    NOT_A_CHAT_MODEL = "not_a_chat_model"
    THREAD_NOT_FOUND = "thread_not_found"
    BATTLE_NOT_FOUND = "battle_not_found"
    CHAT_NOT_FOUND = "chat_not_found"
    BATTLE_BUSY = "battle_busy"
    BATTLE_NOT_FINISHED = "battle_not_finished"
    BATTLE_ALREADY_VOTED = "battle_already_voted"
    BATTLE_ABORTED = "battle_aborted"
    BATTLE_FULL = "battle_full"
    STALE_TURN = "stale_turn"
    FEEDBACK_FULL = "feedback_full"
    NOT_YOUR_BATTLE = "not_your_battle"
    VOTER_NOT_KNOWN = "voter_not_known"
    INVITATION_NOT_FOUND = "invitation_not_found"
    CAPTCHA_NEEDED = "captcha_needed"
    CAPTCHA_FAILED = "captcha_failed"
    TERMS_NOT_ACCEPTED = "terms_not_accepted"
    NOTICE_NOT_FOUND = "notice_not_found"
    STALE_EPOCH = "stale_epoch"
    RATE_LIMITED = "rate_limited"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    QUEUE_FULL = "queue_full"
    BUDGET_REACHED = "budget_reached"
    OVERLOADED = "overloaded"
    NO_WORKER = "no_worker_available"
    MODEL_ASLEEP = "model_asleep"
    NOT_ENOUGH_MODELS = "not_enough_models"
    WORKER_FAILED = "worker_failed"
    WORKER_TIMEOUT = "worker_timeout"
    STORE_UNAVAILABLE = "store_unavailable"
    SHUTTING_DOWN = "shutting_down"
    NOT_READY = "not_ready"
    INTERNAL_ERROR = "internal_error"


STATUS: dict[ErrorCode, int] = {
    ErrorCode.INVALID_JSON: 400,
    ErrorCode.INVALID_REQUEST: 400,
    ErrorCode.UNSUPPORTED_PARAMETER: 400,
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: 400,
    ErrorCode.REQUEST_TOO_LARGE: 413,
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.MODEL_NOT_FOUND: 404,
    ErrorCode.NOT_A_CHAT_MODEL: 400,
    ErrorCode.THREAD_NOT_FOUND: 404,
    ErrorCode.BATTLE_NOT_FOUND: 404,
    ErrorCode.CHAT_NOT_FOUND: 404,
    ErrorCode.BATTLE_BUSY: 409,
    ErrorCode.BATTLE_NOT_FINISHED: 409,
    ErrorCode.BATTLE_ALREADY_VOTED: 409,
    ErrorCode.BATTLE_ABORTED: 409,
    ErrorCode.BATTLE_FULL: 409,
    ErrorCode.STALE_TURN: 409,
    ErrorCode.FEEDBACK_FULL: 409,
    ErrorCode.NOT_YOUR_BATTLE: 403,
    ErrorCode.VOTER_NOT_KNOWN: 403,
    ErrorCode.INVITATION_NOT_FOUND: 404,
    ErrorCode.CAPTCHA_NEEDED: 403,
    ErrorCode.CAPTCHA_FAILED: 403,
    ErrorCode.TERMS_NOT_ACCEPTED: 403,
    ErrorCode.NOTICE_NOT_FOUND: 404,
    ErrorCode.STALE_EPOCH: 409,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.TOO_MANY_CONNECTIONS: 503,
    ErrorCode.QUEUE_FULL: 503,
    ErrorCode.BUDGET_REACHED: 429,
    ErrorCode.OVERLOADED: 503,
    ErrorCode.NO_WORKER: 503,
    ErrorCode.MODEL_ASLEEP: 503,
    ErrorCode.NOT_ENOUGH_MODELS: 503,
    ErrorCode.WORKER_FAILED: 502,
    ErrorCode.WORKER_TIMEOUT: 504,
    ErrorCode.STORE_UNAVAILABLE: 503,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.NOT_READY: 503,
    ErrorCode.INTERNAL_ERROR: 500,
}

#: What each code tells a client; docs/api.md and /openapi.json show it.
MEANINGS: dict[ErrorCode, str] = {
    ErrorCode.INVALID_JSON: "The body is not strict JSON in UTF-8.",
    ErrorCode.INVALID_REQUEST: "A field, a query parameter or the media type is missing, wrong or out of bounds.",
    ErrorCode.UNSUPPORTED_PARAMETER: "The body has a field that is not served; `param` names it.",
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: "The prompt does not fit into the model's context.",
    ErrorCode.REQUEST_TOO_LARGE: "The body is larger than the service accepts.",
    ErrorCode.UNAUTHORIZED: "The credential is missing or not known.",
    ErrorCode.FORBIDDEN: "The credential is for something else, or the Host or the Origin is not accepted.",
    ErrorCode.NOT_FOUND: "There is no such path.",
    ErrorCode.METHOD_NOT_ALLOWED: "The path exists, but not for this method.",
    ErrorCode.MODEL_NOT_FOUND: "No worker serves a model of this name.",
    ErrorCode.NOT_A_CHAT_MODEL: "The model has no chat template: it completes text, and takes no conversation.",
    ErrorCode.THREAD_NOT_FOUND: "No conversation is kept that could be continued: send all of its messages.",
    ErrorCode.BATTLE_NOT_FOUND: "There is no such battle, or it has been forgotten.",
    ErrorCode.CHAT_NOT_FOUND: "There is no such chat, it has been forgotten, or it belongs to another visitor.",
    ErrorCode.BATTLE_BUSY: "A turn of the battle or chat is still streaming.",
    ErrorCode.BATTLE_NOT_FINISHED: "A vote needs two finished answers.",
    ErrorCode.BATTLE_ALREADY_VOTED: "Another outcome was recorded, or the battle is over.",
    ErrorCode.BATTLE_ABORTED: "A battle of an earlier release, of which a side failed; it takes no turn and no vote.",
    ErrorCode.BATTLE_FULL: "The conversation has reached its limit of turns or characters.",
    ErrorCode.STALE_TURN: "Another page has gone on with the battle or chat; read it again.",
    ErrorCode.FEEDBACK_FULL: "The feedback on this vote was changed as often as the arena allows.",
    ErrorCode.NOT_YOUR_BATTLE: "Only the visitor who began the battle may vote on it.",
    ErrorCode.VOTER_NOT_KNOWN: "This arena takes battles, chats and votes of known voters only (AGON_IDENTITY).",
    ErrorCode.CAPTCHA_NEEDED: "A new visitor of this arena solves a captcha first: POST /arena/voters/check.",
    ErrorCode.CAPTCHA_FAILED: "The captcha was not solved.",
    ErrorCode.TERMS_NOT_ACCEPTED: "A visitor accepts the terms of this arena first: GET and POST /arena/terms.",
    ErrorCode.NOTICE_NOT_FOUND: "There is no such notice, or it was removed.",
    ErrorCode.INVITATION_NOT_FOUND: "There is no such invitation, or it was revoked.",
    ErrorCode.STALE_EPOCH: "A newer start of the worker has registered, or the request is meant for its predecessor.",
    ErrorCode.RATE_LIMITED: "The address sent too many requests.",
    ErrorCode.TOO_MANY_CONNECTIONS: "The service, or the address of the client, has too many connections open.",
    ErrorCode.QUEUE_FULL: "All workers of the model are full.",
    ErrorCode.BUDGET_REACHED: "A limit of requests, tokens or cost that the operator gave a hosted model is reached.",
    ErrorCode.OVERLOADED: "The service gets more requests than it can take at the moment.",
    ErrorCode.NO_WORKER: "No worker of the model can answer now.",
    ErrorCode.MODEL_ASLEEP: "The model is not in memory and could not be brought there in time; ask again.",
    ErrorCode.NOT_ENOUGH_MODELS: "Fewer than two models that can chat take battles now.",
    ErrorCode.WORKER_FAILED: "The worker failed before the answer was complete.",
    ErrorCode.WORKER_TIMEOUT: "The worker was silent, or the answer took, longer than the time limit.",
    ErrorCode.STORE_UNAVAILABLE: "The store did not answer: whether a change happened is unknown; send it again.",
    ErrorCode.SHUTTING_DOWN: "The service is shutting down.",
    ErrorCode.NOT_READY: "Background work of the service fails at the moment; the message names it.",
    ErrorCode.INTERNAL_ERROR: "A defect of the service; its log has the details.",
}


class Blame(StrEnum):
    """Whose fault a failed answer is. Only WORKER speaks against asking the same worker for other answers."""

    REQUEST = "request"  #: the request, or its caller's budget
    HOST = "host"  #: the server of a hosted model, for this answer
    WORKER = "worker"  #: the worker, or the server of a hosted model, for every answer


class ErrorDetail(BaseModel):
    """The fields of an OpenAI error: `message` for people, `code` (an ErrorCode) for programs. `reason`, a word for
    logs, and `blame` are added by workers of hosted models, and controllers do not pass them on."""

    model_config = ConfigDict(frozen=True)

    message: str
    type: str
    code: str
    param: str | None = None
    reason: str | None = Field(default=None, exclude_if=lambda reason: reason is None)
    blame: Blame | None = Field(default=None, exclude_if=lambda blame: blame is None)


class ErrorBody(BaseModel):
    """`{"error": {...}}`, the shape that OpenAI clients know."""

    model_config = ConfigDict(frozen=True)

    error: ErrorDetail


class ApiError(Exception):
    """An error answer, raised where it is detected and mapped to HTTP in one exception handler.

    `retry_after_s` becomes the Retry-After header; overload errors (429, 503) always carry one.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        reason: str | None = None,
        blame: Blame | None = None,
    ) -> None:
        """blame: None: as the status says (`at_fault`)."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.reason = reason
        self.blame = blame
        if retry_after_s is None and self.status in (429, 503):
            retry_after_s = 1.0
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return STATUS[self.code]

    @property
    def at_fault(self) -> Blame:
        """Whose fault it is: without a `blame` of its own, that of the request for statuses below 500."""
        return self.blame or (Blame.REQUEST if self.status < 500 else Blame.WORKER)

    @property
    def type(self) -> str:
        """The coarse class that OpenAI clients switch on."""
        if self.status in (401, 403):
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the answer: Retry-After in whole seconds, at least 1, or none."""
        if self.retry_after_s is None:
            return {}
        return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}

    def body(self) -> ErrorBody:
        """The error as it is sent."""
        return ErrorBody(
            error=ErrorDetail(
                message=self.message,
                type=self.type,
                code=self.code.value,
                param=self.param,
                reason=self.reason,
                blame=self.blame,
            )
        )

    @classmethod
    def from_body(cls, body: Any) -> "ApiError":
        """Parse the error body of another Agon service; an unknown body becomes INTERNAL_ERROR."""
        try:
            detail = ErrorBody.model_validate(body).error
            code = ErrorCode(detail.code)
            return cls(code, detail.message, param=detail.param, reason=detail.reason, blame=detail.blame)
        except ValueError:
            return cls(ErrorCode.INTERNAL_ERROR, "The other service gave an answer that is not understood.")
