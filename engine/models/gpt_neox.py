"""GPT-NeoX and Pythia: LayerNorm, partly rotated heads, attention and MLP side by side or in sequence."""

import re

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.embedding import TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.models.rope import Rope, rope_in
from engine.parallel.shard import Shard

#: Old checkpoints store the causal mask and the rotary frequencies in every layer.
MASKS_AND_FREQUENCIES = re.compile(r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)")


def gpt_neox(config: ConfigReader, weights: WeightSource) -> "GPTNeoX":
    """Builds GPT-NeoX, with attention and MLP in parallel or in sequence."""
    return GPTNeoX(config, weights)


class GPTNeoX:
    """A CausalLM made from config.json directly."""

    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = True
    narrows = True

    def __init__(self, config: ConfigReader, weights: WeightSource) -> None:
        hidden = config.require("hidden_size", int)
        num_layers = config.require("num_hidden_layers", int)
        num_heads = config.require("num_attention_heads", int)
        if hidden % num_heads:
            raise CheckpointError(f"config.json: hidden_size {hidden} is no multiple of {num_heads} heads")
        head_dim = hidden // num_heads
        self.vocab_size = config.require("vocab_size", int)
        self.max_positions = config.get("max_position_embeddings", int, 2048)
        heads = HeadShare.of(AttentionShape(num_heads, num_heads, head_dim), weights.group.place)
        self.attention_shapes = (heads.shape,) * num_layers
        self._rotary = _read_rope(config).rotary(head_dim)
        head = None
        if not config.get("tie_word_embeddings", bool, False):
            head = "lm_head" if "lm_head.weight" in weights else "embed_out"  # newer and older checkpoints
        self._tokens = TokenEmbedding.load(weights, "gpt_neox.embed_in", self.vocab_size, hidden, head=head)
        layers = [_layer(config, i, heads, hidden, weights) for i in range(num_layers)]
        self._layers = Decoder(layers, weights.operators)
        eps = config.get("layer_norm_eps", float, 1e-5)
        self._norm = LayerNorm.load(weights, "gpt_neox.final_layer_norm", hidden, eps)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids)
        return self._norm(*self._layers(hidden, [self._rotary.at(batch.positions)], batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        return self._tokens.logits(hidden)


def _layer(config: ConfigReader, layer_id: int, heads: HeadShare, hidden: int, weights: WeightSource) -> DecoderLayer:
    name = f"gpt_neox.layers.{layer_id}"
    eps = config.get("layer_norm_eps", float, 1e-5)
    ffn = Shard.even(config.require("intermediate_size", int), weights.group.place, "intermediate_size")
    has_bias = config.get("attention_bias", bool, True)
    output = Linear.load(weights, f"{name}.attention.dense", heads.queries, hidden, bias=has_bias)
    qkv = _sorted_qkv(weights, f"{name}.attention.query_key_value", heads, hidden, has_bias=has_bias)
    return DecoderLayer(
        mixer_norm=LayerNorm.load(weights, f"{name}.input_layernorm", hidden, eps),
        mixer=SelfAttention(layer_id, heads.shape, qkv, output),
        mlp_norm=LayerNorm.load(weights, f"{name}.post_attention_layernorm", hidden, eps),
        mlp=MLP(
            Linear.load(weights, f"{name}.mlp.dense_h_to_4h", hidden, ffn, bias=True),
            Linear.load(weights, f"{name}.mlp.dense_4h_to_h", ffn, hidden, bias=True),
            read_activation(config, "hidden_act", "gelu", weights.operators),
        ),
        rotation=0,
        is_parallel=config.get("use_parallel_residual", bool, True),
    )


def _sorted_qkv(weights: WeightSource, name: str, heads: HeadShare, hidden: int, *, has_bias: bool) -> Linear:
    """Reorders rows: checkpoints store query, key and value head by head, SelfAttention takes all queries first."""
    by_head = (heads.shape.num_heads, 3, heads.shape.head_dim)
    rows = Shard(3 * heads.queries.size, tuple((3 * start, 3 * end) for start, end in heads.queries.ranges))
    weight = weights.take_matrix(f"{name}.weight", rows, hidden).view(*by_head, hidden).transpose(0, 1)
    bias = weights.take(f"{name}.bias", rows).view(by_head).transpose(0, 1).reshape(-1) if has_bias else None
    return Linear.bind(weights.operators, weight.reshape(rows.held, hidden), bias)


def _read_rope(config: ConfigReader) -> Rope:
    base = config.get("rotary_emb_base", float, config.get("rope_theta", float, 10_000.0))
    default = Rope(base, share=config.get("rotary_pct", float, 0.25))
    return rope_in(config.section("rope_parameters") or config.section("rope_scaling"), default)
