"""OPT: learned positions that start at row 2, LayerNorm before each part, plain MLP, biases, a tied output head."""

import torch

from engine.attention.backend import AttentionShape, ForwardBatch, StateShape
from engine.errors import CheckpointError
from engine.layers.attention import SelfAttention
from engine.layers.decoder import Decoder, DecoderLayer
from engine.layers.embedding import Embedding, TokenEmbedding
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.parallel.shard import Shard

_FIRST_POSITION = 2  #: rows of the position table before that of token 0
_EPS = 1e-5


def opt(config: ConfigReader, weights: WeightSource) -> "OPT":
    """Builds OPT in every published size but 350M, whose post-norms are refused."""
    return OPT(config, weights)


class OPT:
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
        # Only the 350M model has post-norms and smaller embeddings.
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
        layers = [_layer(config, f"{prefix}.layers.{i}", i, heads, hidden, weights) for i in range(num_layers)]
        self._layers = Decoder(layers, weights.operators)
        self._norm = LayerNorm.load(weights, f"{prefix}.final_layer_norm", hidden, _EPS)

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids) + self._positions(batch.positions + _FIRST_POSITION)
        return self._norm(*self._layers(hidden, (), batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        return self._tokens.logits(hidden)


def _layer(
    config: ConfigReader, name: str, layer_id: int, heads: HeadShare, hidden: int, weights: WeightSource
) -> DecoderLayer:
    ffn = Shard.even(config.require("ffn_dim", int), weights.group.place, "ffn_dim")
    has_bias = config.get("enable_bias", bool, True)
    qkv = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
    return DecoderLayer(
        mixer_norm=LayerNorm.load(weights, f"{name}.self_attn_layer_norm", hidden, _EPS),
        mixer=SelfAttention(
            layer_id,
            heads.shape,
            Linear.fused(weights, qkv, hidden, heads.qkv, bias=has_bias),
            Linear.load(weights, f"{name}.self_attn.out_proj", heads.queries, hidden, bias=has_bias),
        ),
        mlp_norm=LayerNorm.load(weights, f"{name}.final_layer_norm", hidden, _EPS),
        mlp=MLP(
            Linear.load(weights, f"{name}.fc1", hidden, ffn, bias=has_bias),
            Linear.load(weights, f"{name}.fc2", ffn, hidden, bias=has_bias),
            read_activation(config, "activation_function", "relu", weights.operators),
        ),
    )
