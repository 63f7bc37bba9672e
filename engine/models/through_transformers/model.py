"""A CausalLM whose layers are transformers' own modelling code, with Agon's pages in place of its caches."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutputWithPast

from engine.attention.backend import AttentionShape, AttentionStep, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.kernels.cpu.operators import CppOperators
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.through_transformers.attention import EXAMINED, AttentionCall, handled_by
from engine.models.through_transformers.examination import FIXED_ATTENTION, ExaminedLayer, examine
from engine.models.through_transformers.linear import replace_linear_layers
from engine.models.through_transformers.self_check import Expected
from engine.models.through_transformers.settings import check_modules, read_count, read_settings
from engine.models.through_transformers.weights import load, take_shapes

# transformers is typed in parts only.
_auto_model: Any = transformers.AutoModelForCausalLM
_logging: Any = transformers.utils.logging


def build(config: ConfigReader, weights: WeightSource, name: str) -> "TransformersModel":
    """The model of that architecture, examined, loaded and compared with transformers' own attention.

    Raises CheckpointError for what pages cannot serve, and where the two results differ.
    """
    _logging.set_verbosity_error()
    _logging.disable_progress_bar()
    settings, model_class = read_settings(config, name)
    num_layers, max_positions = read_count(settings, of_layers=True), read_count(settings, of_layers=False)
    empty = _without_weights(settings, weights.dtype)
    check_modules(empty)
    layers = examine(empty.eval(), num_layers, max_positions)
    vocab_size = _vocab_size(empty)
    if take_shapes(empty, weights):
        return TransformersModel(empty, layers, [layer.shape for layer in layers], vocab_size, max_positions)
    loaded = load(model_class, settings, empty, weights)
    shapes = [layer.shape_in(loaded) for layer in layers]
    expected = Expected.of(loaded)
    model = TransformersModel(loaded, layers, shapes, vocab_size, max_positions)
    expected.compare(model)
    if isinstance(weights.operators, CppOperators):
        replace_linear_layers(loaded, weights.operators)
        replace_linear_layers(model.decoder, weights.operators)
        expected.compare(model, is_rounded=weights.operators.has_int8_weights)
    return model


def _without_weights(settings: Any, dtype: torch.dtype) -> Any:
    """The model on the meta device, to be examined."""
    try:
        with torch.device("meta"):
            return _auto_model.from_config(
                settings, attn_implementation=EXAMINED, experts_implementation=EXAMINED, dtype=dtype
            )
    except KeyError as error:
        if EXAMINED in str(error):  # looked up among the few that its code has
            raise CheckpointError(FIXED_ATTENTION) from error
        raise


class TransformersModel:
    """A CausalLM."""

    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = False
    narrows = False

    def __init__(
        self,
        model: Any,
        layers: Sequence[ExaminedLayer],
        shapes: Sequence[AttentionShape],
        vocab_size: int,
        max_positions: int,
    ) -> None:
        """layers, shapes: of attention, by layer id."""
        self.attention_shapes = tuple(shapes)
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        self._layer_ids = {model.get_submodule(layer.module): i for i, layer in enumerate(layers)}
        # What the model does with final hidden states (scales, soft caps) is in its own forward pass: it is called with
        # a decoder that returns given ones.
        self.decoder = model.get_decoder()
        self._given = _GivenHidden()
        path = next((name for name, module in model.named_modules() if module is self.decoder), "")
        if not path:
            raise CheckpointError("its code has no decoder apart from its output head")
        model.set_submodule(path, self._given)
        self._whole = model

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states of the step's tokens, [T, hidden]; writes their keys and values."""
        with handled_by(_PagedAttention(self._layer_ids, batch.attention)):
            output = self.decoder(input_ids=batch.token_ids[None], position_ids=batch.positions[None], use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        self._given.hidden = hidden[None]
        ids = torch.zeros(hidden.shape[:1], dtype=torch.int64, device=hidden.device)[None]
        logits: torch.Tensor = self._whole(input_ids=ids, use_cache=False).logits[0]
        self._given.hidden = None
        return logits


class _DecoderOutput(BaseModelOutputWithPast):
    """Final hidden states; whatever else a model's head passes on (states, scores of experts) is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class _GivenHidden(torch.nn.Module):
    """In place of a decoder: returns the hidden states that it was given."""

    hidden: torch.Tensor | None = None

    def forward(self, *arguments: Any, **options: Any) -> Any:
        return _DecoderOutput(last_hidden_state=self.hidden)


class _PagedAttention:
    """The AttentionHandler of one step."""

    def __init__(self, layer_ids: dict[torch.nn.Module, int], step: AttentionStep) -> None:
        self._layer_ids = layer_ids
        self._step = step

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """As AttentionHandler.attend, over pages."""
        query, key, value = (heads[0].transpose(0, 1) for heads in (call.query, call.key, call.value))
        head_dim, value_dim = query.shape[2], value.shape[2]
        if value_dim < head_dim:  # pages hold keys and values of one size
            value = torch.nn.functional.pad(value, (0, head_dim - value_dim))
        heads = torch.cat((query, key, value), dim=1)
        output = self._step.attend(self._layer_ids[call.module], heads, None, None)
        return output.view(1, query.shape[0], query.shape[1], head_dim)[..., :value_dim]


def _vocab_size(empty: Any) -> int:
    """Logits in a row. empty: on the meta device."""
    head = empty.get_output_embeddings()
    if head is None or getattr(head, "weight", None) is None:
        raise CheckpointError("it has no output head")
    return int(head.weight.shape[0])
