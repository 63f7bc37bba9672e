"""/openapi.json and /docs of a service, behind its switch.

The page is plain HTML made here: no script and nothing from another host, so that it works without internet and tells
no third party that it was opened.
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response

from service_kit.route_docs import Access, Answer, ServiceDoc, documented, openapi_document
from service_kit.schema_text import bounds_text, fields, type_text
from wire.errors import ErrorCode

_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code,pre{font-family:ui-monospace,monospace;font-size:.9em}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;vertical-align:top;border-bottom:1px solid #ccc;padding:.2rem .6rem .2rem 0}"
    "h2{margin-top:2.5rem;border-bottom:2px solid #999}:root{color-scheme:light dark}"
)


def add_api_docs(
    app: FastAPI, service: ServiceDoc, routers: Sequence[tuple[Access, APIRouter]], *, is_served: bool
) -> None:
    """Make `app.openapi` the document of `routers`; with `is_served` add /openapi.json and /docs, which need no
    credential, because they contain only what the source code does."""
    router = APIRouter()

    @router.get("/openapi.json")
    @documented("Documentation", "This document", answer=dict[str, Any], errors=(ErrorCode.NOT_FOUND,))
    async def openapi_json() -> Response:
        """OpenAPI 3.1. Only with `AGON_API_DOCS=true`; `agon up` sets it where it listens on loopback."""
        return JSONResponse(app.openapi())

    @router.get("/docs")
    @documented(
        "Documentation", "This document as a page", answer=Answer(text="text/html"), errors=(ErrorCode.NOT_FOUND,)
    )
    async def docs() -> Response:
        """Plain HTML without scripts. Behind the same switch as /openapi.json."""
        return HTMLResponse(page(app.openapi()), headers=_HEADERS)

    make = functools.cache(lambda: openapi_document(service, (*routers, ("open", router))))
    app.openapi = make  # type: ignore[method-assign]  # FastAPI's way to replace its own document
    if is_served:
        app.include_router(router)


def page(document: Mapping[str, Any]) -> str:
    """The document as one HTML page."""
    info = document["info"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>",
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>",
        f"<p>Paths follow <code>{escape(document['servers'][0]['url'])}</code>.</p>",
        "<table><tr><th>access<th>credential",
        *(f"<tr><td>{escape(kind)}<td>{escape(text)}" for kind, text in document["x-access"].items()),
        "</table>",
    ]
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2>")
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if tag["name"] in operation["tags"]:
                    parts += _operation(path, method, operation)
    parts.append("<h2>Models</h2>")
    for name, schema in document["components"]["schemas"].items():
        parts.append(f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{_marked(schema.get("description", ""))}</p>')
        parts += _fields(schema)
    return "\n".join(parts)


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
    yield f"<p><b>{escape(operation['summary'])}.</b> {_marked(operation.get('description', ''))}</p>"
    yield f"<p>Access: {escape(operation['x-access'])}</p>"
    if operation.get("parameters"):
        yield "<table><tr><th>parameter<th>in<th>type<th>bounds<th>meaning"
        for parameter in operation["parameters"]:
            schema = parameter["schema"]
            cells = (
                *(parameter["name"], parameter["in"], type_text(schema), bounds_text(schema)),
                parameter.get("description", ""),
            )
            yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells)
        yield "</table>"
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: <code>{escape(media_type)}</code>, {_linked(content['schema'])}</p>"
    yield "<table><tr><th>status<th>answer"
    for status, response in operation["responses"].items():
        kinds = ", ".join(
            f"<code>{escape(media_type)}</code> {_linked(content['schema'])}"
            for media_type, content in response.get("content", {}).items()
        )
        yield f"<tr><td>{status}<td>{_marked(response['description'])} {kinds if int(status) < 400 else ''}"
    yield "</table>"


def _marked(text: str) -> str:
    """Escaped, with the words between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _linked(schema: Mapping[str, Any]) -> str:
    if "x-events" in schema:
        return "; ".join(f"event {escape(name)}: {_linked(data)}" for name, data in schema["x-events"].items())
    target = schema.get("$ref") or schema.get("items", {}).get("$ref")
    text = escape(type_text(schema))
    return f'<a href="#{escape(target.rpartition("/")[2])}">{text}</a>' if target else text


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    rows = fields(schema)
    if rows:
        yield "<table><tr><th>field<th>type<th>default<th>bounds<th>meaning"
        for row in rows:
            cells = (row.name, row.type, row.default or "required", row.bounds, row.meaning)
            yield "<tr>" + "".join(f"<td>{escape(cell)}" for cell in cells)
        yield "</table>"
