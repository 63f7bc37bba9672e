"""Attention of prompts by libraries that may be installed beside torch: one adapter per library. They know pages and
page tables, and neither models nor runners; engine/runner/device/prompt_attention.py decides whether one is used."""

from engine.kernels.prompt_libraries.find import FoundLibrary, find_libraries, open_libraries
from engine.kernels.prompt_libraries.library import (
    AttendPrompts,
    PromptCase,
    PromptKernel,
    PromptLibrary,
    PromptRows,
)

__all__ = [
    "AttendPrompts",
    "FoundLibrary",
    "PromptCase",
    "PromptKernel",
    "PromptLibrary",
    "PromptRows",
    "find_libraries",
    "open_libraries",
]
