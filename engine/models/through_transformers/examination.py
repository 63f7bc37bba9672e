"""What the attention layers of transformers' modelling code do, found out by one forward pass without numbers.

The pass runs on meta tensors under the recording attention function. Whatever a layer asks for that pages do not offer
is refused here, by name: computing wrongly is worse than not computing.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from engine.attention.backend import AttentionShape
from engine.errors import CheckpointError
from engine.models.through_transformers.attention import AttentionCall, MaskRule, handled_by

_TOKENS = 4
#: Options of an attention call that change nothing where tokens of several sequences share a pass without a cache.
_HARMLESS = frozenset(
    {
        "cache_position",
        "deterministic",
        "layer_idx",
        "logits_to_keep",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "position_embeddings",
        "return_dict",
        "s_aux",  # sinks
        "sliding_window",  # stands in the mask, too, which is what transformers' own eager attention reads
        "target_dtype",
        "use_cache",
    }
)
#: Positions whose masks are looked at, beside those around the window's length.
_FEW = (0, 1, 2, 3, 7, 8, 63, 64, 511, 512)
_MOST_KEYS = 1 << 20
FIXED_ATTENTION = "its attention cannot be exchanged: it does not use transformers' attention interface"


class Examination:
    """The AttentionHandler that records."""

    def __init__(self) -> None:
        self.calls: list[AttentionCall] = []
        self._rules: list[MaskRule] = []

    def add_rule(self, rule: MaskRule) -> int:
        """As MaskRules.add_rule."""
        self._rules.append(rule)
        return len(self._rules) - 1

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """As AttentionHandler.attend, without numbers."""
        self.calls.append(call)
        query, value = call.query, call.value
        return query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])

    def rule_of(self, call: AttentionCall) -> MaskRule:
        """The rule of the call's mask. Raises CheckpointError for a mask that is made in another way."""
        mask = call.mask
        if mask is None:
            raise CheckpointError("its layers attend without a mask that says what they read")
        if mask.dtype != torch.int64 or mask.is_meta:
            raise CheckpointError("its layers change attention scores by position (alibi, or masks of their own)")
        return self._rules[int(mask.flatten()[0])]


@dataclass(frozen=True, slots=True)
class ExaminedLayer:
    """One attention layer of a model."""

    module: str  #: name of its attention module in the model
    shape: AttentionShape  #: without sinks, whose values are weights
    sinks: str | None  #: name of the parameter in the module that holds them; None: it has none

    def shape_in(self, loaded: Any) -> AttentionShape:
        """The shape in the model with its weights."""
        if self.sinks is None:
            return self.shape
        sinks = loaded.get_submodule(self.module).get_parameter(self.sinks)
        return replace(self.shape, sinks=tuple(sinks.float().flatten().tolist()))


def examine(model: Any, num_layers: int, max_positions: int) -> list[ExaminedLayer]:
    """The attention layers of a model on the meta device, in the order of their calls.

    model: built with EXAMINED attention. Raises CheckpointError, with the reason, for what pages cannot serve.
    """
    examination = Examination()
    ids = torch.zeros((1, _TOKENS), dtype=torch.int64, device="meta")
    positions = torch.arange(_TOKENS, device="meta")[None]
    # With a mask of tokens transformers does not look at the positions' values, which meta tensors lack.
    try:
        with torch.no_grad(), handled_by(examination):
            model(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions, use_cache=False)
    except Exception as error:  # whatever transformers' code raises where it needs numbers
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"its code cannot be examined without weights ({reason})") from error
    calls = examination.calls
    if not calls:
        raise CheckpointError(FIXED_ATTENTION)
    if len({id(call.module) for call in calls}) != len(calls):
        raise CheckpointError("a layer attends more than once")
    if len(calls) > num_layers:
        raise CheckpointError(
            f"its {num_layers} layers attend {len(calls)} times (cross attention, or parts of layers)"
        )
    if len(calls) < num_layers:
        raise CheckpointError(f"{len(calls)} of its {num_layers} layers have attention; states are not supported")
    names = {id(module): name for name, module in model.named_modules()}
    windows: dict[int, int | None] = {}
    layers = []
    for call in calls:
        rule = examination.rule_of(call)
        if id(rule) not in windows:
            windows[id(rule)] = window_of(rule, max_positions)
        layers.append(ExaminedLayer(names[id(call.module)], _shape(call, windows[id(rule)]), _sinks(call)))
    return layers


def _sinks(call: AttentionCall) -> str | None:
    """The name of the parameter that the layer passes as sinks. Raises CheckpointError if it is none."""
    sinks = call.options.get("s_aux")
    if sinks is None:
        return None
    for name, parameter in call.module.named_parameters(recurse=False):
        if parameter is sinks and parameter.numel() == call.query.shape[1]:
            return name
    raise CheckpointError("a layer's attention sinks are not weights, one for each head")


def _shape(call: AttentionCall, window: int | None) -> AttentionShape:
    _, num_heads, _, head_dim = call.query.shape
    _, num_kv_heads, num_keys, key_dim = call.key.shape
    if num_keys != _TOKENS:
        raise CheckpointError("a layer attends to more than the tokens before it (cross attention, or stored keys)")
    if key_dim != head_dim or call.value.shape[1] != num_kv_heads or num_heads % num_kv_heads:
        raise CheckpointError(f"heads of {num_heads} queries, {num_kv_heads} keys, {call.value.shape[1]} values")
    if call.value.shape[3] > head_dim:
        raise CheckpointError(f"values of {call.value.shape[3]} channels are larger than keys of {head_dim}")
    options = dict(call.options)
    scale, softcap = options.pop("scaling", None), options.pop("softcap", None)
    if options.pop("dropout", 0.0):
        raise CheckpointError("a layer drops attention at random")
    if options.pop("is_causal", None) is False or getattr(call.module, "is_causal", True) is False:
        raise CheckpointError("a layer attends to tokens after its own")
    unknown = sorted(name for name, value in options.items() if value is not None and name not in _HARMLESS)
    if unknown:
        raise CheckpointError(f"a layer passes {', '.join(unknown)} to attention, which is not supported")
    return AttentionShape(num_heads, num_kv_heads, head_dim, window, _number(softcap), _number(scale))


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def window_of(rule: MaskRule, max_positions: int) -> int | None:
    """How many tokens a query reads under a rule, its own included; None: all before it.

    Raises CheckpointError for a rule that is neither causal nor a sliding window.
    """
    last = min(max_positions, _MOST_KEYS) - 1
    seen = _read(rule, last, last + 1)
    count = int(seen.sum())
    window = None if count == last + 1 else count
    near = () if window is None else (window - 1, window, window + 1, 2 * window, 2 * window + 1, 3 * window)
    for query in _within(last, (*_FEW, *near, last // 2, last // 3, last)):
        seen = _read(rule, query, min(last, query + 2) + 1)
        keys = torch.arange(len(seen))
        expected = keys <= query
        if window is not None:
            expected &= keys > query - window
        if not bool((seen == expected).all()):
            raise CheckpointError("a layer's mask is neither causal nor a sliding window")
    return window


def _within(last: int, positions: Iterable[int]) -> list[int]:
    return sorted({position for position in positions if 0 <= position <= last})


def _read(rule: MaskRule, query: int, num_keys: int) -> torch.Tensor:
    """[num_keys] bool: which keys the query reads."""
    zero, keys = torch.tensor(0), torch.arange(num_keys)
    seen = rule(zero, zero, torch.tensor(query), keys)
    return torch.as_tensor(seen).expand(num_keys).bool()
