"""Which libraries of prompt attention are installed, and which of them serve a device."""

import importlib.util
import logging
from dataclasses import dataclass
from importlib import metadata

import torch

from engine.kernels.prompt_libraries.flash_attention import FlashAttention
from engine.kernels.prompt_libraries.flash_infer import FlashInfer
from engine.kernels.prompt_libraries.library import PromptLibrary

_log = logging.getLogger(__name__)

_LIBRARIES: tuple[type[FlashAttention] | type[FlashInfer], ...] = (FlashAttention, FlashInfer)


@dataclass(frozen=True, slots=True)
class FoundLibrary:
    """What is known of a library without importing it."""

    name: str
    version: str | None  #: None: it is not installed
    reason: str | None  #: why it cannot be used; None: it can be tried


def find_libraries(capability: tuple[int, int]) -> tuple[FoundLibrary, ...]:
    """All libraries that there are adapters for. capability: of the CUDA device."""
    return tuple(_find(kind, capability) for kind in _LIBRARIES)


def open_libraries(device: torch.device, capability: tuple[int, int]) -> tuple[PromptLibrary, ...]:
    """The libraries that can be tried on the device, imported. One that fails to be imported is left out, and the log
    says why."""
    opened: list[PromptLibrary] = []
    for kind in _LIBRARIES:
        found = _find(kind, capability)
        if found.version is not None and found.reason is not None:
            _log.info("prompts: %s %s is not used: %s", found.name, found.version, found.reason)
        elif found.reason is None:
            try:
                opened.append(kind(device))
            except Exception as error:  # a library built for another torch or CUDA fails in many ways
                _log.warning("prompts: %s %s cannot be imported: %s", found.name, found.version, error)
    return tuple(opened)


def _find(kind: type[FlashAttention] | type[FlashInfer], capability: tuple[int, int]) -> FoundLibrary:
    if importlib.util.find_spec(kind.module_name) is None:
        return FoundLibrary(kind.name, None, "not installed")
    try:
        version = metadata.version(kind.package_name)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    return FoundLibrary(kind.name, version, kind.why_not_on(capability))
