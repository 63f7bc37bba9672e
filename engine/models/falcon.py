"""Falcon: LayerNorm, a plain MLP, one key head for all queries (7B) or for each group of them (40B on). Attention and
MLP stand side by side, after one norm or after a norm for each; in small early models they follow one another."""

import torch

from engine.attention.backend import AttentionShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import DecoderLayer
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.models.llama import LayerLoader, Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.parallel.shard import Shard


def falcon(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Falcon with rotary positions; alibi (Falcon-RW) is refused."""
    config.expect("alibi", False)
    hidden = config.require("hidden_size", int)
    num_heads = config.require("num_attention_heads", int)
    is_new = config.get("new_decoder_architecture", bool, False)
    num_kv_heads = config.get("num_kv_heads", int, num_heads)
    if not is_new and config.get("multi_query", bool, True):
        num_kv_heads = 1
    if hidden % (2 * num_heads) or num_heads % num_kv_heads:
        raise CheckpointError(f"config.json: hidden_size {hidden}, {num_heads} heads over {num_kv_heads} do not fit")
    has_two_norms = False
    if is_new:
        config.expect("parallel_attn", True)
        has_two_norms = config.get("num_ln_in_parallel_attn", int, 2) == 2
    has_bias = config.get("bias", bool, False)
    num_layers = config.require("num_hidden_layers", int)
    settings = LlamaConfig(
        vocab_size=config.require("vocab_size", int),
        hidden_size=hidden,
        intermediate_size=config.get("ffn_hidden_size", int, 4 * hidden),
        num_layers=num_layers,
        shape=AttentionShape(num_heads, num_kv_heads, hidden // num_heads),
        windows=(None,) * num_layers,
        max_positions=config.get("max_position_embeddings", int, 2048),
        norm_eps=config.get("layer_norm_epsilon", float, 1e-5),
        rope=read_rope(config),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=has_bias,
        has_head_norm=False,
        is_tied=config.get("tie_word_embeddings", bool, True),
        is_parallel=is_new or config.get("parallel_attn", bool, True),
        embedding_name="transformer.word_embeddings",
        norm_name="transformer.ln_f",
        load_norm=LayerNorm.load,
        load_layer=_layer_loader(config, weights, has_two_norms=has_two_norms),
    )
    return Llama(settings, weights)


def _layer_loader(config: ConfigReader, weights: WeightSource, *, has_two_norms: bool) -> LayerLoader:
    """has_two_norms: attention and MLP stand side by side, after a norm each."""
    activation = read_activation(config, "activation", "gelu", weights.operators)

    def load_layer(settings: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
        name, hidden = f"transformer.h.{layer_id}", settings.hidden_size
        norms = ["ln_attn", "ln_mlp"] if has_two_norms else ["input_layernorm"]
        if not settings.is_parallel:
            norms.append("post_attention_layernorm")
        loaded = [LayerNorm.load(weights, f"{name}.{norm}", hidden, settings.norm_eps) for norm in norms]
        ffn = Shard.even(settings.intermediate_size, weights.group.place, "ffn_hidden_size")
        output, has_bias = f"{name}.self_attention.dense", settings.has_mlp_bias
        return DecoderLayer(
            mixer_norm=loaded[0],
            mixer=SelfAttention(
                layer_id,
                heads.shape,
                _sorted_qkv(settings, heads, f"{name}.self_attention.query_key_value", weights),
                Linear.load(weights, output, heads.queries, hidden, bias=settings.has_output_bias),
            ),
            mlp_norm=loaded[-1],
            mlp=MLP(
                Linear.load(weights, f"{name}.mlp.dense_h_to_4h", hidden, ffn, bias=has_bias),
                Linear.load(weights, f"{name}.mlp.dense_4h_to_h", ffn, hidden, bias=has_bias),
                activation,
            ),
            rotation=0,
            is_parallel=settings.is_parallel,
        )

    return load_layer


def _sorted_qkv(settings: LlamaConfig, heads: HeadShare, name: str, weights: WeightSource) -> Linear:
    """Reorders rows: checkpoints store the queries of a group, then their key, then their value; SelfAttention takes
    all queries first."""
    shape, hidden = settings.shape, settings.hidden_size
    ((first, end),), ((first_key, end_key),) = heads.queries.ranges, heads.keys.ranges
    num_own, size = (end_key - first_key) // shape.head_dim, (shape.group_size + 2) * shape.head_dim
    first_group = first_key // shape.head_dim
    rows = Shard(shape.num_kv_heads * size, ((first_group * size, (first_group + num_own) * size),))
    # Where several processes hold the same key, each has some of the queries of its group.
    own_queries = slice(first - first_key * shape.group_size, end - first_key * shape.group_size)

    def sort(tensor: torch.Tensor) -> torch.Tensor:
        groups = tensor.unflatten(0, (num_own, shape.group_size + 2, shape.head_dim))
        queries, keys, values = (groups[:, part].flatten(0, 2) for part in (slice(-2), slice(-2, -1), slice(-1, None)))
        return torch.cat((queries[own_queries], keys, values))

    weight = weights.take_matrix(f"{name}.weight", rows, hidden)
    weight = weight.new_empty((sum(shard.held for shard in heads.qkv), hidden)) if weight.is_meta else sort(weight)
    bias = sort(weights.take(f"{name}.bias", rows)) if settings.has_qkv_bias else None
    return Linear.bind(weights.operators, weight, bias)
