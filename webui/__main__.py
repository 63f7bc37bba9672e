"""`python -m webui`: serve the pages."""

import argparse
import logging
import sys

import uvicorn
from pydantic import ValidationError
from starlette.types import ASGIApp

from service_kit.extras import needing_extra
from service_kit.listening import listen
from service_kit.logs import configure_logging, log_event
from service_kit.serving import serve, server_config
from service_kit.settings import problems
from service_kit.telemetry import switch_telemetry_off
from webui.believed_proxies import BelievedProxies
from webui.config import Settings

_DRAIN_S = 3


def main(arguments: list[str] | None = None) -> None:
    """Read flags and variables, then serve until a signal; exits with 2 if a setting cannot be used, 1 if the port
    is taken."""
    parser = argparse.ArgumentParser(prog="python -m webui", description=__doc__)
    parser.add_argument("--host", help="address to listen on (AGON_WEBUI_HOST)")
    parser.add_argument("--port", type=int, help="port to listen on (AGON_WEBUI_PORT)")
    parser.add_argument(
        "--controller", metavar="URLS", help="controllers, with commas between them (AGON_CONTROLLER_URL)"
    )
    given = parser.parse_args(arguments)
    overrides = {"webui_host": given.host, "webui_port": given.port, "controller_url": given.controller}
    try:
        settings = Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        for sentence in problems(error):
            print(f"webui: {sentence}", file=sys.stderr)
        raise SystemExit(2) from None

    configure_logging(("webui", "service_kit", "uvicorn"))
    switch_telemetry_off()
    if not settings.proxy_token.get_secret_value():
        hint = (
            "visitors get no cookies, and controllers may take all of them for one; set AGON_PROXY_TOKEN here and there"
        )
        log_event(logging.getLogger("webui"), "no_proxy_token", logging.WARNING, hint=hint)
    with needing_extra("webui", "webui"):
        from webui.app import UnusableRootPath, create_app
        from webui.quiet_blocks import import_what_events_need

    try:
        listener = listen(settings.webui_host, settings.webui_port)
    except OSError as error:
        where = f"{settings.webui_host}:{settings.webui_port}"
        print(f"webui: cannot listen on {where}: {error.strerror}.", file=sys.stderr)
        raise SystemExit(1) from None
    try:
        app = create_app(settings)
    except UnusableRootPath as error:
        print(f"webui: AGON_WEBUI_ROOT_PATH: {error}.", file=sys.stderr)
        raise SystemExit(2) from None
    import_what_events_need()
    serve(server_config_of(app, settings), listener)


def server_config_of(app: ASGIApp, settings: Settings) -> uvicorn.Config:
    """How the app is served."""
    app = BelievedProxies(app, settings.webui_trusted_proxies)
    return server_config(app, drain_s=_DRAIN_S, tls_pair=settings.tls_pair)


if __name__ == "__main__":
    main()
