"""Error codes, their HTTP statuses, and bodies of other services."""

import pytest

from wire.errors import STATUS, ApiError, ErrorBody, ErrorCode


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == set(ErrorCode)
    assert all(400 <= status < 600 for status in STATUS.values())


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_error_survives_the_way_over_the_wire(code: ErrorCode) -> None:
    error = ApiError(code, "A sentence.", param="model")
    parsed = ApiError.from_body(error.body().model_dump())
    assert (parsed.code, parsed.message, parsed.param, parsed.status) == (code, "A sentence.", "model", error.status)


@pytest.mark.parametrize("code", [code for code, status in STATUS.items() if status in (429, 503)])
def test_overload_always_says_when_to_come_back(code: ErrorCode) -> None:
    assert int(ApiError(code, "Busy.").headers["Retry-After"]) >= 1


def test_other_errors_say_nothing_about_coming_back() -> None:
    assert ApiError(ErrorCode.NOT_FOUND, "No.").headers == {}


def test_a_short_wait_is_rounded_up_to_a_second() -> None:
    assert ApiError(ErrorCode.RATE_LIMITED, "Slow.", retry_after_s=0.05).headers == {"Retry-After": "1"}


@pytest.mark.parametrize(
    "body", [None, "text", {}, {"error": "text"}, {"error": {"message": "x", "type": "y", "code": "?"}}]
)
def test_an_answer_that_is_not_ours_becomes_an_internal_error(body: object) -> None:
    assert ApiError.from_body(body).code is ErrorCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNAUTHORIZED, "authentication_error"),
        (ErrorCode.RATE_LIMITED, "rate_limit_error"),
        (ErrorCode.MODEL_NOT_FOUND, "invalid_request_error"),
        (ErrorCode.NO_WORKER, "server_error"),
    ],
)
def test_the_type_is_what_openai_clients_switch_on(code: ErrorCode, kind: str) -> None:
    assert ApiError(code, "x").body().error.type == kind


def test_the_body_is_the_openai_shape() -> None:
    body = ApiError(ErrorCode.MODEL_NOT_FOUND, "No such model.", param="model").body()
    assert ErrorBody.model_validate(body.model_dump()) == body
    assert set(body.model_dump()["error"]) == {"message", "type", "code", "param"}
