"""Admission control: whether a request may enter the engine, decided before any work is done for it.

Called from any thread. Knows how many requests and tokens wait, not the queue itself.
"""

import threading

from engine.config import ModelLimits
from engine.errors import ContextTooLong, InvalidRequest, QueueFull
from engine.memory.admission import AdmissionRule
from engine.memory.images import Images
from engine.request import check_prompt
from engine.sampling_params import SamplingParams


class AdmissionControl:
    """Refuses requests that can never be served, and requests for which the waiting queue has no room.

    Thread-safe. A reservation lasts until the request's first step, or until its end if that comes first. It is counted
    here and not in the queue, because the queue belongs to the engine thread and learns of a request later.
    """

    def __init__(
        self,
        rule: AdmissionRule,
        limits: ModelLimits,
        *,
        max_running: int,
        max_requests: int | None,
        max_tokens: int | None,
        longest_prompt: int | None = None,
    ) -> None:
        """rule: whether a request fits into the page pool. max_running: sequences in one step. max_requests,
        max_tokens: bounds of the queue in requests and prompt tokens; None: no bound. longest_prompt: the longest that
        layers with a budget allow; None: there are none."""
        self._rule = rule
        self._limits = limits
        self._max_running = max_running
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._longest_prompt = longest_prompt
        self._lock = threading.Lock()
        self._num_requests = 0
        self._num_tokens = 0

    def note_new_pool(self, rule: AdmissionRule) -> None:
        """Another page pool serves from now on, in which every request fits that fitted before."""
        self._rule = rule

    def check_request(
        self, prompt: tuple[int, ...], params: SamplingParams, resume: tuple[int, ...] = (), images: Images = ()
    ) -> None:
        """Raise InvalidRequest or ContextTooLong for a request that can never be served.

        resume: output tokens that the request has already. images: they take pages of their own.
        """
        check_prompt(prompt, self._limits)
        if resume:
            check_prompt(resume, self._limits, param="resume_token_ids")
            if params.num_sequences > 1 or params.beam is not None:
                raise InvalidRequest("only a request with one sample can be resumed", param="n")
            if len(resume) > params.max_tokens:
                raise InvalidRequest("more tokens to resume than max_tokens", param="resume_token_ids")
        self._check_tokens(params)
        num_sequences = params.num_sequences
        if num_sequences > self._max_running:
            name = "beam.width" if params.beam is not None else "n" if params.best_of is None else "best_of"
            raise InvalidRequest(f"{name} must not exceed {self._max_running}, the sequences of one step", param=name)
        num_output = max(min(1, params.max_tokens), len(resume))
        if len(prompt) + num_output > self._limits.max_model_len:
            raise ContextTooLong(
                f"the prompt has {len(prompt)} tokens; {'with at least one of output, ' if num_output else ''}only "
                f"{self._limits.max_model_len} fit",
                num_prompt_tokens=len(prompt),
                max_tokens=params.max_tokens,
            )
        if self._longest_prompt is not None and len(prompt) > self._longest_prompt:
            raise ContextTooLong(
                f"the prompt has {len(prompt)} tokens; with kv_budget it must be computed in one step, and only "
                f"{self._longest_prompt} fit (max_batched_tokens)",
                num_prompt_tokens=len(prompt),
                max_tokens=params.max_tokens,
            )
        longest = min(len(prompt) + params.max_tokens, self._limits.max_model_len)
        if not self._rule.fits_ever([longest] * num_sequences, len(prompt), images):
            raise ContextTooLong(
                f"{num_sequences} samples of up to {longest} tokens do not fit into the page pool",
                num_prompt_tokens=len(prompt),
                max_tokens=params.max_tokens,
            )

    def _check_tokens(self, params: SamplingParams) -> None:
        """Token ids of parameters lie in the vocabulary, and some tokens can always follow."""
        if params.bad_words:
            raise InvalidRequest("bad_words must be encoded before: use bad_words_ids", param="bad_words")
        vocab_size = self._limits.vocab_size
        named = {
            "logit_bias": params.logit_bias,
            "allowed_token_ids": params.allowed_token_ids or (),
            "bad_words_ids": [token_id for word in params.bad_words_ids for token_id in word],
        }
        for name, token_ids in named.items():
            if any(token_id >= vocab_size for token_id in token_ids):
                raise InvalidRequest(f"token ids must lie in [0, {vocab_size})", param=name)
        if params.allowed_token_ids is None and not params.bad_words_ids and params.beam is None:
            return
        allowed = set(range(vocab_size) if params.allowed_token_ids is None else params.allowed_token_ids)
        allowed -= {word[-1] for word in params.bad_words_ids}
        if params.min_tokens or params.beam is not None:
            allowed -= params.stop_ids(self._limits.eos_token_ids)
        num_needed = 1 if params.beam is None else params.beam.width
        if len(allowed) < num_needed:
            name = "beam.width" if params.allowed_token_ids is None and not params.bad_words_ids else "bad_words_ids"
            name = "allowed_token_ids" if params.allowed_token_ids is not None else name
            raise InvalidRequest(
                f"{name}: {len(allowed)} tokens are neither forbidden nor ends of the output, {num_needed} are needed",
                param=name,
            )

    def reserve_place(self, num_tokens: int) -> None:
        """Reserve a place in the queue for a request of so many tokens, or raise QueueFull.

        A request with more tokens than the bound may wait if no other request waits.
        """
        with self._lock:
            if self._max_requests is not None and self._num_requests >= self._max_requests:
                raise QueueFull(f"{self._num_requests} requests are waiting already", retry_after_s=1.0)
            wanted = self._num_tokens + num_tokens
            if self._max_tokens is not None and self._num_requests and wanted > self._max_tokens:
                raise QueueFull(f"{self._num_tokens} prompt tokens are waiting already", retry_after_s=1.0)
            self._num_requests += 1
            self._num_tokens += num_tokens

    def release_place(self, num_tokens: int, num_requests: int = 1) -> None:
        """Give a reservation of so many tokens back, or those of several requests together."""
        with self._lock:
            self._num_requests -= num_requests
            self._num_tokens -= num_tokens

    @property
    def num_requests(self) -> int:
        """Requests that wait for their first step."""
        return self._num_requests

    @property
    def num_tokens(self) -> int:
        """Prompt tokens of requests that wait for their first step."""
        return self._num_tokens
