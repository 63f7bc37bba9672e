"""OLMoE: Llama, but with norms over the whole projections of queries and of keys, and experts in place of the MLP."""

from dataclasses import replace

from engine.errors import CheckpointError
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.olmo2 import normed_qkv
from engine.models.qwen2_moe import qwen_experts


def olmoe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds OLMoE; clipped projections, which no published model has, are refused."""
    if config.optional("clip_qkv", float) is not None:
        raise CheckpointError("config.json: clip_qkv is not supported, only null")
    settings = LlamaConfig.read(config)
    settings = replace(
        settings,
        max_positions=config.get("max_position_embeddings", int, 4096),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        has_mlp_bias=False,
        load_qkv=normed_qkv,
        load_mlp=qwen_experts(config, num_experts=64, num_chosen=8, ffn=settings.intermediate_size, shared_ffn=None),
    )
    return Llama(settings, weights)
