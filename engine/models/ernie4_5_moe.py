"""ERNIE 4.5 with a mixture of experts in some layers; a learned correction changes which ones are chosen."""

import re
from dataclasses import replace

import torch

from engine.kernels.operators import Routing
from engine.layers.adjacent_pairs import AdjacentPairs
from engine.layers.experts import ExpertNames
from engine.layers.mlp import FeedForward
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.ernie4_5 import read_ernie4_5
from engine.models.llama import Llama, LlamaConfig, MLPLoader, gated_mlp
from engine.models.mixtures import SharedExpert, load_mixture

#: What predicts a second token.
NEXT_TOKEN_PARTS = re.compile(r".*\.rotary_emb\.inv_freq|model\.mtp_.*")


def ernie4_5_moe(config: ConfigReader, weights: WeightSource) -> Llama:
    """Builds ERNIE 4.5 with experts; the parts that predict a second token are not used."""
    settings = replace(read_ernie4_5(config), load_mlp=_experts(config))
    head_dim = settings.shape.head_dim
    return Llama(settings, AdjacentPairs(weights, head_dim=head_dim, num_rotated=head_dim))


def _experts(config: ConfigReader) -> MLPLoader:
    config.expect("moe_use_aux_free", True)
    num_layers = config.require("num_hidden_layers", int)
    first, last = config.get("moe_layer_start_index", int, 1), config.get("moe_layer_end_index", int, -1)
    last = num_layers - 1 if last == -1 else last
    period = config.get("moe_layer_interval", int, 1)
    num_experts, num_shared = config.get("moe_num_experts", int, 64), config.get("moe_num_shared_experts", int, 2)
    routing = Routing(config.get("moe_k", int, 6), sums_to_one=True)
    ffn = config.get("moe_intermediate_size", int, 1536)

    def load_mlp(settings: LlamaConfig, layer_id: int, weights: WeightSource) -> FeedForward:
        if not first <= layer_id <= last or (layer_id + 1) % period:
            return gated_mlp(settings, layer_id, weights)
        name = f"model.layers.{layer_id}.mlp"
        correction = weights.take(f"{name}.moe_statics.e_score_correction_bias", 1, num_experts, dtype=torch.float32)
        return load_mixture(
            weights,
            f"{name}.gate",
            [ExpertNames.projections(f"{name}.experts.{index}") for index in range(num_experts)],
            settings.hidden_size,
            ffn,
            replace(routing, correction=correction[0]),
            SharedExpert(f"{name}.shared_experts", num_shared * ffn) if num_shared else None,
        )

    return load_mlp
