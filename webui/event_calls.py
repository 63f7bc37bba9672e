"""Calls to Gradio's event routes, checked before Gradio sees them.

Gradio's models take any JSON. A NaN, a lone surrogate, a function that does not exist or a value of the wrong type
makes it fail, answer 500 and print the values that it was given. Here each body is parsed strictly, the function must
exist and must get as many values as it has inputs, each of the type that its component sends; Gradio gets the parsed
call and nothing else. Knows no page: functions and components are read from the built pages.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import gradio as gr
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.types import Message, Receive, Scope

from service_kit.bodies import Bodies
from wire.errors import ApiError, ErrorCode

#: Ids that Gradio's page or Gradio itself has drawn.
SESSION_HASH = "[A-Za-z0-9_-]{1,64}"
_MAX_INPUTS = 32

Word = Annotated[str, StringConstraints(pattern=f"^{SESSION_HASH}$")]
Body = TypeVar("Body", bound=BaseModel)


class _Call(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # other fields of Gradio's models do not reach it


class Join(_Call):
    """Body of `queue/join`: run the function `fn_index` with the values `data`."""

    session_hash: Word
    fn_index: int = Field(ge=0, lt=2**31)
    trigger_id: int | None = Field(default=None, ge=0, lt=2**31)
    data: tuple[Any, ...] = Field(max_length=_MAX_INPUTS)


class Cancel(_Call):
    """Body of `cancel`: end the event `event_id`."""

    session_hash: Word
    fn_index: int = Field(ge=0, lt=2**31)
    event_id: Word


class Reset(_Call):
    """Body of `reset`."""

    event_id: Word


_BODIES: Mapping[str, type[_Call]] = {
    "/gradio_api/queue/join": Join,
    "/gradio_api/cancel": Cancel,
    "/gradio_api/reset": Reset,
    "/gradio_api/reset/": Reset,
}


class EventCalls:
    """The calls that the functions of `ui` can take. `max_bytes` bounds a body."""

    def __init__(self, ui: Any, *, max_bytes: int) -> None:
        self._ui = ui
        self._bodies = Bodies(max_bytes)
        for function in ui.fns.values():
            for component in function.inputs:
                if not isinstance(component, _CHECKED):
                    raise TypeError(f"no check is known for the values of {type(component).__name__}")

    @staticmethod
    def is_call(method: str, path: str) -> bool:
        """Whether the request has a body that `receive_checked` takes."""
        return method == "POST" and path in _BODIES

    async def receive_checked(self, scope: Scope, receive: Receive) -> Receive:
        """Read and check the body; returns what gives the checked one to Gradio, and changes the headers of `scope`
        with it. Raises ApiError as Bodies.parse does, INVALID_REQUEST for a call that no function takes, ClientGone."""
        call = await self._bodies.parse(Request(scope, receive), _BODIES[scope["path"]])
        if isinstance(call, Join):
            call = call.model_copy(update={"data": self._checked_data(call)})
        body = call.model_dump_json().encode()
        kept = [pair for pair in scope["headers"] if pair[0] not in (b"content-length", b"transfer-encoding")]
        scope["headers"] = [*kept, (b"content-length", b"%d" % len(body))]
        is_given = False

        async def give() -> Message:
            nonlocal is_given
            if is_given:
                return await receive()  # the disconnect
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return give

    def is_open(self, session_hash: str) -> bool:
        """Whether there are events, or may be, that a stream of this session would give."""
        return session_hash in self._ui._queue.pending_messages_per_session

    def _checked_data(self, call: Join) -> tuple[Any, ...]:
        function = self._ui.fns.get(call.fn_index)
        if function is None or function.fn is None:  # some run in the browser alone
            raise ApiError(ErrorCode.INVALID_REQUEST, "There is no such function.", param="fn_index")
        if len(call.data) != len(function.inputs):
            problem = f"The function has {len(function.inputs)} inputs."
            raise ApiError(ErrorCode.INVALID_REQUEST, problem, param="data")
        for index, (component, value) in enumerate(zip(function.inputs, call.data, strict=True)):
            if not _fits(component, value):
                problem = f"data.{index} is no value of a {type(component).__name__}."
                raise ApiError(ErrorCode.INVALID_REQUEST, problem, param=f"data.{index}")
        # A State's value is the server's own; what the page sends in its place is not used.
        pairs = zip(function.inputs, call.data, strict=True)
        return tuple(None if isinstance(component, gr.State) else value for component, value in pairs)


_CHECKED = (gr.State, gr.BrowserState, gr.Textbox, gr.Button, gr.Checkbox, gr.Slider, gr.Number, gr.Dropdown)


def _fits(component: Any, value: Any) -> bool:
    """Whether the component's page sends values of this type. Choices and bounds are checked by Gradio, whose refusals
    quiet_blocks.py logs without the value."""
    match component:
        case gr.State() | gr.BrowserState():  # a BrowserState's value is checked by the function that gets it
            return True
        case gr.Textbox() | gr.Button():
            return isinstance(value, str)
        case gr.Checkbox():
            return isinstance(value, bool)
        case gr.Slider():
            return _is_number(value)
        case gr.Number():
            return value is None or _is_number(value)
        case gr.Dropdown():
            return value is None or isinstance(value, str)
    raise AssertionError("checked when the pages were built")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
