"""OPT: learned positions that start at row 2, LayerNorm before each part, plain MLP, biases, a tied output head."""

import re

import torch

from engine.attention.backend import AttentionShape, AttentionStep, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.embedding import Embedding, TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.parallel.shard import Shard

#: None of its tensors.
IGNORED = re.compile(r"(?!)")

_FIRST_POSITION = 2  #: rows of the position table before that of token 0
_EPS = 1e-5


def opt(config: ConfigReader, weights: WeightSource, dtype: torch.dtype, max_model_len: int | None) -> "OPT":
    return OPT(config, weights)


class OPT:
    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = True

    def __init__(self, config: ConfigReader, weights: WeightSource) -> None:
        hidden = config.require("hidden_size", int)
        num_layers = config.require("num_hidden_layers", int)
        num_heads = config.require("num_attention_heads", int)
        if hidden % num_heads:
            raise CheckpointError(f"config.json: hidden_size {hidden} is no multiple of {num_heads} heads")
        # The 350M model alone normalises behind each part and has smaller embeddings.
        config.expect("do_layer_norm_before", True)
        config.expect("word_embed_proj_dim", hidden)
        config.expect("_remove_final_layer_norm", False)
        config.expect("layer_norm_elementwise_affine", True)
        self.vocab_size = config.require("vocab_size", int)
        self.max_positions = config.require("max_position_embeddings", int)
        heads = HeadShare.of(AttentionShape(num_heads, num_heads, hidden // num_heads), weights.group.place)
        self.attention_shapes = (heads.shape,) * num_layers
        # Some published checkpoints lack the prefix.
        prefix = "model.decoder" if "model.decoder.embed_tokens.weight" in weights else "decoder"
        head = None if config.get("tie_word_embeddings", bool, True) else "lm_head"
        self._tokens = TokenEmbedding.load(weights, f"{prefix}.embed_tokens", self.vocab_size, hidden, head=head)
        num_rows = self.max_positions + _FIRST_POSITION
        self._positions = Embedding.load(weights, f"{prefix}.embed_positions", num_rows, hidden)
        self._layers = [_Layer(config, f"{prefix}.layers.{i}", i, heads, hidden, weights) for i in range(num_layers)]
        self._norm = LayerNorm.load(weights, f"{prefix}.final_layer_norm", hidden, _EPS)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        hidden = self._tokens(batch.token_ids) + self._positions(batch.positions + _FIRST_POSITION)
        update = None
        for layer in self._layers:
            update = layer(hidden, update, batch.attention)
        return self._norm(hidden, update)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._tokens.logits(hidden)


class _Layer:
    def __init__(
        self, config: ConfigReader, name: str, layer_id: int, heads: HeadShare, hidden: int, weights: WeightSource
    ) -> None:
        ffn = Shard.even(config.require("ffn_dim", int), weights.group.place, "ffn_dim")
        has_bias = config.get("enable_bias", bool, True)
        self._attention_norm = LayerNorm.load(weights, f"{name}.self_attn_layer_norm", hidden, _EPS)
        qkv = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
        self._attention = SelfAttention(
            layer_id,
            heads.shape,
            Linear.fused(weights, qkv, hidden, heads.qkv, bias=has_bias),
            Linear.load(weights, f"{name}.self_attn.out_proj", heads.queries, hidden, bias=has_bias),
        )
        self._mlp_norm = LayerNorm.load(weights, f"{name}.final_layer_norm", hidden, _EPS)
        up = Linear.load(weights, f"{name}.fc1", hidden, ffn, bias=has_bias)
        down = Linear.load(weights, f"{name}.fc2", ffn, hidden, bias=has_bias)
        self._mlp = MLP(up, down, read_activation(config, "activation_function", "relu", weights.operators))

    def __call__(self, stream: torch.Tensor, update: torch.Tensor | None, attention: AttentionStep) -> torch.Tensor:
        """Adds the last layer's update to the residual stream and returns its own."""
        x = self._attention(self._attention_norm(stream, update), None, attention)
        return self._mlp(self._mlp_norm(stream, x))
