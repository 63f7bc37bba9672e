"""`python -m controller`: one controller process until SIGTERM or SIGINT."""

import argparse
import functools
import os
import signal
import sys

from pydantic import ValidationError

# Read when numpy is loaded. Boards are small matrices: on busy cores threads of OpenBLAS wait for one another, and a
# fit of 60 models took 0.18 s instead of 0.05 s. And a fork, by which uvloop starts the fit process, stops those
# threads: a fit was found that had waited 17 minutes for one that was gone, and every board behind it waited, too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from service_kit.extras import needing_extra
from service_kit.listening import listen
from service_kit.logs import configure_logging
from service_kit.serving import serve, server_config
from service_kit.settings import problems
from service_kit.shedding import Shedding

with needing_extra("controller", "controller"):
    from controller.app import create_app, is_new_work
    from controller.config import Settings
    from controller.errors import ConfigurationError, JournalDamaged

#: How long a thread that computes may keep the interpreter while the event loop waits for it, several times in each
#: request. Python's default is 5 ms; votes are decoded and boards fitted in threads.
SWITCH_INTERVAL_S = 0.0005


def main(arguments: list[str] | None = None) -> int:
    """Serve until a signal. Returns the exit code: 0, or 2 for settings that cannot work and for a store of a newer
    release."""
    parser = argparse.ArgumentParser(prog="python -m controller", description="The controller of an Agon arena.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8100)
    options = parser.parse_args(arguments)
    try:
        settings = Settings()
        app = create_app(settings, host=options.host)
    except (ConfigurationError, JournalDamaged) as error:
        print(f"controller: {error}", file=sys.stderr)
        return 2
    except ValidationError as error:
        for sentence in problems(error):
            print(f"controller: {sentence}", file=sys.stderr)
        return 2
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    configure_logging(("controller", "service_kit", "uvicorn"), settings.log_level)
    # uvicorn shuts down gracefully and then raises the signal again. Ending on SIGTERM is not a failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0 if app.state.problem is None else 2))
    try:
        listener = listen(options.host, options.port)
    except OSError as error:
        print(f"controller: cannot listen on {options.host}:{options.port}: {error.strerror}.", file=sys.stderr)
        return 1
    # addresses.py decides which proxies are trusted.
    sheds = functools.partial(is_new_work, root_path=settings.root_path)
    config = server_config(Shedding(app, sheds), drain_s=settings.drain_s, tls_pair=settings.tls_pair)
    try:
        serve(config, listener, on_drained=app.state.end_streams)
    finally:
        if app.state.problem is not None:
            print(f"controller: {app.state.problem}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
