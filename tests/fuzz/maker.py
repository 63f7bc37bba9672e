"""Makes case N of a target: a function of the seed and N alone, so that any case can be sent again.

What is fuzzed comes from the services themselves: routes, examples and schemas from the OpenAPI documents of controller
and worker, routes and functions of the web UI from its app.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any
from urllib.parse import quote

from docs.api_page import documents
from tests.fuzz import mutations, raw
from tests.fuzz.case import Case, Headers, request_bytes
from tests.fuzz.from_schema import Generated, generated
from tests.fuzz.services import ADMIN_TOKEN, MODELS, WORKER_TOKEN

NUM_BATTLES = 24
NUM_CHATS = 24
#: Stand in a case for the id of battle or chat N of the running arena, and are replaced when the case is sent. As long
#: as an id, because they may stand in a body of announced length.
BATTLE_PLACE = "BattleNumber{:02d}OfArena_"
CHAT_PLACE = "ChatOfVisitor{:02d}OfArena"
#: Of the requests that delete something most name nothing: the others would soon have nothing left to name.
DELETING_SHARE = 0.05
TOKENS = {"open": None, "user": None, "worker": WORKER_TOKEN, "admin": ADMIN_TOKEN}
SIDE = {"model": "robin", "revision": "1"}
VOTE_LINE = {
    **{"vote_id": "1-1", "battle_id": "imported", "time": 1.0, "mode": "anonymous", "outcome": "a"},
    **{"a": SIDE, "b": {**SIDE, "model": "wren"}, "schema": 1},
}


@dataclass(frozen=True)
class Template:
    """A route, with a body that it accepts."""

    method: str
    path: str  #: with {parameters}
    token: str | None = None
    body: Any = None
    query: tuple[str, ...] = ()
    media_type: str = "application/json"
    headers: tuple[str, ...] = ()  #: names of headers that the route reads
    waits: bool = False  #: the answer begins when there is something to say


@dataclass
class Maker:
    """The cases of one target. `num_cases` bounds the share that schemathesis draws beforehand."""

    target: str
    seed: int
    num_cases: int
    templates: list[Template] = field(init=False)

    def __post_init__(self) -> None:
        self.templates = _web_ui_templates() if self.target == "webui" else _templates(self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return dict(dict(zip(("controller", "worker"), documents(), strict=True))[self.target])

    @cached_property
    def _generated(self) -> list[Generated]:
        return [] if self.target == "webui" else generated(self._document, self.num_cases // 4, self.seed)

    def case(self, number: int) -> Case:
        """Case `number` of this target."""
        random = Random(f"{self.seed} {self.target} {number}")
        draw = random.random()
        if draw < 0.25 and self._generated:
            return self._from_schema(self._generated[number % len(self._generated)], random)
        template = random.choice(self.templates)
        if draw < 0.30:
            return Case("valid", (self._valid(template, random),), is_whole=not template.waits)
        if draw < 0.75:
            return Case("mutated", (self._mutated(template, random),), is_whole=not template.waits)
        if draw < 0.80:
            body = json.dumps(template.body or {}).encode()
            return random.choice(raw.corpus(self._path(template, random).encode(), body))
        return raw.damaged(self._valid(template, random), random)

    def valid_case(self, number: int) -> Case:
        """A well-formed request of one route after the other."""
        template = self.templates[number % len(self.templates)]
        return Case("valid", (self._valid(template, Random(number)),), is_whole=not template.waits)

    def _valid(self, template: Template, random: Random) -> bytes:
        body = None if template.body is None else _text(template.body).encode()
        return request_bytes(template.method, self._path(template, random), _headers(template), body)

    def _mutated(self, template: Template, random: Random) -> bytes:
        method, path, headers, body = template.method, self._path(template, random), _headers(template), None
        if template.body is not None:
            value = template.body
            body = mutations.json_bytes(mutations.changed_json(value, random), random)
        elif random.random() < 0.1:
            body = mutations.json_bytes(mutations.any_json(random), random)
        if random.random() < (0.2 if template.body else 0.5):
            path = mutations.changed_path(path, random)
        if random.random() < (0.7 if template.query else 0.15):
            path += "?" + mutations.changed_query(list(template.query), random)
        for _ in range(random.choice((0, 0, 1, 2))):
            name = random.choice((*mutations.HEADERS, *template.headers * 5))
            headers = [pair for pair in headers if pair[0] != name]
            headers.append((name, mutations.header_value(random)))
        if random.random() < 0.03:
            method = random.choice(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"))
        return request_bytes(method, path, headers, body)

    def _from_schema(self, drawn: Generated, random: Random) -> Case:
        path = drawn.path
        for name, value in drawn.parameters.items():
            known = {"battle_id": _battle, "chat_id": _chat}.get(name) if random.random() < 0.5 else None
            text = known(random) if known else _quoted(value)
            path = path.replace(f"{{{name}}}", text)
        pairs = [
            f"{quote(str(k), errors='surrogatepass')}={quote(str(v), errors='surrogatepass')}"
            for k, v in drawn.query.items()
        ]
        template = next(t for t in self.templates if (t.method, t.path) == (drawn.method, drawn.path))
        headers = [*_headers(template), *((name, _latin(str(value))) for name, value in drawn.headers.items())]
        target = path + ("?" + "&".join(pairs) if pairs else "")
        return Case("schema", (request_bytes(drawn.method, target, headers, drawn.body),))

    def _path(self, template: Template, random: Random) -> str:
        values = {"worker_id": "w-0123456789ab", "model": random.choice(MODELS)}
        if template.method != "DELETE" or random.random() < DELETING_SHARE:
            values |= {"battle_id": _battle(random), "chat_id": _chat(random)}
        values |= {"session_hash": f"session{random.randrange(8)}"}
        path = template.path.replace(":path}", "}")
        while "{" in path:
            before, _, rest = path.partition("{")
            name, _, after = rest.partition("}")
            path = before + values.get(name, "x") + after
        return path


def _battle(random: Random) -> str:
    return BATTLE_PLACE.format(random.randrange(NUM_BATTLES))


def _chat(random: Random) -> str:
    return CHAT_PLACE.format(random.randrange(NUM_CHATS))


def _quoted(value: Any) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


def _latin(text: str) -> str:
    return "".join(part for part in text if part not in "\0\r\n" and ord(part) < 256)


def _text(body: Any) -> str:
    return body if isinstance(body, str) else json.dumps(body)


def _headers(template: Template) -> Headers:
    headers = [] if template.token is None else [("Authorization", f"Bearer {template.token}")]
    return headers if template.body is None else [*headers, ("Content-Type", template.media_type)]


def _templates(document: dict[str, Any]) -> list[Template]:
    """One template for each operation of the document, more for those with more than one kind of body."""
    found = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = operation.get("parameters", ())
            [(media_type, content)] = operation.get("requestBody", {}).get("content", {"": {}}).items()
            body = content.get("example")
            if media_type.endswith("ndjson"):
                body = VOTE_LINE
            if isinstance(body, dict) and body.get("model"):
                body = {**body, "model": MODELS[0]}
            found.append(
                Template(
                    method.upper(),
                    path,
                    TOKENS[operation["x-access"]] or (WORKER_TOKEN if "worker" in document["info"]["title"] else None),
                    body,
                    tuple(each["name"] for each in parameters if each["in"] == "query"),
                    media_type or "application/json",
                    tuple(each["name"] for each in parameters if each["in"] == "header"),
                )
            )
    named = {"mode": "named", "models": list(MODELS), "sampling": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 4}}
    rich = {
        **{"model": MODELS[0], "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 4, "seed": 7},
        **{
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "t"}]},
            ]
        },
        **{
            "stop": ["x"],
            "logit_bias": {"5": 1},
            "temperature": 0.7,
            "top_p": 0.9,
            "top_k": 4,
            "presence_penalty": 0.1,
        },
    }
    for template in list(found):
        if template.path == "/arena/battles" and template.method == "POST":
            found.append(Template("POST", template.path, None, named))
        if template.path == "/v1/chat/completions":
            found.append(Template("POST", template.path, template.token, rich))
    return found


def _web_ui_templates() -> list[Template]:
    """Every route of the web UI and of Gradio behind it, and a call of each function of its pages."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import webui.app
    import webui.config

    async def make() -> Any:  # without a running loop Gradio opens loops and never closes them
        return webui.app.create_app(webui.config.Settings())

    app = asyncio.run(make())
    found = [
        Template(method, path, query=_QUERIES.get(path, ("page", "deep_link", "session_hash")))
        for method, path in web_ui_routes(app)
    ]
    [ui] = [route.app.get_blocks() for route in app.routes if hasattr(getattr(route, "app", None), "get_blocks")]
    calls = []
    for number, function in ui.fns.items():
        data = [_sample(type(component).__name__) for component in function.inputs]
        body = {
            "session_hash": f"session{number % 8}",
            "fn_index": number,
            "trigger_id": 1,
            "event_data": None,
            "data": data,
        }
        calls.append(Template("POST", "/gradio_api/queue/join", body=body))
    calls += [
        Template("POST", "/gradio_api/cancel", body={"session_hash": "session1", "fn_index": 10, "event_id": "0" * 32}),
        Template("POST", "/gradio_api/reset", body={"event_id": "0" * 32}),
    ]
    streams = [
        Template("GET", f"/gradio_api/queue/data?session_hash=session{number}", waits=True) for number in range(8)
    ]
    files = [Template("GET", path) for path in ("/assets/index.js", "/static/img/api-logo.svg")]
    open_ = [each for each in found if "{" not in each.path]
    return [*found, *open_, *calls * max(1, len(found) // len(calls)), *streams * 3, *files * 3]


_QUERIES = {"/gradio_api/queue/data": ("session_hash",)}


def web_ui_routes(app: Any) -> Iterator[tuple[str, str]]:
    """Method and path of every route of the web UI, those of the mounted app included."""
    for route in app.routes:
        inner = getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", None)
        if inner:
            yield from web_ui_routes(type("Routes", (), {"routes": inner}))
        elif getattr(route, "path", ""):
            for method in sorted(getattr(route, "methods", None) or ("GET",)):
                yield method, route.path


def _sample(kind: str) -> Any:
    samples: dict[str, Any] = {"Textbox": "hello", "Button": "hello", "Checkbox": True, "Slider": 1, "Number": 1}
    samples |= {"Dropdown": MODELS[0], "BrowserState": BATTLE_PLACE.format(0)}
    return samples.get(kind)
