"""OLMo 2: Llama, but without norms before attention and MLP. Their outputs are normalised instead, and so are the whole
projections of queries and of keys, all heads together."""

from collections.abc import Callable
from dataclasses import replace

import torch

from engine.layers.decoder import DecoderLayer
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.norm import Norm, RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, gated_mlp, self_attention
from engine.parallel.group import Group

#: queries [T, channels], keys [T, channels] -> both normalised
_NormPair = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def olmo2(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds OLMo 2: the settings of Llama, with layers of its own."""
    return Llama(read_olmo2(config), weights)


def read_olmo2(config: ConfigReader) -> LlamaConfig:
    """The settings of OLMo 2."""
    norm_eps = config.get("rms_norm_eps", float, 1e-5)
    return replace(LlamaConfig.read(config), norm_eps=norm_eps, load_qkv=normed_qkv, load_layer=post_norm_layer)


def post_norm_layer(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
    """A layer that reads the residual stream as it is, and normalises what attention and MLP add to it."""
    name, hidden, eps = f"model.layers.{layer_id}", config.hidden_size, config.norm_eps
    return DecoderLayer(
        mixer_norm=Norm(_add),
        mixer=self_attention(config, heads, layer_id, weights),
        mixer_output_norm=RMSNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
        mlp_norm=Norm(_add),
        mlp=gated_mlp(config, layer_id, weights),
        mlp_output_norm=RMSNorm.load(weights, f"{name}.post_feedforward_layernorm", hidden, eps),
        rotation=config.rotation_of(layer_id),
    )


def _add(stream: torch.Tensor, update: torch.Tensor | None) -> torch.Tensor:
    """Stands where other models have a norm: adds the update and returns the residual stream as it is."""
    return stream if update is None else stream.add_(update)


def normed_qkv(config: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource) -> Linear:
    """The projections of the attention of that name; those of queries and of keys are normalised as a whole."""
    names = [f"{name}.{part}_proj" for part in "qkv"]
    qkv = Linear.fused(weights, names, config.hidden_size, heads.qkv, bias=config.has_qkv_bias)
    scales = weights.take(f"{name}.q_norm.weight", heads.queries), weights.take(f"{name}.k_norm.weight", heads.keys)
    if weights.group.place.size == 1:
        normalise = _norms_of_all_heads(weights, scales, config.norm_eps)
    else:
        normalise = _norms_of_shared_heads(weights.group, scales, config.norm_eps)
    sizes = [shard.held for shard in heads.qkv]

    def project(x: torch.Tensor) -> torch.Tensor:
        queries, keys, values = torch.split(qkv(x), sizes, dim=-1)
        return torch.cat((*normalise(queries, keys), values), dim=-1)

    return Linear(project)


def _norms_of_all_heads(weights: WeightSource, scales: tuple[torch.Tensor, torch.Tensor], eps: float) -> _NormPair:
    query_norm, key_norm = (weights.operators.rms_norm(scale, eps) for scale in scales)
    return lambda queries, keys: (query_norm(queries.contiguous(), None), key_norm(keys.contiguous(), None))


def _norms_of_shared_heads(group: Group, scales: tuple[torch.Tensor, torch.Tensor], eps: float) -> _NormPair:
    """The mean square is over the heads of all processes, so two numbers per token are summed over the group. A key
    head that several processes hold counts several times, but so does every other key head."""

    def normalise(queries: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        parts = queries.float(), keys.float()
        squares = torch.stack([part.square().mean(dim=-1) for part in parts], dim=-1)  # [T, 2]
        factors = torch.split((group.sum(squares) / group.place.size + eps).rsqrt_(), 1, dim=-1)
        query, key = (
            (part * factor * scale.float()).to(queries.dtype)
            for part, factor, scale in zip(parts, factors, scales, strict=True)
        )
        return query, key

    return normalise
