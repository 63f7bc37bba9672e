"""One table of requests that controller and worker refuse alike: the same bytes, the same status, the same code.

They go over plain sockets to real servers, because a client library would repair most of them. The web UI stands beside
the two for what happens before a route is known.
"""

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import SecretStr

import controller.app
import controller.config
import model_worker.app
from model_worker.config import WorkerSettings
from model_worker.echo_engine import EchoEngine
from service_kit.bodies import Bodies
from service_kit.heads import MAX_HEAD_BYTES, BoundedHttp
from tests.webui.server_thread import ServerThread
from wire.errors import STATUS, ErrorCode

MAX_BYTES = 50_000
PATIENCE_S = 0.3  #: for heads and for bodies, instead of half a minute

HELLO = {"role": "user", "content": "hello"}
CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class ImpatientHttp(BoundedHttp):
    patience_s = PATIENCE_S


def make_controller() -> Any:
    """Without a store: none of these requests comes so far that it needs one."""
    settings = controller.config.Settings(
        redis_url="unix:///nonexistent/store.sock", worker_token=SecretStr("w" * 20), admin_token=SecretStr("a" * 20)
    )
    return controller.app.create_app(settings, bodies=Bodies(MAX_BYTES, timeout_s=PATIENCE_S))


def make_worker() -> Any:
    settings = WorkerSettings(model="echo", engine="echo")
    return model_worker.app.create_app(settings, EchoEngine(), bodies=Bodies(MAX_BYTES, timeout_s=PATIENCE_S))


def make_web_ui() -> Any:
    pytest.importorskip("gradio")
    import webui.app
    import webui.config

    return webui.app.create_app(webui.config.Settings(controller_url="http://127.0.0.1:9"))


Address = tuple[str, int]


@contextlib.contextmanager
def served(make_app: Callable[[], Any]) -> Iterator[Address]:
    with ServerThread(make_app, http=ImpatientHttp) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        yield host, int(port)


@pytest.fixture(scope="module")
def services() -> Generator[dict[str, Address], None, None]:
    with served(make_controller) as controller_address, served(make_worker) as worker_address:
        yield {"controller": controller_address, "worker": worker_address}


@pytest.fixture(scope="module")
def web_ui() -> Generator[Address, None, None]:
    pytest.importorskip("gradio")
    with served(make_web_ui) as address:
        yield address


@dataclass(frozen=True)
class Case:
    """What is sent, and the code of the refusal. Nothing follows `sent`: what is incomplete stays so."""

    sent: bytes
    code: ErrorCode


def answer(address: Address, sent: bytes) -> tuple[int, dict[str, Any]]:
    """Status and body of the answer to `sent`. Fails when there is none."""
    with socket.create_connection(address, timeout=30) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all was sent
            connection.sendall(sent)
        response = http.client.HTTPResponse(connection)
        response.begin()
        return response.status, json.loads(response.read())


def request(method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    head = "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *headers))
    return head.encode("latin-1") + b"\r\n\r\n" + body


def post(body: bytes, path: str = CHAT, content_type: str | None = "application/json") -> bytes:
    headers = [f"Content-Length: {len(body)}"] if content_type is None else [f"Content-Type: {content_type}"]
    if content_type is not None:
        headers.append(f"Content-Length: {len(body)}")
    return request("POST", path, *headers, body=body)


def chunked(*pieces: bytes, is_complete: bool = True) -> bytes:
    body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if is_complete else b"")
    return request("POST", CHAT, "Content-Type: application/json", "Transfer-Encoding: chunked", body=body)


def chat(**changes: Any) -> dict[str, Any]:
    return {"model": "absent", "messages": [HELLO], **changes}


def message(**changes: Any) -> dict[str, Any]:
    return chat(messages=[{**HELLO, **changes}])


NOT_HTTP = {
    "no request line": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "no path": b"GET HTTP/1.1\r\n\r\n",
    "unknown method": b"BREW /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown version": b"GET /v1/models HTTP/9.9\r\nHost: x\r\n\r\n",
    "header without a colon": request("GET", "/v1/models", "nonsense"),
    "header without a name": request("GET", "/v1/models", ": x"),
    "space before the colon": request("GET", "/v1/models", "X-A : b"),
    "NUL in a header": request("GET", "/v1/models", "X-A: a\0b"),
    "one header too large": request("GET", "/v1/models", "X-A: " + "a" * MAX_HEAD_BYTES),
    "too many headers": request("GET", "/v1/models", *["X-A: b"] * (MAX_HEAD_BYTES // 8)),
    "path too large": request("GET", "/" + "a" * MAX_HEAD_BYTES),
    "header without an end": b"GET /v1/models HTTP/1.1\r\nX-A: " + b"a" * (MAX_HEAD_BYTES + 1),
    "headers without an end": b"GET /v1/models HTTP/1.1\r\n" + b"X-A: b\r\n" * (MAX_HEAD_BYTES // 8 + 1),
    "path without an end": b"GET /" + b"a" * (MAX_HEAD_BYTES + 1),
    "head that stops": b"GET /v1/models HTTP/1.1\r\nHost: x\r\n",
    "request line that stops": b"GET /v1/mod",
    "length that is no number": request("POST", CHAT, "Content-Length: many"),
    "negative length": request("POST", CHAT, "Content-Length: -1"),
    "length beyond 64 bits": request("POST", CHAT, "Content-Length: 99999999999999999999"),
    "two lengths": request("POST", CHAT, "Content-Length: 2", "Content-Length: 3", body=b"{}"),
    "length and chunks": request("POST", CHAT, "Content-Length: 2", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"),
}

BODY = json.dumps(chat()).encode()
BODIES = {
    "larger than allowed, as announced": (
        request("POST", CHAT, "Content-Type: application/json", f"Content-Length: {MAX_BYTES + 1}"),
        ErrorCode.REQUEST_TOO_LARGE,
    ),
    "larger than allowed, as sent": (post(b" " * (MAX_BYTES + 1)), ErrorCode.REQUEST_TOO_LARGE),
    "larger than allowed, in chunks": (chunked(*[b" " * 1000] * 51), ErrorCode.REQUEST_TOO_LARGE),
    "chunks without an end": (chunked(*[b" " * 1000] * 51, is_complete=False), ErrorCode.REQUEST_TOO_LARGE),
    "chunk without a size": (chunked(is_complete=False) + b"many\r\n", ErrorCode.INVALID_REQUEST),
    "body that stops": (post(BODY)[:-10], ErrorCode.INVALID_REQUEST),
    "body that does not begin": (post(BODY)[: -len(BODY)], ErrorCode.INVALID_REQUEST),
    "chunks that stop": (chunked(BODY, is_complete=False), ErrorCode.INVALID_REQUEST),
    "chunk that stops": (chunked(BODY, is_complete=False)[:-10], ErrorCode.INVALID_REQUEST),
    "in chunks and no JSON": (chunked(BODY[:10], BODY[10:-1]), ErrorCode.INVALID_JSON),
    "no media type": (post(BODY, content_type=None), ErrorCode.INVALID_REQUEST),
    **{
        f"media type {media_type!r}": (post(BODY, content_type=media_type), ErrorCode.INVALID_REQUEST)
        for media_type in (
            *("", "text/plain", "text/plain; application/json", "application/x-www-form-urlencoded"),
            *("multipart/form-data; boundary=x", "application/jsonx", "application/*", "json", "*/*"),
        )
    },
}

NOT_JSON = {
    "nothing": b"",
    "a word": b"hello",
    "keys without quotes": b"{model: absent}",
    "cut off": BODY[:-2],
    "two values": b"{} {}",
    "trailing comma": b'{"model": "absent",}',
    "NaN": b'{"model": "absent", "temperature": NaN}',
    "infinity": b'{"model": "absent", "temperature": -Infinity}',
    "number too large": b'{"model": "absent", "temperature": 1e999}',
    "integer of 5000 digits": b'{"model": "absent", "seed": ' + b"9" * 5000 + b"}",
    "seed beyond 64 bits": b'{"model": "absent", "seed": 18446744073709551616}',
    "not UTF-8": b'{"model": "\xff\xfe"}',
    "UTF-16": BODY.decode().encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf{}",
    "lone surrogate": rb'{"model": "absent", "messages": [{"role": "user", "content": "\ud800"}]}',
    "lone surrogate in a key": rb'{"\udfff": 1}',
    "NUL in a text": rb'{"model": "absent", "messages": [{"role": "user", "content": "a\u0000b"}]}',
    "40 levels deep": b'{"model": ' + b"[" * 40 + b"]" * 40 + b"}",
    "40,000 levels deep": b'{"model": ' + b"[" * 40_000,
}

NO_CHAT: dict[str, Any] = {
    "empty object": {},
    "array": [],
    "text": "hello",
    "null": None,
    "no model": {"messages": [HELLO]},
    "null model": chat(model=None),
    "number as model": chat(model=7),
    "empty model": chat(model=""),
    "no messages": {"model": "absent"},
    "null messages": chat(messages=None),
    "empty messages": chat(messages=[]),
    "messages as text": chat(messages="hello"),
    "message as text": chat(messages=["hello"]),
    "null message": chat(messages=[None]),
    "unknown role": message(role="wizard"),
    "missing role": chat(messages=[{"content": "hello"}]),
    "null role": message(role=None),
    "number as content": message(content=3),
    "object as content": message(content={"text": "x"}),
    "part without text": message(content=[{"type": "text"}]),
    "part with null text": message(content=[{"type": "text", "text": None}]),
    "part as number": message(content=[5]),
    "negative temperature": chat(temperature=-1),
    "temperature beyond its range": chat(temperature=99),
    "huge temperature": chat(temperature=1e308),
    "temperature as text": chat(temperature="hot"),
    "temperature as list": chat(temperature=[1]),
    "zero top_p": chat(top_p=0),
    "top_p above one": chat(top_p=1.5),
    "negative top_k": chat(top_k=-2),
    "zero max_tokens": chat(max_tokens=0),
    "negative max_tokens": chat(max_tokens=-5),
    "fractional max_tokens": chat(max_tokens=1.5),
    "min_tokens above max_tokens": chat(min_tokens=2_000_000),
    "too many stops": chat(stop=["x"] * 17),
    "empty stop in a list": chat(stop=[""]),
    "number as stop": chat(stop=5),
    "null in stop": chat(stop=[None]),
    "long stop": chat(stop="x" * 257),
    "negative stop token": chat(stop_token_ids=[-1]),
    "stop tokens as text": chat(stop_token_ids="abc"),
    "stream as text": chat(stream="perhaps"),
    "stream options without stream": chat(stream_options={"include_usage": True}),
    "stream options as text": chat(stream=True, stream_options="yes"),
    "too many answers": chat(n=17),
    "too many logprobs": chat(logprobs=True, top_logprobs=21),
    "format of no kind": chat(response_format={"type": "xml"}),
    "frequency penalty beyond its range": chat(frequency_penalty=2.5),
    "presence penalty as text": chat(presence_penalty="much"),
    "repetition penalty of zero": chat(repetition_penalty=0),
    "bias beyond its range": chat(logit_bias={"5": 101}),
    "bias of no token": chat(logit_bias={"five": 1}),
    "bias of a negative token": chat(logit_bias={"-5": 1}),
    "biases as a list": chat(logit_bias=[5]),
    "too many biases": chat(logit_bias={str(i): 1 for i in range(301)}),
}

UNSUPPORTED: dict[str, Any] = {
    "audio in a message": message(audio={"id": "x"}),
    "part without type": message(content=[{"text": "x"}]),
    "image part": message(content=[{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]),
    "functions": chat(functions=[{}]),
    "parameter of another server": chat(mirostat=2),
}

NO_PROMPT: tuple[Any, ...] = (None, "", [], ["a", 1], [1, -2], [[1], []], {"text": "x"}, 5, [None])

PATHS = {
    "wrong method on a POST": ("GET", CHAT, ErrorCode.METHOD_NOT_ALLOWED),
    "wrong method on a GET": ("DELETE", "/v1/models", ErrorCode.METHOD_NOT_ALLOWED),
    "wrong method on a probe": ("PUT", "/health", ErrorCode.METHOD_NOT_ALLOWED),
    "root": ("GET", "/", ErrorCode.NOT_FOUND),
    "part of a path": ("GET", "/v1", ErrorCode.NOT_FOUND),
    "path that goes on": ("POST", CHAT + "/more", ErrorCode.NOT_FOUND),
    "doubled slash": ("GET", "//v1//model", ErrorCode.NOT_FOUND),
    "dots in a path": ("GET", "/v1/../v1/models", ErrorCode.NOT_FOUND),
    "NUL in a path": ("GET", "/%00", ErrorCode.NOT_FOUND),
    "unknown route": ("POST", "/v1/images", ErrorCode.NOT_FOUND),
    "internal root": ("GET", "/internal", ErrorCode.NOT_FOUND),
    "documentation": ("GET", "/docs", ErrorCode.NOT_FOUND),
    "schema": ("GET", "/openapi.json", ErrorCode.NOT_FOUND),
    "blank model name": ("GET", "/v1/models/%20", ErrorCode.MODEL_NOT_FOUND),
    "model name that is no UTF-8": ("GET", "/v1/models/%ff%fe", ErrorCode.MODEL_NOT_FOUND),
}


def table() -> dict[str, Case]:
    cases = {f"not HTTP: {name}": Case(sent, ErrorCode.INVALID_REQUEST) for name, sent in NOT_HTTP.items()}
    cases |= {f"body: {name}": Case(sent, code) for name, (sent, code) in BODIES.items()}
    for path in (CHAT, TEXT):
        cases |= {
            f"JSON for {path}: {name}": Case(post(body, path), ErrorCode.INVALID_JSON)
            for name, body in NOT_JSON.items()
        }
    cases |= {f"chat: {name}": Case(post(_json(body)), ErrorCode.INVALID_REQUEST) for name, body in NO_CHAT.items()}
    cases |= {
        f"chat: {name}": Case(post(_json(body)), ErrorCode.UNSUPPORTED_PARAMETER) for name, body in UNSUPPORTED.items()
    }
    cases |= {
        f"prompt: {prompt!r}": Case(post(_json({"model": "absent", "prompt": prompt}), TEXT), ErrorCode.INVALID_REQUEST)
        for prompt in NO_PROMPT
    }
    cases |= {f"path: {name}": Case(request(method, path), code) for name, (method, path, code) in PATHS.items()}
    return cases


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


TABLE = table()


def assert_refused(case: Case, status: int, body: dict[str, Any]) -> None:
    error = body["error"]
    assert (status, error["code"]) == (STATUS[case.code], case.code), error
    assert error["message"]
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "code", "param"}


@pytest.mark.parametrize("service", ["controller", "worker"])
@pytest.mark.parametrize("name", TABLE)
def test_controller_and_worker_refuse_alike(services: dict[str, Address], service: str, name: str) -> None:
    assert_refused(TABLE[name], *answer(services[service], TABLE[name].sent))


@pytest.mark.parametrize("name", NOT_HTTP)
def test_the_web_ui_refuses_the_same_heads(web_ui: Address, name: str) -> None:
    assert_refused(Case(NOT_HTTP[name], ErrorCode.INVALID_REQUEST), *answer(web_ui, NOT_HTTP[name]))


@pytest.mark.parametrize(
    ("service", "code"), [("controller", ErrorCode.STORE_UNAVAILABLE), ("worker", ErrorCode.MODEL_NOT_FOUND)]
)
@pytest.mark.parametrize(
    "sent",
    [
        post(BODY),
        post(BODY, content_type="Application/JSON; charset=utf-8"),
        chunked(BODY[:10], BODY[10:]),
        post(BODY + b" " * (MAX_BYTES - len(BODY))),
        post(BODY).replace(b"Host: localhost", b"Host: localhost\r\nX-A: " + b"a" * (MAX_HEAD_BYTES - 300)),
    ],
    ids=["plain", "media type with a parameter", "in chunks", "largest body", "large head"],
)
def test_a_well_formed_request_gets_beyond_the_table(
    services: dict[str, Address], service: str, code: ErrorCode, sent: bytes
) -> None:
    """The controller asks its store, which is not there; the worker knows no such model."""
    status, body = answer(services[service], sent)
    assert (status, body["error"]["code"]) == (STATUS[code], code)
