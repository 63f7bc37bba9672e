"""GLM-4-0414: Llama, but each part's output is normed too, adjacent channels of half of each head rotate, and gate and
up are one tensor."""

from dataclasses import replace

from engine.layers.adjacent_pairs import AdjacentPairs
from engine.layers.decoder import DecoderLayer
from engine.layers.heads import HeadShare
from engine.layers.norm import RMSNorm
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig, gated_mlp, self_attention
from engine.models.rope import read_rope


def glm4(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds GLM-4 in the form of April 2025; that of 2024 has another name and other tensors."""
    settings = replace(
        LlamaConfig.read(config),
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1.5625e-7),
        rope=read_rope(config, default_share=0.5),
        has_qkv_bias=config.get("attention_bias", bool, True),
        has_output_bias=False,
        has_mlp_bias=False,
        load_layer=_layer,
    )
    head_dim = settings.shape.head_dim
    num_rotated = int(head_dim * settings.rope.share)
    return Llama(settings, AdjacentPairs(weights, head_dim=head_dim, num_rotated=num_rotated))


def _layer(config: LlamaConfig, heads: HeadShare, layer_id: int, weights: WeightSource) -> DecoderLayer:
    attention_norm, attention_output_norm, mlp_norm, mlp_output_norm = (
        RMSNorm.load(weights, f"model.layers.{layer_id}.{part}", config.hidden_size, config.norm_eps)
        for part in ("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm")
    )
    return DecoderLayer(
        mixer_norm=attention_norm,
        mixer=self_attention(config, heads, layer_id, weights),
        mixer_output_norm=attention_output_norm,
        mlp_norm=mlp_norm,
        mlp=gated_mlp(replace(config, has_fused_weights=True), layer_id, weights),
        mlp_output_norm=mlp_output_norm,
        rotation=0,
    )
