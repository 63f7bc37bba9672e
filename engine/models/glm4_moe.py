"""GLM-4.5 and 4.6: Llama, but with the experts of DeepSeek V3, and with half of each head rotated; the large models
norm query and key heads."""

import re
from dataclasses import replace

from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.llama import Llama, LlamaConfig
from engine.models.rope import read_rope
from engine.models.sigmoid_experts import sigmoid_experts

#: The layer after the last one predicts a second token; the published models have 46 and 92 layers.
NEXT_TOKEN_LAYERS = re.compile(r".*\.rotary_emb\.inv_freq|model\.layers\.(46|92)\..*")


def glm4_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds GLM-4.5; the layer that predicts a second token is not used."""
    settings = replace(
        LlamaConfig.read(config),
        max_positions=config.get("max_position_embeddings", int, 131_072),
        norm_eps=config.get("rms_norm_eps", float, 1e-5),
        rope=read_rope(config, default_share=0.5),
        has_output_bias=False,
        has_mlp_bias=False,
        has_head_norm=config.get("use_qk_norm", bool, False),
        load_mlp=sigmoid_experts(config),
    )
    return Llama(settings, weights)
