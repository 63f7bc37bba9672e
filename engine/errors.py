"""Everything the engine raises.

EngineError
 +-- InvalidRequest        the request can never be served as it is (`param` names the field)
 |    +-- ContextTooLong   prompt + wanted output exceed the model's context or the page pool
 +-- QueueFull             the bounded queue has no room now; try again later
 +-- CheckpointError       the model folder is missing, incomplete or not what it claims
 |    +-- CheckpointUnavailable  the model hub cannot be reached; a later attempt may succeed
 |    +-- AdapterError           the adapter folder is not what it claims, or does something that is not supported
 |    +-- NoRoomInPool          its pages do not fit into the pool that it would share with other models
 +-- NotDivisible          the model cannot be divided among that many processes
 +-- RankLost              another process of the same model could not start, or has ended
 +-- OperatorsUnavailable  the C++ operators cannot be built or loaded here; the torch ones serve instead
 +-- NotFinite             the model's numbers for one request are not finite; only that request fails
 +-- EngineDead            the engine has stopped; no request is answered any more
"""


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class InvalidRequest(EngineError):
    """The request can never be served as it is; `param` names the offending field where there is one."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class ContextTooLong(InvalidRequest):
    """Prompt and wanted output do not fit into the model's context or into the whole page pool."""

    def __init__(self, message: str, *, num_prompt_tokens: int, max_tokens: int) -> None:
        super().__init__(message, param="messages")
        self.num_prompt_tokens = num_prompt_tokens
        self.max_tokens = max_tokens


class QueueFull(EngineError):
    """The waiting queue is at its bound of requests or prompt tokens; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class CheckpointError(EngineError):
    """A model folder that is missing, incomplete, unsafe or inconsistent."""


class CheckpointUnavailable(CheckpointError):
    """The model is not on this machine and the hub cannot be reached; a later attempt may succeed."""


class AdapterError(CheckpointError):
    """An adapter folder that is missing or inconsistent, does not fit the model, or does what is not supported."""


class NoRoomInPool(CheckpointError):
    """The model's pages do not fit into the pool that it would share with the other models of a host."""


class NotDivisible(EngineError):
    """Tensor parallelism of that degree is not possible for this model, or on this machine."""


class RankLost(EngineError):
    """Another process of a model that is divided among several could not start, or has ended."""


class OperatorsUnavailable(EngineError):
    """The C++ operators cannot be built or loaded on this machine."""


class NotFinite(EngineError):
    """The model's logits, log probabilities or hidden states for one request are not finite; others go on."""


class EngineDead(EngineError):
    """The engine has stopped after an unexpected error, or its process has ended."""
