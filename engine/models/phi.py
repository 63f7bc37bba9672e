"""Phi-1 and Phi-2: attention and a plain MLP side by side after one LayerNorm, partly rotated heads, biases everywhere,
in the output head too."""

from dataclasses import replace

from engine.layers.attention import SelfAttention
from engine.layers.decoder import DecoderLayer
from engine.layers.heads import HeadShare
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.norm import LayerNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader, read_activation
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.parallel.shard import Shard


def phi(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds Phi; norms of query and key heads, which no published model has, are refused."""
    config.expect("qk_layernorm", False)
    config.expect("tie_word_embeddings", False)
    activation = read_activation(config, "hidden_act", "gelu_new", weights.operators)

    def load_layer(settings: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
        name, hidden = f"model.layers.{layer_id}", settings.hidden_size
        norm = LayerNorm.load(weights, f"{name}.input_layernorm", hidden, settings.norm_eps)
        ffn = Shard.even(settings.intermediate_size, weights.group.place, "intermediate_size")
        qkv = [f"{name}.self_attn.{part}_proj" for part in "qkv"]
        return DecoderLayer(
            mixer_norm=norm,
            mixer=SelfAttention(
                layer_id,
                heads.shape,
                Linear.fused(weights, qkv, hidden, heads.qkv, bias=True),
                Linear.load(weights, f"{name}.self_attn.dense", heads.queries, hidden, bias=True),
            ),
            mlp_norm=norm,
            mlp=MLP(
                Linear.load(weights, f"{name}.mlp.fc1", hidden, ffn, bias=True),
                Linear.load(weights, f"{name}.mlp.fc2", ffn, hidden, bias=True),
                activation,
            ),
            rotation=0,
            is_parallel=True,
        )

    settings = replace(
        LlamaConfig.read(config, is_gated=False),
        norm_eps=config.get("layer_norm_eps", float, 1e-5),
        rope=read_rope(config, default_share=0.5),
        has_head_bias=True,
        norm_name="model.final_layernorm",
        load_norm=LayerNorm.load,
        load_layer=load_layer,
    )
    return Llama(settings, weights)
