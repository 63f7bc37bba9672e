"""Fields of a dataclass as settings: description and bounds stand in the field's annotation.

The engine checks values by them; services derive flags, variables, help texts and docs/settings.md from them. Knows no
setting by name.
"""

import dataclasses
import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from engine.errors import InvalidRequest

_PLAIN_WORDS = {int: "an integer", float: "a number", bool: "true or false", str: "a text", type(None): "None"}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field means and which values it takes: `tokens: Annotated[int, Setting("Tokens of a page", minimum=1)]`.

    The choices of a `Literal` field and the default stay in the dataclass. None is always within the bounds.
    """

    description: str  #: for help texts and docs/settings.md; without a final full stop
    minimum: float | None = None  #: smallest value
    above: float | None = None  #: every value is larger
    maximum: float | None = None  #: largest value
    name: str | None = None  #: in flags and variables; None: the field's name


@dataclass(frozen=True, slots=True)
class SettingField:
    """One field of a dataclass with all that a service needs to offer it."""

    field: str
    type: Any  #: the annotation without its Setting
    default: Any  #: dataclasses.MISSING where a value must be given
    setting: Setting

    @property
    def name(self) -> str:
        """The name in flags and variables."""
        return self.setting.name or self.field

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a `Literal` field, else nothing."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


@cache
def setting_fields(kind: type) -> tuple[SettingField, ...]:
    """The described fields of a dataclass, in their order. Raises TypeError for a field without a Setting."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        notes = [note for note in get_args(hint)[1:] if isinstance(note, Setting)]
        if get_origin(hint) is not Annotated or len(notes) != 1:
            raise TypeError(f"{kind.__name__}.{field.name} needs one Setting in its annotation")
        found.append(SettingField(field.name, get_args(hint)[0], field.default, notes[0]))
    return tuple(found)


def setting_field(kind: type, name: str) -> SettingField:
    """The described field of that name. Raises StopIteration where there is none."""
    return next(entry for entry in setting_fields(kind) if entry.field == name)


def check_settings(values: object) -> None:
    """Raise ValueError with one sentence for the first field whose value is not allowed."""
    kind: type = type(values)
    try:
        check_plain_types(values)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None
    for entry in setting_fields(kind):
        reason = _why_refused(entry, getattr(values, entry.field))
        if reason is not None:
            raise ValueError(f"{entry.field} must {reason}, got {getattr(values, entry.field)!r}")


def check_plain_types(values: object) -> None:
    """Raise InvalidRequest for the first field that should be a number, a truth value or a text, and is not."""
    kind: type = type(values)
    for name, allowed, words in _plain_fields(kind):
        value = getattr(values, name)
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            raise InvalidRequest(f"{name} must be {words}, got {type(value).__name__}", param=name)


@cache
def _plain_fields(kind: type) -> tuple[tuple[str, tuple[type, ...], str], ...]:
    """Name, types and names of the types of each field that holds plain values only."""
    found = []
    for name, hint in get_type_hints(kind).items():
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if all(option in _PLAIN_WORDS for option in options):
            allowed = {int, *options} if float in options else set(options)
            found.append((name, tuple(allowed), " or ".join(_PLAIN_WORDS[option] for option in options)))
    return tuple(found)


def _why_refused(entry: SettingField, value: Any) -> str | None:
    """The rule that the value breaks; None where it is allowed."""
    setting, choices = entry.setting, entry.choices
    if choices:
        return None if value in choices else f"be {', '.join(choices[:-1])} or {choices[-1]}"
    if value is None:
        return None
    is_allowed = (
        (setting.minimum is None or value >= setting.minimum)
        and (setting.above is None or value > setting.above)
        and (setting.maximum is None or value <= setting.maximum)
    )
    if is_allowed:
        return None
    bounds = {"at least": setting.minimum, "above": setting.above, "at most": setting.maximum}
    return "be " + " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None)
