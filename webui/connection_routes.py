"""What a page asks to keep its connection: its event stream, and whether the server is there (assets/connection.js)."""

from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse

from webui.event_stream import EventStreams
from webui.limits import DATA, address_in
from webui.peers import ALIVE


def add_connection_routes(app: FastAPI, server: str, streams: EventStreams, keep: Callable[[str], None]) -> None:
    """Add the routes, before Gradio's app is mounted. `server`: the id of this process; a page of another one has lost
    its session. `keep` is told of each session whose page is open."""

    @app.get(ALIVE, include_in_schema=False)
    async def alive(session_hash: str = "") -> Response:
        keep(session_hash)
        return JSONResponse({"server": server}, headers={"Cache-Control": "no-store"})

    @app.get(DATA, include_in_schema=False)
    async def data(
        request: Request, session_hash: str, after: Annotated[int | None, Query(ge=0, lt=2**53)] = None
    ) -> Response:
        return streams.answer(session_hash, after, address_in(request.scope))
