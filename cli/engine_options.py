"""Options of commands that load an engine: bounds and help come from the fields of EngineConfig."""

from typing import Any

import typer

from engine.config import EngineConfig
from engine.settings import setting_field


def engine_option(field: str, *flags: str, note: str = "") -> Any:
    """The typer option for a field of EngineConfig. note: what only this command does with it.

    The option's type is the parameter's annotation, so the choices of a `Literal` are those of EngineConfig.
    """
    setting = setting_field(EngineConfig, field).setting
    text = f"{setting.description}. {note}" if note else setting.description
    return typer.Option(*flags, min=setting.minimum, help=f"{text}.")
