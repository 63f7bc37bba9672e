"""What transformers' modelling code calls in place of its attention functions and its masks.

A model is built with one of two names as its attention function. Under SERVED its attention goes to the handler of the
running forward pass, and transformers builds no masks. Under EXAMINED it builds no masks either: where it would, it
gets a tensor that says which rule the mask would follow, so that the handler can look the rule up.

T = tokens of the step, H, K = query and key/value heads, D, V = channels of keys and of values.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

SERVED = "agon"
EXAMINED = "agon_examined"

#: (sequence, head, position of the query, position of the key) -> whether the query reads the key
MaskRule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of the attention function by a layer."""

    module: torch.nn.Module
    query: torch.Tensor  #: [1, H, T, D]
    key: torch.Tensor  #: [1, K, T, D]
    value: torch.Tensor  #: [1, K, T, V]
    mask: torch.Tensor | None
    options: dict[str, Any] = field(default_factory=dict)  #: by keyword


class AttentionHandler(Protocol):
    """Computes, or records, the attention of a forward pass."""

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Returns [1, T, H, V]."""
        ...


class MaskRules(Protocol):
    """A handler under EXAMINED, which is told the rules of masks."""

    def add_rule(self, rule: MaskRule) -> int:
        """Remember the rule; returns its number."""
        ...


_HANDLER: ContextVar[Any] = ContextVar("attention handler of the running forward pass")


@contextmanager
def handled_by(handler: AttentionHandler) -> Iterator[None]:
    """Inside, attention of transformers' models goes to the handler."""
    token = _HANDLER.set(handler)
    try:
        yield
    finally:
        _HANDLER.reset(token)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    return _HANDLER.get().attend(AttentionCall(module, query, key, value, attention_mask, options)), None


def _number_of_rule(
    batch_size: int, q_length: int, kv_length: int, mask_function: MaskRule, **options: Any
) -> torch.Tensor:
    """[batch, 1, queries, keys] int64, never read as a mask: every element is the number of the rule."""
    return torch.full((batch_size, 1, q_length, kv_length), _HANDLER.get().add_rule(mask_function))


def _skip_experts(module: torch.nn.Module, hidden: torch.Tensor, *choice: Any, **options: Any) -> torch.Tensor:
    """The shape of the experts' result; which experts are chosen cannot be known without numbers."""
    return torch.empty_like(hidden)


AttentionInterface.register(SERVED, _attend)
AttentionInterface.register(EXAMINED, _attend)
AttentionMaskInterface.register(EXAMINED, _number_of_rule)
ALL_EXPERTS_FUNCTIONS.register(EXAMINED, _skip_experts)
