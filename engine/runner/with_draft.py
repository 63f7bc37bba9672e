"""Loads a model together with a smaller one that proposes its tokens: one pool, in which the model has the pages that
it has without the other one."""

from dataclasses import dataclass, replace

from engine.config import EngineConfig
from engine.drafts.support import why_no_drafts, why_not_the_same
from engine.errors import CheckpointError
from engine.kernels.cpu.scratch import Scratch
from engine.loader import find_model_folder, read_config
from engine.memory.admission import AdmissionRule
from engine.memory.planning.planner import pool_bytes_for, pool_of
from engine.memory.planning.together import fit_beside
from engine.memory.spec import LayerSpec, PoolPlan
from engine.runner.build import Builder, build_runner
from engine.runner.load import LoadedModel, ReadModel, read_model
from engine.runner.pool import GivenPool, layers_of, share_of_free_memory, zeroed_pool


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A model and the smaller one, each with a runner over its part of the pool."""

    target: LoadedModel
    draft: LoadedModel


def load_with_draft(config: EngineConfig, build: Builder = build_runner) -> LoadedPair:
    """Load config.model and config.draft. Raises CheckpointError where the two do not suit one another, and what
    load_runner raises."""
    assert config.draft is not None
    if config.tensor_parallel > 1:
        raise CheckpointError("a draft model is for one process; with tensor_parallel use draft ngram")
    _refuse_heads(config.draft)
    # The smaller one first: the number of threads that torch is left with is that of the model.
    draft = read_model(
        replace(config, model=config.draft, draft=None, max_model_len=None, kv_budget=None, swap_bytes=0)
    )
    target = read_model(config)
    _check_tokenizers(config, target, draft)
    limits = replace(
        draft.parts.limits, max_model_len=min(draft.parts.limits.max_model_len, target.parts.limits.max_model_len)
    )
    draft = replace(draft, parts=replace(draft.parts, limits=limits, config=replace(draft.parts.config, overlap=False)))
    of_target, of_draft = _plans(target, draft)
    memory, scratch = zeroed_pool(of_target.pool_bytes, target.parts.device), Scratch()
    for name, part in ((config.model, of_target), (config.draft, of_draft)):
        reason = why_no_drafts(part)
        if reason is not None:
            raise CheckpointError(f"draft {config.draft} cannot be used with {name}: {reason}")
    return LoadedPair(
        target.with_runner(build(replace(target.parts, pool=GivenPool(of_target, memory, scratch)))),
        draft.with_runner(build(replace(draft.parts, pool=GivenPool(of_draft, memory, scratch)))),
    )


def _refuse_heads(draft: str) -> None:
    """Raise CheckpointError for heads that are no model of their own."""
    names = read_config(find_model_folder(draft)).get("architectures") or []
    for name in map(str, names):
        for kind in ("Eagle", "Medusa"):
            if kind.lower() in name.lower():
                raise CheckpointError(
                    f"draft {draft} is {name}: {kind} heads, which read the hidden states of their model, are not "
                    "supported; use ngram or a smaller model with the same tokenizer"
                )


def _plans(target: ReadModel, draft: ReadModel) -> tuple[PoolPlan, PoolPlan]:
    """One pool as each of the two sees it. Raises CheckpointError where it is too small, or where no large page holds a
    layer of both."""
    parts = target.parts
    config, step = parts.config, parts.config.step_limits
    designs = fit_beside(_layers(target), _layers(draft), page_tokens=config.page_tokens)
    if designs is None:
        raise CheckpointError(
            f"draft {config.draft} cannot be used: no large page holds a layer of it and of the model"
        )
    pool_bytes = config.kv_cache_bytes
    if pool_bytes is None:
        enough = sum(
            pool_bytes_for(
                design.types,
                num_tokens=parts.limits.max_model_len,
                num_sequences=step.max_running,
                max_step_tokens=step.max_batched_tokens,
            )
            for design in designs
        )
        pool_bytes = min(enough, share_of_free_memory(parts.device))
    for design in designs:
        if not AdmissionRule(pool_of(design, pool_bytes), step.max_batched_tokens).fits_ever([1]):
            raise CheckpointError(f"a page pool of {pool_bytes} bytes is too small for the model and its draft")
    of_target, of_draft = (pool_of(design, pool_bytes) for design in designs)
    return of_target, of_draft


def _layers(read: ReadModel) -> list[LayerSpec]:
    parts = read.parts
    return layers_of(parts.config, parts.model, parts.limits, parts.kv_dtype)


def _check_tokenizers(config: EngineConfig, target: ReadModel, draft: ReadModel) -> None:
    """Raise CheckpointError unless every token of the smaller model is the same in the other one."""
    num_tokens = min(target.parts.limits.vocab_size, draft.parts.limits.vocab_size)
    reason = why_not_the_same(target.tokenizer, draft.tokenizer, num_tokens)
    if reason is not None:
        raise CheckpointError(f"draft {config.draft} has another tokenizer than {config.model}: {reason}")
