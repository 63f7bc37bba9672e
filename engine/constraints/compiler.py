"""Compiles constraints for one model and keeps those that were used last. Any thread may use it.

Time and memory are bounded by counts of work, not by a clock: what compiles here compiles in every process of a model.
"""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from engine.constraints.schema_check import refuse
from engine.constraints.vocabulary import Vocabulary
from engine.errors import InvalidRequest
from engine.sampling_params import Constraint, SamplingParams

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from engine.constraints.byte_vocabulary import ByteVocabulary
    from engine.constraints.closing import Closing

MAX_COMPILED = 64  #: constraints that are kept
_PAUSE_S = 0.004  #: between two pieces of reading the tokens


class _Ended(Exception):
    """The compiler is shut down."""


class Grammar(NamedTuple):
    """A compiled constraint."""

    start: "LLMatcher"  #: at the beginning of a text; callers copy it
    closing: "Closing | None" = None  #: how answers are closed before max_tokens; None: they are not


class GrammarCompiler:
    """The grammars of a model's constraints."""

    def __init__(self, vocabulary: Vocabulary | None, *, closes_answers: bool = True) -> None:
        """vocabulary: None for a model without a tokenizer, whose outputs cannot be constrained. closes_answers:
        whether answers end before max_tokens where their constraint asks for it."""
        self._vocabulary = vocabulary
        self._closes_answers = closes_answers
        self._words: ByteVocabulary | None = None
        self._words_lock = threading.Lock()  # held while they are read
        self._is_ending = threading.Event()
        self._lock = threading.Lock()  # guards _compiled; held for moments
        self._compiled: OrderedDict[Constraint, Grammar] = OrderedDict()
        self._threads = ThreadPoolExecutor(1, "compile-grammar")

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens. Raises InvalidRequest where it has none."""
        if self._vocabulary is None:
            raise refuse("this model was loaded without a tokenizer")
        return self._vocabulary

    def prepare(self) -> None:
        """Read the model's tokens, while the model is being loaded: the first constraint would stop all streams for
        that. What need not hold the interpreter is read afterwards by a thread, a millisecond at a time, and the first
        constraint waits for it. Does nothing without a tokenizer or llguidance."""
        if self._vocabulary is None or find_spec("llguidance") is None:
            return
        from engine.constraints.byte_vocabulary import ByteVocabulary

        words = self._words = ByteVocabulary(self._vocabulary)
        self._words_lock.acquire()

        def read() -> None:
            try:
                words.read(self._pause)
            finally:
                self._words_lock.release()

        self._threads.submit(read)

    def _pause(self) -> None:
        if self._is_ending.wait(_PAUSE_S):
            raise _Ended

    def check(self, params: SamplingParams, room: int) -> None:
        """Raise InvalidRequest for a constraint or a thinking budget that cannot be served, or whose shortest answer
        has more tokens than may come. room: tokens that fit behind the prompt. May take half a second."""
        if params.constraint is None:
            if params.needs_masks:
                assert self.vocabulary
            return
        closing = self.compile(params.constraint).closing
        if closing is None:
            return
        num_needed, most = len(closing.shortest), min(params.max_tokens, room)
        if params.thoughts is not None and params.thoughts.is_open:
            num_needed += len(self.vocabulary.encode(params.thoughts.end))
        if num_needed > most:
            raise InvalidRequest(
                f"the shortest answer that the constraint allows has {num_needed} tokens, and {most} may come",
                param="max_tokens",
            )

    def compile(self, constraint: Constraint) -> Grammar:
        """The constraint's grammar. Raises InvalidRequest for one that cannot be served, as is any where llguidance is
        not installed."""
        vocabulary = self.vocabulary
        with self._lock:
            if (known := self._compiled.get(constraint)) is not None:
                self._compiled.move_to_end(constraint)
                return known
        try:
            from engine.constraints.grammars import LIMITS, compiled  # llguidance: only where a grammar is compiled
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "llguidance":
                raise
            raise refuse("the Python package 'llguidance' is not installed here: pip install llguidance") from None
        from engine.constraints.closing import closing_of

        matcher, text = compiled(constraint, vocabulary)
        closes = self._closes_answers and constraint.is_closed
        grammar = Grammar(matcher, closing_of(text, self._byte_vocabulary(), LIMITS) if closes else None)
        with self._lock:
            self._compiled[constraint] = grammar
            while len(self._compiled) > MAX_COMPILED:
                self._compiled.popitem(last=False)
        return grammar

    def _byte_vocabulary(self) -> "ByteVocabulary":
        from engine.constraints.byte_vocabulary import ByteVocabulary

        with self._words_lock:
            if self._words is None:
                self._words = ByteVocabulary(self.vocabulary)
            return self._words

    def start(self, constraint: Constraint) -> Future[Grammar]:
        """As compile, without waiting: at once if it is known, else by a thread."""
        with self._lock:
            known = self._compiled.get(constraint)
        if known is None:
            return self._threads.submit(self.compile, constraint)
        done: Future[Grammar] = Future()
        done.set_result(known)
        return done

    def shut_down(self) -> None:
        """End the thread."""
        self._is_ending.set()
        self._threads.shutdown(wait=False)
