"""Loads a model and composes an engine around it: core, tokenizer, grammar compiler."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import EngineConfig, ModelLimits
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.core import EngineCore
from engine.drafts.draft_model import DraftModel
from engine.drafts.ngram import NGRAM, NgramProposer
from engine.drafts.proposer import Proposer
from engine.drafts.support import why_no_drafts
from engine.errors import InvalidRequest
from engine.memory.kv_cache import KVCache
from engine.memory.large_pool import LargePool
from engine.memory.pool_share import PoolShare
from engine.scheduling.placement import Reclaim
from engine.text.sequence_text import Detokenizer, NoText

if TYPE_CHECKING:
    from engine.model_info import ModelInfo
    from engine.runner.load import LoadedModel
    from engine.text.tokenizer import Tokenizer


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedEngine:
    """An engine core with the tokenizer and the facts of its model; made by load_engine."""

    core: EngineCore
    tokenizer: "Tokenizer | None"  #: None only for random weights without a tokenizer.json
    info: "ModelInfo"
    #: Whether all processes of the model still run; for any thread.
    is_alive: Callable[[], bool] = lambda: True

    @property
    def text_tokenizer(self) -> "Tokenizer":
        """The tokenizer. Raises InvalidRequest where the model has none."""
        if self.tokenizer is None:
            raise InvalidRequest("this model was loaded without a tokenizer: use token ids")
        return self.tokenizer


def load_engine(config: EngineConfig, *, has_queue_bound: bool = True) -> LoadedEngine:
    """Load a model and compose an engine around it. Torch is imported here, and only here.

    Raises CheckpointError, NotDivisible, RankLost or OperatorsUnavailable.
    """
    from engine.runner import load_divided, load_runner, load_with_draft

    if config.draft not in (None, NGRAM):
        pair = load_with_draft(config)
        return engine_around(pair.target, has_queue_bound=has_queue_bound, draft=pair.draft)
    loaded = load_divided(config) if config.tensor_parallel > 1 else load_runner(config)
    return engine_around(loaded, has_queue_bound=has_queue_bound)


def compiler_of(tokenizer: "Tokenizer | None", limits: ModelLimits, *, closes_answers: bool) -> GrammarCompiler:
    """The compiler of a model's constraints. tokenizer: None for random weights without one."""
    vocabulary = None if tokenizer is None else Vocabulary(tokenizer, limits.vocab_size, limits.eos_token_ids)
    return GrammarCompiler(vocabulary, closes_answers=closes_answers)


def engine_around(
    loaded: "LoadedModel",
    *,
    has_queue_bound: bool = True,
    compiler: GrammarCompiler | None = None,
    share: PoolShare | None = None,
    reclaim: Reclaim | None = None,
    draft: "LoadedModel | None" = None,
) -> LoadedEngine:
    """An engine around a model that is loaded. compiler: that of its constraints; None: it is made. share, reclaim: as
    EngineCore. draft: a smaller model over the same
    pool that proposes tokens."""
    from engine.text.tokenizer import IncrementalDetokenizer

    tokenizer = loaded.tokenizer

    def make_detokenizer(skip_special: bool, shown: tuple[str, ...], prompt: tuple[int, ...]) -> Detokenizer:
        if tokenizer is None:
            return NoText()
        return IncrementalDetokenizer(tokenizer, skip_special, prompt, shown_ids=tokenizer.ids_of(shown))

    if compiler is None:
        compiler = compiler_of(tokenizer, loaded.runner.limits, closes_answers=loaded.config.close_answers)
    if draft is not None:
        share = PoolShare(LargePool(loaded.pool_plan.num_large_pages))
    core = EngineCore(
        loaded.runner,
        loaded.config,
        make_detokenizer,
        has_queue_bound=has_queue_bound,
        compiler=compiler,
        proposer=_proposer(loaded, draft, share, loaded.config.step_limits.max_batched_tokens),
        rack=loaded.adapters,
        share=share,
        reclaim=reclaim,
    )
    return LoadedEngine(core, tokenizer, loaded.info, loaded.is_alive)


def _proposer(
    loaded: "LoadedModel", draft: "LoadedModel | None", share: PoolShare | None, max_step_tokens: int
) -> Proposer | None:
    """What proposes tokens for the model; None: nothing is to, or nothing can."""
    config = loaded.config
    if config.draft is None:
        return None
    if draft is not None:
        cache = KVCache(
            draft.pool_plan,
            enable_prefix_caching=config.enable_prefix_caching,
            max_step_tokens=max_step_tokens,
            share=share,
        )
        _log.info("drafts: %s, at most %d tokens at a time", draft.info, config.draft_tokens)
        return DraftModel(
            draft.info.name,
            draft.runner,
            cache,
            max_running=config.step_limits.max_running,
            max_step_tokens=max_step_tokens,
            vocab_size=loaded.limits.vocab_size,
        )
    reason = why_no_drafts(loaded.pool_plan)
    if reason is not None:
        _log.warning("draft %s is not used: %s", config.draft, reason)
        return None
    _log.info("drafts: n-grams, at most %d tokens at a time", config.draft_tokens)
    return NgramProposer()
