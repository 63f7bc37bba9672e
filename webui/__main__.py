"""`python -m webui`: serve the pages."""

import argparse
import logging
import sys
from typing import Any

import uvicorn
from pydantic import ValidationError

from service_kit.heads import BoundedHttp
from service_kit.logs import configure_logging, log_event
from service_kit.telemetry import switch_telemetry_off
from webui.config import Settings


def main(arguments: list[str] | None = None) -> None:
    """Read flags and variables, then serve until a signal; exits with 2 if a setting cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m webui", description=__doc__)
    parser.add_argument("--host", help="address to listen on (AGON_WEBUI_HOST)")
    parser.add_argument("--port", type=int, help="port to listen on (AGON_WEBUI_PORT)")
    parser.add_argument("--controller", metavar="URL", help="the controller's address (AGON_CONTROLLER_URL)")
    given = parser.parse_args(arguments)
    overrides = {"webui_host": given.host, "webui_port": given.port, "controller_url": given.controller}
    try:
        settings = Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as error:
        for problem in error.errors(include_url=False, include_input=False):
            print(f"webui: AGON_{str(problem['loc'][0]).upper()}: {problem['msg']}", file=sys.stderr)
        raise SystemExit(2) from None

    configure_logging(("webui", "uvicorn"))
    switch_telemetry_off()
    if not settings.proxy_token.get_secret_value():
        hint = "the controller takes all visitors for one; set AGON_PROXY_TOKEN here and there"
        log_event(logging.getLogger("webui"), "no_proxy_token", logging.WARNING, hint=hint)
    from webui.app import create_app

    uvicorn.run(create_app(settings), **server_options(settings))


def server_options(settings: Settings) -> dict[str, Any]:
    """uvicorn's options. Without trusted proxies it reads no X-Forwarded-For at all."""
    return {
        "host": settings.webui_host,
        "port": settings.webui_port,
        "log_config": None,
        "http": BoundedHttp,
        "access_log": False,  # the query of Gradio's stream holds the key of a session
        "proxy_headers": settings.webui_trusted_proxies != "",
        "forwarded_allow_ips": settings.webui_trusted_proxies,
        "timeout_graceful_shutdown": 3,
    }


if __name__ == "__main__":
    main()
