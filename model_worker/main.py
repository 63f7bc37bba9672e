"""`python -m model_worker`: flags to settings, failures to one clear line and an exit code."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import SettingsError
from uvicorn.loops.auto import auto_loop_factory

from model_worker.advertised import check_advertised
from model_worker.config import ENGINE_FIELDS, WorkerSettings, flag_of
from model_worker.engines import bound_spinning, follow_if_told_to, take_place
from model_worker.errors import BadSettings, StartError
from model_worker.logs import LOGGED
from model_worker.server import listen, run
from service_kit.extras import missing_extra
from service_kit.logs import configure_logging
from service_kit.telemetry import switch_telemetry_off

#: How long the event loop may keep the interpreter while the engine's thread waits for it, in each step. With Python's
#: default, 5 ms, steps take several times as long beside many streams (`python -m benchmarks.steps`).
SWITCH_INTERVAL_S = 0.0001


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal. Returns the exit code: 0 drained, 2 bad settings, 3 bad checkpoint, 4 dead engine,
    5 port taken, 6 the model cannot be loaded now."""
    configure_logging(LOGGED)
    switch_telemetry_off()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    try:
        settings = read_settings(arguments)
        bound_spinning(settings)
        take_place(settings)
        if follow_if_told_to(settings):
            return 0
        check_advertised(settings)
        with listen(settings) as listener, asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            runner.run(run(settings, listener))
    except StartError as error:
        print(f"model_worker: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        print(f"model_worker: {missing_extra(error, 'worker')}.", file=sys.stderr)
        return BadSettings.exit_code
    return 0


def read_settings(arguments: Sequence[str] | None = None) -> WorkerSettings:
    """Settings from flags and environment; a flag wins. Raises BadSettings with one sentence."""
    given = {name: value for name, value in vars(build_parser().parse_args(arguments)).items() if value is not None}
    try:
        settings = WorkerSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(str(part) for part in first["loc"][:1])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise BadSettings(f"{_name_for_people(name)}: {message}" if name else message) from None
    except SettingsError as error:
        raise BadSettings(str(error)) from None
    return settings


def _name_for_people(field: str) -> str:
    variable = f"AGON_{field.upper()}"
    flag = flag_of(field) if field in WorkerSettings.model_fields else None
    return variable if flag is None else f"{flag} ({variable})"


def build_parser() -> argparse.ArgumentParser:
    """One flag for each setting that is no secret, in two groups. A flag that is not given stays None."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="model_worker",
        description="Serve models: an OpenAI-compatible server, and with --controller a worker of an arena.",
        epilog="Every setting can also be given as an environment variable: AGON_ and its name. Secrets only so, or by "
        "file: AGON_WORKER_TOKEN(_FILE), AGON_API_KEYS(_FILE). docs/settings.md lists all.",
    )
    of_engine = {entry.name for entry in ENGINE_FIELDS}
    server, engine = parser.add_argument_group("server"), parser.add_argument_group("engine")
    for name, field in WorkerSettings.model_fields.items():
        flag = flag_of(name)
        if flag is not None:
            group = engine if name in of_engine else server
            group.add_argument(flag, dest=name, help=_help_text(field), **_options(flag, field))
    return parser


def _help_text(field: FieldInfo) -> str:
    text = (field.description or "").replace("%", "%%")
    if field.default in (PydanticUndefined, None, ()) or field.default is False:
        return text
    default = "on" if field.default is True else field.default
    return f"{text} (default: {default:g})" if isinstance(default, float) else f"{text} (default: {default})"


def _options(flag: str, field: FieldInfo) -> dict[str, Any]:
    """How argparse reads a field's flag. Bounds are checked by the settings, with the flag's name in the message."""
    kinds = set(get_args(field.annotation)) - {NoneType} or {field.annotation}
    if get_origin(field.annotation) is Literal:
        return {"choices": get_args(field.annotation)}
    if get_origin(field.annotation) is tuple:
        return {"action": "append", "metavar": flag.rpartition("-")[2].upper()}
    if kinds == {bool}:
        return {"action": argparse.BooleanOptionalAction}
    number = next((kind for kind in (int, float) if kinds == {kind}), None)
    return {"metavar": flag.rpartition("-")[2].upper()} if number is None else {"metavar": "N", "type": number}
