"""How long requests take, by route: until the head of the answer, because the bodies of streams last as long as answers
of models do."""

import time

from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class RouteTimes:
    """ASGI middleware around the router. `times` has the labels method, route (its pattern, such as
    /arena/battles/{battle_id}) and status (2xx ... 5xx)."""

    def __init__(self, app: ASGIApp, times: Histogram) -> None:
        self._app = app
        self._times = times

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and measure it. Requests that no route takes are not counted."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start" and (route := getattr(scope.get("route"), "path", None)):
                status = f"{message['status'] // 100}xx"
                self._times.labels(scope["method"], route, status).observe(time.monotonic() - started)
            await send(message)

        await self._app(scope, receive, measured)
