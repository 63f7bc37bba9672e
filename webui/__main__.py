"""`python -m webui`: serve the pages."""

import argparse
import sys

from pydantic import ValidationError

from service_kit.logs import configure_logging
from service_kit.serving import serve, server_config
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

    configure_logging(("webui", "service_kit", "uvicorn"))
    switch_telemetry_off()
    from webui.app import create_app

    serve(
        server_config(
            create_app(settings),
            host=settings.webui_host,
            port=settings.webui_port,
            drain_s=3,
            trusted_proxies=settings.webui_trusted_proxies,
        )
    )


if __name__ == "__main__":
    main()
