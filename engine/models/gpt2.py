"""GPT-2: learned positions, LayerNorm before each part, plain MLP, biases everywhere, a tied output head."""

import re

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
from engine.parallel.shard import Shard, Size

#: Old checkpoints store the mask in every layer.
CAUSAL_MASKS = re.compile(r".*\.attn\.(masked_)?bias")


def gpt2(config: ConfigReader, weights: WeightSource) -> "GPT2":
    """Builds GPT-2. Cross attention and scores scaled by layer are refused."""
    return GPT2(config, weights)


class GPT2:
    """A CausalLM made from config.json directly."""

    state_shapes: tuple[StateShape, ...] = ()
    is_capturable = True
    narrows = True

    def __init__(self, config: ConfigReader, weights: WeightSource) -> None:
        config.expect("scale_attn_weights", True)
        config.expect("scale_attn_by_inverse_layer_idx", False)
        config.expect("add_cross_attention", False)
        hidden = config.require("n_embd", int)
        num_layers = config.require("n_layer", int)
        num_heads = config.require("n_head", int)
        if hidden % num_heads:
            raise CheckpointError(f"config.json: n_embd {hidden} is no multiple of n_head {num_heads}")
        self.vocab_size = config.require("vocab_size", int)
        self.max_positions = config.require("n_positions", int)
        heads = HeadShare.of(AttentionShape(num_heads, num_heads, hidden // num_heads), weights.group.place)
        self.attention_shapes = (heads.shape,) * num_layers
        # Checkpoints of the bare decoder (the published ones) lack the prefix.
        prefix = "transformer." if "transformer.wte.weight" in weights else ""
        head = None if config.get("tie_word_embeddings", bool, True) else "lm_head"
        self._tokens = TokenEmbedding.load(weights, f"{prefix}wte", self.vocab_size, hidden, head=head)
        self._positions = Embedding.load(weights, f"{prefix}wpe", self.max_positions, hidden)
        layers = [_layer(config, f"{prefix}h.{i}", i, heads, hidden, weights) for i in range(num_layers)]
        self._layers = Decoder(layers, weights.operators)
        self._norm = LayerNorm.load(weights, f"{prefix}ln_f", hidden, config.get("layer_norm_epsilon", float, 1e-5))

    def forward(self, batch: ForwardBatch) -> torch.Tensor:
        """Final hidden states as in CausalLM.forward, [T or R, hidden]; writes the tokens' keys and values."""
        hidden = self._tokens(batch.token_ids) + self._positions(batch.positions)
        return self._norm(*self._layers(hidden, (), batch))

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """hidden [rows, hidden] -> [rows, vocab_size]."""
        return self._tokens.logits(hidden)


def _layer(
    config: ConfigReader, name: str, layer_id: int, heads: HeadShare, hidden: int, weights: WeightSource
) -> DecoderLayer:
    eps = config.get("layer_norm_epsilon", float, 1e-5)
    ffn = Shard.even(config.get("n_inner", int, 4 * hidden), weights.group.place, "n_inner")
    return DecoderLayer(
        mixer_norm=LayerNorm.load(weights, f"{name}.ln_1", hidden, eps),
        mixer=SelfAttention(
            layer_id,
            heads.shape,
            _transposed(weights, f"{name}.attn.c_attn", hidden, Shard.stacked(heads.qkv)),
            _transposed(weights, f"{name}.attn.c_proj", heads.queries, hidden),
        ),
        mlp_norm=LayerNorm.load(weights, f"{name}.ln_2", hidden, eps),
        mlp=MLP(
            _transposed(weights, f"{name}.mlp.c_fc", hidden, ffn),
            _transposed(weights, f"{name}.mlp.c_proj", ffn, hidden),
            read_activation(config, "activation_function", "gelu_new", weights.operators),
        ),
    )


def _transposed(weights: WeightSource, name: str, in_features: Size, out_features: Size) -> Linear:
    """GPT-2 stores its matrices as [in, out]."""
    weight = weights.take_matrix(f"{name}.weight", in_features, out_features)
    bias = weights.take(f"{name}.bias", out_features)
    summed_over = weights.group if isinstance(in_features, Shard) and not in_features.is_whole else None
    return Linear.bind(weights.operators, weight.t().contiguous(), bias, summed_over=summed_over)
