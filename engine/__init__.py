"""Agon's inference engine as a library: tokens in, tokens out. Importing this package loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.async_engine import AsyncEngine, RequestStream
    from engine.config import EngineConfig
    from engine.llm import LLM
    from engine.llm_beams import BeamSearchOutput, BeamSearchParams
    from engine.llm_outputs import (
        CompletionOutput,
        EmbeddingRequestOutput,
        Logprob,
        RequestOutput,
        ScoringRequestOutput,
    )
    from engine.request import RequestDelta, TokenLogprob
    from engine.sampling_params import BeamSearch, PoolingParams, SamplingParams
    from engine.stats import EngineStats

__all__ = [
    "LLM",
    "AsyncEngine",
    "BeamSearch",
    "BeamSearchOutput",
    "BeamSearchParams",
    "CompletionOutput",
    "EmbeddingRequestOutput",
    "EngineConfig",
    "EngineStats",
    "Logprob",
    "PoolingParams",
    "RequestDelta",
    "RequestOutput",
    "RequestStream",
    "SamplingParams",
    "ScoringRequestOutput",
    "TokenLogprob",
]

_HOME = {
    "LLM": "engine.llm",
    "AsyncEngine": "engine.async_engine",
    "BeamSearch": "engine.sampling_params",
    "BeamSearchOutput": "engine.llm_beams",
    "BeamSearchParams": "engine.llm_beams",
    "CompletionOutput": "engine.llm_outputs",
    "EmbeddingRequestOutput": "engine.llm_outputs",
    "EngineConfig": "engine.config",
    "EngineStats": "engine.stats",
    "Logprob": "engine.llm_outputs",
    "PoolingParams": "engine.sampling_params",
    "RequestDelta": "engine.request",
    "RequestOutput": "engine.llm_outputs",
    "RequestStream": "engine.async_engine",
    "SamplingParams": "engine.sampling_params",
    "ScoringRequestOutput": "engine.llm_outputs",
    "TokenLogprob": "engine.request",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use (PEP 562): `import engine.config` must stay cheap."""
    if name not in _HOME:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
