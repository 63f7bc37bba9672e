"""Thirty kinds of malformed request to `POST /v1/chat/completions`, and the answer to each."""

import json
from collections.abc import Iterator
from typing import Any

import httpx


def _body(**changes: Any) -> bytes:
    whole = {"model": "MODEL", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    return json.dumps({**whole, **changes}).encode()


def _message(**message: Any) -> bytes:
    return _body(messages=[message])


def malformed_requests(model: str) -> Iterator[tuple[str, bytes]]:
    """(what is wrong, request body) pairs; none of them may be answered with a 200 or a 5xx."""
    deep = b'{"model": "MODEL", "messages": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    kinds: dict[str, bytes] = {
        "unknown role": _message(role="robot", content="Hi"),
        "null content": _message(role="user", content=None),
        "missing role": _message(content="Hi"),
        "missing content": _message(role="user"),
        "content is a number": _message(role="user", content=7),
        "content part without type": _message(role="user", content=[{"text": "Hi"}]),
        "content part of unknown type": _message(role="user", content=[{"type": "smell", "text": "Hi"}]),
        "image part": _message(role="user", content=[{"type": "image_url", "image_url": {"url": "http://127.0.0.1"}}]),
        "lone surrogate": _body().replace(b'"Hi"', b'"\\ud800"'),
        "NUL character": _body().replace(b'"Hi"', b'"\\u0000"'),
        "NaN temperature": _body().replace(b'"max_tokens": 4', b'"temperature": NaN'),
        "infinite temperature": _body().replace(b'"max_tokens": 4', b'"temperature": 1e999'),
        "negative temperature": _body(temperature=-1),
        "huge temperature": _body(temperature=1e30),
        "temperature is a string": _body(temperature="hot"),
        "top_p of zero": _body(top_p=0),
        "max_tokens of zero": _body(max_tokens=0),
        "max_tokens beyond 64 bits": _body(max_tokens=10**30),
        "max_tokens beyond the context": _body(max_tokens=10**6),
        "fractional max_tokens": _body(max_tokens=1.5),
        "empty messages": _body(messages=[]),
        "messages is a string": _body(messages="Hi"),
        "null messages": _body(messages=None),
        "missing model": _body().replace(b'"model": "MODEL", ', b""),
        "model is a list": _body(model=["MODEL"]),
        "empty stop string": _body(stop=[""]),
        "twenty stop strings": _body(stop=[str(i) for i in range(20)]),
        "body is a list": b"[]",
        "body is not JSON": b"{",
        "body is not UTF-8": b'{"model": "\xff\xfe"}',
        "nested 5,000 deep": deep,
        "prompt longer than the context": _message(role="user", content="word " * 20_000),
        "body of 10 MB": _message(role="user", content="x" * 10_000_000),
        "unknown parameter": _body(colour="blue"),
    }
    for kind, body in kinds.items():
        yield kind, body.replace(b'"MODEL"', json.dumps(model).encode())


def measure_malformed(url: str, model: str) -> dict[str, Any]:
    """Send each kind once. `wrong` lists those not answered by a 4xx with a code; it should be empty."""
    answers: dict[str, str] = {}
    wrong: list[str] = []
    with httpx.Client(base_url=url, timeout=60) as client:
        for kind, body in malformed_requests(model):
            response = client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
            try:
                code = response.json()["error"]["code"]
            except (ValueError, KeyError, TypeError):
                code = None
            answers[kind] = f"{response.status_code} {code}"
            if not 400 <= response.status_code < 500 or not code:
                wrong.append(kind)
        unspecified = client.post(
            "/v1/chat/completions",
            json={
                "model": model,
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": 4,
                "temperature": None,
            },
        )
    return {
        "kinds": len(answers),
        "wrong": wrong,
        "null_temperature_status": unspecified.status_code,
        "answers": answers,
    }
