"""Loads a model and composes an engine around it: core, tokenizer, grammar compiler."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.config import EngineConfig
from engine.constraints.compiler import GrammarCompiler
from engine.constraints.vocabulary import Vocabulary
from engine.core import EngineCore
from engine.drafts.ngram import NgramProposer
from engine.drafts.proposer import Proposer
from engine.drafts.support import why_no_drafts
from engine.errors import InvalidRequest
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
    from engine.runner import load_divided, load_runner

    loaded = load_divided(config) if config.tensor_parallel > 1 else load_runner(config)
    return engine_around(loaded, has_queue_bound=has_queue_bound)


def engine_around(loaded: "LoadedModel", *, has_queue_bound: bool = True) -> LoadedEngine:
    """An engine around a model that is loaded."""
    from engine.text.tokenizer import IncrementalDetokenizer

    tokenizer = loaded.tokenizer

    def make_detokenizer(skip_special: bool, shown: tuple[str, ...], prompt: tuple[int, ...]) -> Detokenizer:
        if tokenizer is None:
            return NoText()
        return IncrementalDetokenizer(tokenizer, skip_special, prompt, shown_ids=tokenizer.ids_of(shown))

    limits = loaded.runner.limits
    vocabulary = None if tokenizer is None else Vocabulary(tokenizer, limits.vocab_size, limits.eos_token_ids)
    core = EngineCore(
        loaded.runner,
        loaded.config,
        make_detokenizer,
        has_queue_bound=has_queue_bound,
        compiler=GrammarCompiler(vocabulary),
        proposer=_proposer(loaded),
    )
    return LoadedEngine(core, tokenizer, loaded.info, loaded.is_alive)


def _proposer(loaded: "LoadedModel") -> Proposer | None:
    """What proposes tokens for the model; None: nothing is to, or nothing can."""
    draft = loaded.config.draft
    if draft is None:
        return None
    reason = why_no_drafts(loaded.pool_plan)
    if reason is not None:
        _log.warning("draft %s is not used: %s", draft, reason)
        return None
    _log.info("drafts: %s, at most %d tokens at a time", draft, loaded.config.draft_tokens)
    return NgramProposer()
