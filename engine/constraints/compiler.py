"""Compiles constraints for one model and keeps those that were used last. Any thread may use it.

Time and memory are bounded by counts of work, not by a clock: what compiles here compiles in every process of a model.
"""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine.constraints.schema_check import refuse
from engine.constraints.vocabulary import Vocabulary
from engine.sampling_params import Constraint, SamplingParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

MAX_COMPILED = 64  #: constraints that are kept


class GrammarCompiler:
    """Matchers of constraints, at the beginning of a text; callers copy them."""

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        """vocabulary: None for a model without a tokenizer, whose outputs cannot be constrained."""
        self._vocabulary = vocabulary
        self._lock = threading.Lock()  # guards _compiled; held for moments
        self._compiled: OrderedDict[Constraint, LLMatcher] = OrderedDict()
        self._threads = ThreadPoolExecutor(1, "compile-grammar")

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens. Raises InvalidRequest where it has none."""
        if self._vocabulary is None:
            raise refuse("this model was loaded without a tokenizer")
        return self._vocabulary

    def check(self, params: SamplingParams) -> None:
        """Raise InvalidRequest for a constraint or a thinking budget that cannot be served. May take half a second."""
        if params.constraint is not None:
            self.compile(params.constraint)
        elif params.needs_masks:
            assert self.vocabulary

    def compile(self, constraint: Constraint) -> "LLMatcher":
        """The constraint's matcher; not to be advanced. Raises InvalidRequest for one that cannot be served, as is any
        where llguidance is not installed."""
        vocabulary = self.vocabulary
        with self._lock:
            if (known := self._compiled.get(constraint)) is not None:
                self._compiled.move_to_end(constraint)
                return known
        try:
            from engine.constraints.grammars import matcher_of  # llguidance: only where a grammar is compiled
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "llguidance":
                raise
            raise refuse("the Python package 'llguidance' is not installed here: pip install llguidance") from None
        matcher = matcher_of(constraint, vocabulary)
        with self._lock:
            self._compiled[constraint] = matcher
            while len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        return matcher

    def start(self, constraint: Constraint) -> "Future[LLMatcher]":
        """As compile, without waiting: at once if it is known, else by a thread."""
        with self._lock:
            known = self._compiled.get(constraint)
        if known is None:
            return self._threads.submit(self.compile, constraint)
        done: Future[LLMatcher] = Future()
        done.set_result(known)
        return done

    def shut_down(self) -> None:
        """End the thread."""
        self._threads.shutdown(wait=False)
