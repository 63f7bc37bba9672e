"""What a route tells about itself, and the OpenAPI 3.1 document made of it.

Each route function carries one declaration (`@documented(...)` below the router's decorator): request, answer, errors
and an example. /openapi.json, /docs and docs/api.md all come from these declarations. No schema is made before the
document is asked for, so that declarations do not slow down the start of a service.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as distribution_version
from typing import Any, Literal, TypeVar

from fastapi import APIRouter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from service_kit.errors import ERROR_BODIES, ErrorShape
from wire.errors import MEANINGS, STATUS, ErrorCode

JSON = "application/json"
EVENTS = "text/event-stream"
NDJSON = "application/x-ndjson"

Access = Literal["open", "user", "worker", "admin"]
JsonObject = dict[str, Any]  #: a part of an OpenAPI document
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_BODY_ERRORS = (
    ErrorCode.INVALID_JSON,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_PARAMETER,
    ErrorCode.REQUEST_TOO_LARGE,
)
_REF = "#/components/schemas/{model}"


@dataclass(frozen=True)
class Answer:
    """The answer of a route that succeeds: a JSON value, a stream of events, lines of JSON, text, or nothing.

    A route that answers in two ways, such as a completion with and without `stream`, has both `json` and `events`.
    """

    json: Any = None  #: type of the JSON body, anything that pydantic has a schema for
    events: Mapping[str, Any] = field(default_factory=dict)  #: SSE event name to the type of its data
    lines: Any = None  #: type of each line of newline-delimited JSON
    text: str | None = None  #: media type of a body that is text
    status: int = 200
    others: Mapping[int, str] = field(default_factory=dict)  #: further statuses with the same body, and their meaning
    note: str = ""


@dataclass(frozen=True)
class RouteDoc:
    """The declaration of one route, made by `documented` and read by `openapi_document`."""

    tag: str
    summary: str
    answer: Answer
    errors: tuple[ErrorCode, ...]
    request: Any
    request_lines: Any
    example: Any
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    error_shape: ErrorShape

    @property
    def body_type(self) -> Any:
        """The type of the request's JSON body or of its lines; None where the route takes no body."""
        return self.request if self.request is not None else self.request_lines


def documented(
    tag: str,
    summary: str,
    *,
    answer: Any,
    errors: tuple[ErrorCode, ...],
    request: type[BaseModel] | None = None,
    request_lines: Any = None,
    example: Any = None,
    parameters: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    error_shape: ErrorShape = "openai",
) -> Callable[[Endpoint], Endpoint]:
    """Attach the declaration to a route function and return that function.

    `answer` is an Answer or the type of a JSON body. `errors` are the codes that this route raises by itself: those of
    its access, of an invalid body and of invalid query parameters follow from the route. `request` is the model of a
    JSON body, `request_lines` that of each line of newline-delimited JSON; `example` is a body that the route accepts.
    `parameters` describes path and query parameters, `headers` request headers that the function reads itself;
    `error_shape` is the shape of the errors' bodies. The function's docstring is the description.
    """
    doc = RouteDoc(
        tag=tag,
        summary=summary,
        answer=answer if isinstance(answer, Answer) else Answer(json=answer),
        errors=errors,
        request=request,
        request_lines=request_lines,
        example=example,
        parameters=parameters or {},
        headers=headers or {},
        error_shape=error_shape,
    )

    def attach(endpoint: Endpoint) -> Endpoint:
        endpoint.__dict__["route_doc"] = doc
        endpoint.__dict__["error_shape"] = error_shape
        return endpoint

    return attach


def route_doc(route: APIRoute) -> RouteDoc:
    """The declaration of a route. Raises LookupError where the function has none."""
    doc = getattr(route.endpoint, "route_doc", None)
    if not isinstance(doc, RouteDoc):
        raise LookupError(f"{route.methods} {route.path} has no @documented declaration")
    return doc


@dataclass(frozen=True)
class ServiceDoc:
    """What the document says of a service as a whole. Each service has one, beside its routes."""

    title: str
    about: str
    server: str  #: base URL of a default start, or the path prefix of the public address
    access: Mapping[Access, str]  #: which credential each kind of access needs, in words


def openapi_document(service: ServiceDoc, routers: Iterable[tuple[Access, APIRouter]]) -> JsonObject:
    """The OpenAPI 3.1 document of the routes of `routers`, each router with the access that it requires.

    Raises LookupError where a route has no declaration.
    """
    title, version = service.title, distribution_version("agon")
    routes = [(kind, route) for kind, router in routers for route in router.routes if isinstance(route, APIRoute)]
    schemas = _Schemas([route_doc(route) for _, route in routes])
    paths: dict[str, JsonObject] = {}
    for kind, route in routes:
        # Parameters and their bounds are in the function's signature, which FastAPI has read already.
        plain = get_openapi(title=title, version=version, routes=[route])["paths"]
        for path, operations in plain.items():
            for method, operation in operations.items():
                paths.setdefault(path, {})[method] = _operation(kind, route, operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "description": service.about},
        "servers": [{"url": service.server}],
        "x-access": dict(service.access),
        "tags": [{"name": tag} for tag in dict.fromkeys(route_doc(route).tag for _, route in routes)],
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    """JSON schemas of every type that the routes name; equal models are defined once, under `components`."""

    def __init__(self, docs: Iterable[RouteDoc]) -> None:
        shapes = dict.fromkeys(["openai", *(doc.error_shape for doc in docs)])
        wanted: list[tuple[Any, JsonSchemaMode]] = [(ERROR_BODIES[shape], "serialization") for shape in shapes]
        for doc in docs:
            if doc.body_type is not None:
                wanted.append((doc.body_type, "validation"))
            answer = doc.answer
            wanted += [(kind, "serialization") for kind in (answer.json, answer.lines, *answer.events.values()) if kind]
        inputs = [(repr(kind), mode, TypeAdapter(kind)) for kind, mode in dict.fromkeys(wanted)]
        self._by_type, rest = TypeAdapter.json_schemas(inputs, ref_template=_REF)
        self.definitions: JsonObject = rest.get("$defs", {})

    def of(self, kind: Any, mode: JsonSchemaMode) -> JsonObject:
        """The schema of `kind`: a reference for models."""
        return dict(self._by_type[repr(kind), mode])


def _operation(kind: Access, route: APIRoute, plain: JsonObject, schemas: _Schemas) -> JsonObject:
    doc = route_doc(route)
    parameters = [_parameter(parameter, doc) for parameter in plain.get("parameters", ())]
    operation: JsonObject = {
        "tags": [doc.tag],
        "summary": doc.summary,
        "operationId": plain["operationId"],
        "x-access": kind,
    }
    if route.description:
        operation["description"] = " ".join(route.description.split())
    if kind != "open":  # a user needs no credential where the service has no keys
        operation["security"] = [{"bearer": []}] if kind != "user" else [{}, {"bearer": []}]
    headers = [
        {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": text}
        for name, text in doc.headers.items()
    ]
    if parameters or headers:
        operation["parameters"] = parameters + headers
    if doc.body_type is not None:
        operation["requestBody"] = _request_body(doc, schemas)
    has_query = any(parameter["in"] == "query" for parameter in parameters)
    errors = declared_errors(kind, doc, has_query)
    operation["responses"] = {**_answers(doc.answer, schemas), **_errors(errors, doc.error_shape, schemas)}
    return operation


def declared_errors(kind: Access, doc: RouteDoc, has_query: bool) -> list[ErrorCode]:
    """All codes of a route, its own and those that follow from access, body and query, in the order of their status."""
    codes = {*doc.errors, ErrorCode.INTERNAL_ERROR}
    if kind != "open":
        codes |= {ErrorCode.UNAUTHORIZED, ErrorCode.FORBIDDEN, ErrorCode.RATE_LIMITED}
    if doc.request is not None:
        codes.update(_BODY_ERRORS)
    if doc.request_lines is not None:
        codes |= {ErrorCode.INVALID_REQUEST, ErrorCode.REQUEST_TOO_LARGE}
    if has_query:
        codes.add(ErrorCode.INVALID_REQUEST)
    return sorted(codes, key=lambda code: (STATUS[code], list(ErrorCode).index(code)))


def _parameter(parameter: JsonObject, doc: RouteDoc) -> JsonObject:
    described = {**parameter, "schema": {key: value for key, value in parameter["schema"].items() if key != "title"}}
    text = doc.parameters.get(parameter["name"])
    return {**described, "description": text} if text else described


def _request_body(doc: RouteDoc, schemas: _Schemas) -> JsonObject:
    media_type = JSON if doc.request is not None else NDJSON
    content: JsonObject = {"schema": schemas.of(doc.body_type, "validation")}
    if doc.example is not None:
        content["example"] = doc.example
    return {"required": True, "content": {media_type: content}}


def _answers(answer: Answer, schemas: _Schemas) -> JsonObject:
    content: JsonObject = {}
    if answer.json is not None:
        content[JSON] = {"schema": schemas.of(answer.json, "serialization")}
    if answer.lines is not None:
        content[NDJSON] = {"schema": schemas.of(answer.lines, "serialization")}
    if answer.events:
        events = {name: schemas.of(kind, "serialization") for name, kind in answer.events.items()}
        content[EVENTS] = {"schema": {"type": "string", "x-events": events}}
    if answer.text is not None:
        content[answer.text] = {"schema": {"type": "string"}}
    responses = {}
    for status, meaning in {answer.status: answer.note or "Success.", **answer.others}.items():
        responses[str(status)] = {"description": meaning, **({"content": content} if content else {})}
    return responses


def _errors(codes: Iterable[ErrorCode], shape: ErrorShape, schemas: _Schemas) -> JsonObject:
    by_status: dict[int, list[ErrorCode]] = defaultdict(list)
    for code in codes:
        by_status[STATUS[code]].append(code)
    body = schemas.of(ERROR_BODIES[shape], "serialization")
    responses: JsonObject = {}
    for status, found in by_status.items():
        values = [code.value for code in found]
        which = {"properties": {"error": {"properties": {"code": {"enum": values}}}}}
        response: JsonObject = {
            "description": " ".join(f"`{code.value}`: {MEANINGS[code]}" for code in found),
            "content": {JSON: {"schema": {"allOf": [body, which]}}},
            "x-codes": values,
        }
        if status in (429, 503):
            retry = {"description": "Seconds to wait before the next try.", "schema": {"type": "integer"}}
            response["headers"] = {"Retry-After": retry}
        responses[str(status)] = response
    return responses
