"""Errors as a battle may show them: the same words for every model and every cause.

A worker's own message may contain the model's name, its context length or its address, so none leaves the controller.
"""

from wire.errors import ApiError, ErrorCode

_MESSAGES = {
    ErrorCode.CONTEXT_LENGTH_EXCEEDED: "The conversation is too long for one of the models.",
    ErrorCode.INVALID_REQUEST: "One of the models cannot take this request.",
    ErrorCode.QUEUE_FULL: "The models are busy. Try again in a moment.",
    ErrorCode.NO_WORKER: "One of the models cannot answer now.",
    ErrorCode.WORKER_TIMEOUT: "One of the models took too long to answer.",
    ErrorCode.SHUTTING_DOWN: "The arena is being restarted.",
    ErrorCode.STORE_UNAVAILABLE: "The arena's store does not answer. Try again in a moment.",
}
_WORKER_FAILED = "One of the models failed to answer."

#: Codes that refuse a turn without being a failure of a model: the turn is discarded and the battle goes on.
REFUSALS = frozenset(
    {
        ErrorCode.CONTEXT_LENGTH_EXCEEDED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.QUEUE_FULL,
        ErrorCode.NO_WORKER,
        ErrorCode.STORE_UNAVAILABLE,
    }
)


def neutral(error: ApiError) -> ApiError:
    """`error` reduced to a code and a message that do not tell models apart."""
    if error.code is ErrorCode.MODEL_NOT_FOUND:  # it existed when the battle began
        return neutral(ApiError(ErrorCode.NO_WORKER, "", retry_after_s=5))
    if error.code in (ErrorCode.UNSUPPORTED_PARAMETER, ErrorCode.REQUEST_TOO_LARGE):
        return neutral(ApiError(ErrorCode.INVALID_REQUEST, ""))
    if error.code is ErrorCode.MODEL_ASLEEP:  # the fact that a model sleeps would tell which it is
        return neutral(ApiError(ErrorCode.QUEUE_FULL, ""))
    message = _MESSAGES.get(error.code)
    if message is None:
        return ApiError(ErrorCode.WORKER_FAILED, _WORKER_FAILED)
    return ApiError(error.code, message, retry_after_s=2.0 if error.status in (429, 503) else None)
