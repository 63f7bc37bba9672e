"""What a model computes, as text: its objects and closures with all their values, and the shapes of its weights."""

import enum
import re
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from engine.models.config_reader import ConfigReader

_PLAIN = (int, float, str, bytes, bool, type(None), torch.dtype, torch.device, enum.Enum, range, re.Pattern, type)


def describe(model: object) -> str:
    """Equal for two models that compute the same of the same weights, built from two configs; the weights have shapes
    alone."""
    return _describe(model, {})


def _describe(value: Any, seen: dict[int, tuple[int, object]]) -> str:
    def inner(each: object) -> str:
        return _describe(each, seen)

    if isinstance(value, (*_PLAIN, BuiltinFunctionType)):
        return repr(value)
    if isinstance(value, ModuleType | ConfigReader):
        return type(value).__name__
    if isinstance(value, torch.Tensor):
        content = "" if value.is_meta else str(value.flatten()[:4096].tolist())
        return f"tensor {tuple(value.shape)} {value.dtype} {content}"
    if id(value) in seen:
        return f"#{seen[id(value)][0]}"
    seen[id(value)] = len(seen), value  # kept alive, so that no other object gets its id
    match value:
        case dict():
            parts = [f"{inner(key)}: {inner(each)}" for key, each in value.items()]
        case list() | tuple():
            parts = [inner(each) for each in value]
        case set() | frozenset():
            parts = sorted(map(inner, value))
        case partial():
            parts = [inner(value.func), inner(value.args), inner(value.keywords)]
        case MethodType():
            parts = [value.__func__.__qualname__, inner(value.__self__)]
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            parts = [value.__qualname__, inner(cells), inner(value.__defaults__), inner(value.__kwdefaults__)]
        case _:
            slots = [getattr(each, "__slots__", ()) for each in type(value).__mro__]
            names = [name for each in slots for name in ((each,) if isinstance(each, str) else each)]
            names += getattr(value, "__dict__", {})
            parts = [f"{name}={inner(getattr(value, name))}" for name in names if hasattr(value, name)]
    return f"{type(value).__qualname__}({', '.join(parts)})"
