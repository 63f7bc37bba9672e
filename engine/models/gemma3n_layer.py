"""One layer of Gemma 3n around its residual streams.

N = streams, T = tokens of the step.
"""

from dataclasses import dataclass
from statistics import NormalDist

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, HeadNorms
from engine.attention.rotation import Rotation
from engine.kernels.operators import Activation
from engine.layers.alternating_updates import AlternatingUpdates
from engine.layers.attention import SelfAttention
from engine.layers.linear import Linear
from engine.layers.mlp import GatedMLP
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.layer_inputs import rounded


@dataclass(frozen=True)
class LayerSettings:
    """What all layers have in common."""

    hidden: int
    norm_eps: float
    has_bias: bool  #: in the projections of attention
    num_streams: int
    active: int  #: the stream that attention and MLP read
    scales_output: bool  #: a factor for each channel before the layer's own input is mixed in
    laurel_rank: int
    input_size: int  #: channels of the layer's own input


class Gemma3nLayer:
    """Attention and MLP on the active stream; the result corrects all streams, and the layer's own input is added to
    all but the first."""

    def __init__(
        self,
        settings: LayerSettings,
        layer_id: int,
        shape: AttentionShape,
        ffn: int,
        sparsity: float,
        weights: WeightSource,
    ) -> None:
        name, hidden, eps = f"model.layers.{layer_id}", settings.hidden, settings.norm_eps
        rank, size, operators = settings.laurel_rank, settings.input_size, weights.operators

        def norm(part: str) -> RMSNorm:
            return RMSNorm.load(weights, f"{name}.{part}", hidden, eps)

        self._active = settings.active
        self._updates = AlternatingUpdates(weights, f"{name}.altup", hidden, settings.num_streams, settings.active, eps)
        self._output_scale = (
            weights.take(f"{name}.altup.correct_output_scale", hidden) if settings.scales_output else None
        )
        self._attention_norm = norm("input_layernorm")
        self._attention = _attention(settings, layer_id, shape, weights)
        self._attention_output_norm = norm("post_attention_layernorm")
        self._laurel_down = Linear.load(weights, f"{name}.laurel.linear_left", hidden, rank, bias=False)
        self._laurel_up = Linear.load(weights, f"{name}.laurel.linear_right", rank, hidden, bias=False)
        self._laurel_norm = norm("laurel.post_laurel_norm")
        self._mlp_norm = norm("pre_feedforward_layernorm")
        self._mlp = GatedMLP(
            Linear.fused(weights, [f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"], hidden, [ffn, ffn], bias=False),
            Linear.load(weights, f"{name}.mlp.down_proj", ffn, hidden, bias=False),
            _cut_off(operators.gelu_tanh_mul, sparsity, weights) if sparsity else operators.gelu_tanh_mul,
        )
        self._mlp_output_norm = norm("post_feedforward_layernorm")
        self._gate = Linear.load(weights, f"{name}.per_layer_input_gate", hidden, size, bias=False)
        self._activation = operators.gelu_tanh
        self._projection = Linear.load(weights, f"{name}.per_layer_projection", size, hidden, bias=False)
        self._input_norm = norm("post_per_layer_input_norm")

    def __call__(
        self, streams: torch.Tensor, own_input: torch.Tensor, rotation: Rotation, batch: ForwardBatch
    ) -> torch.Tensor:
        """streams [N, T, hidden], own_input [T, input_size] -> streams [N, T, hidden]; writes keys and values."""
        predictions = self._updates.predict(streams)
        active = predictions[self._active]
        x = self._attention_norm(active)
        laurel = self._laurel_norm(self._laurel_up(self._laurel_down(x))).add_(x)
        attended = self._attention_output_norm(self._attention(x, rotation, batch))
        stream = attended.add_(active).add_(laurel).mul_(2.0**-0.5)
        output = self._mlp_output_norm(self._mlp(self._mlp_norm(stream))).add_(stream)
        streams = self._updates.correct(predictions, output)
        first = streams[self._active]
        if self._output_scale is not None:
            first = first * self._output_scale
        gated = self._activation(self._gate(first)).mul_(own_input)
        streams[1:] += self._input_norm(self._projection(gated))
        return streams


def _attention(settings: LayerSettings, layer_id: int, shape: AttentionShape, weights: WeightSource) -> SelfAttention:
    name, hidden, has_bias = f"model.layers.{layer_id}.self_attn", settings.hidden, settings.has_bias
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    sizes = {"q": queries} if shape.shares_with is not None else {"q": queries, "k": keys, "v": keys}
    query_norm, *key_norm = (
        weights.take(f"{name}.{part}_norm.weight", shape.head_dim).float() for part in sizes if part != "v"
    )
    return SelfAttention(
        layer_id,
        shape,
        Linear.fused(weights, [f"{name}.{part}_proj" for part in sizes], hidden, list(sizes.values()), bias=has_bias),
        Linear.load(weights, f"{name}.o_proj", queries, hidden, bias=has_bias),
        HeadNorms(query_norm, key_norm[0] if key_norm else None, settings.norm_eps, has_values=bool(key_norm)),
    )


def _cut_off(activate_and_multiply: Activation, sparsity: float, weights: WeightSource) -> Activation:
    """The activation after gates [R, size] are lowered by a cut-off of each row and are at least 0: the quantile
    `sparsity` of a normal distribution with the row's mean and standard deviation."""
    distance = rounded(NormalDist().inv_cdf(sparsity), weights)

    def activate(gate_up: torch.Tensor) -> torch.Tensor:
        gates = gate_up[:, : gate_up.shape[1] // 2]
        deviation, mean = torch.std_mean(gates.float(), dim=-1, correction=0, keepdim=True)
        gates.sub_(deviation.mul_(distance).add_(mean)).relu_()
        return activate_and_multiply(gate_up)

    return activate
