"""The mixture of experts of Nemotron 3: experts of two matrices without a gate, which may read and write fewer channels
than the stream has, and a shared expert of the stream's own channels."""

from dataclasses import dataclass, replace
from typing import Self

import torch

from engine.errors import CheckpointError
from engine.kernels.operators import Activation, Routing
from engine.layers.experts import Experts
from engine.layers.linear import Linear
from engine.layers.mlp import MLP
from engine.layers.weights import WeightSource
from engine.models.config_reader import ConfigReader
from engine.models.sigmoid_experts import read_sigmoid_routing


@dataclass(frozen=True)
class NemotronExperts:
    """Settings of the mixtures; made by read."""

    num_experts: int
    ffn: int  #: intermediate size of an expert
    shared_ffn: int
    latent: int | None  #: channels that experts read and write; None: those of the stream
    has_bias: bool  #: in the shared expert and around the latent channels
    routing: Routing

    @classmethod
    def read(cls, config: ConfigReader) -> Self:
        """Raises CheckpointError for a config that is incomplete."""
        config.expect("n_shared_experts", 1)
        return cls(
            num_experts=config.require("n_routed_experts", int),
            ffn=config.require("moe_intermediate_size", int),
            shared_ffn=config.require("moe_shared_expert_intermediate_size", int),
            latent=config.optional("moe_latent_size", int),
            has_bias=config.get("mlp_bias", bool, False),
            routing=read_sigmoid_routing(config),
        )


class NemotronMixture:
    """expand(experts(compress(x))) + shared(x); the router reads x."""

    def __init__(self, experts: Experts, shared: MLP, compress: Linear | None, expand: Linear | None) -> None:
        """compress, expand: to and from the latent channels; None: experts read and write the stream's."""
        self.is_capturable = experts.is_capturable
        self._experts = experts
        self._shared = shared
        self._compress = compress
        self._expand = expand

    @classmethod
    def load(
        cls, settings: NemotronExperts, name: str, hidden: int, activation: Activation, weights: WeightSource
    ) -> Self:
        """Takes the tensors of the layer part of that name."""
        has_bias, num_experts = settings.has_bias, settings.num_experts
        last = f"{name}.experts.{num_experts - 1}.down_proj"
        if f"{last}.weight" not in weights and not weights.is_quantised(last):
            raise CheckpointError(f"the checkpoint has no tensor {last}.weight")  # before as many experts are made
        # Differences between experts are smaller than what bfloat16 keeps.
        correction = weights.take(f"{name}.gate.e_score_correction_bias", num_experts, dtype=torch.float32)
        latent = hidden if settings.latent is None else settings.latent
        experts = Experts.plain(
            weights.operators,
            Linear.load(weights, f"{name}.gate", hidden, num_experts, bias=False),
            [
                load_plain(
                    weights,
                    f"{name}.experts.{index}",
                    latent,
                    settings.ffn,
                    activation,
                    bias=False,
                    has_all_rows=False,
                )
                for index in range(num_experts)
            ],
            replace(settings.routing, correction=correction),
        )
        shared = load_plain(weights, f"{name}.shared_experts", hidden, settings.shared_ffn, activation, bias=has_bias)
        if settings.latent is None:
            return cls(experts, shared, None, None)
        compress = Linear.load(weights, f"{name}.fc1_latent_proj", hidden, latent, bias=has_bias)
        expand = Linear.load(weights, f"{name}.fc2_latent_proj", latent, hidden, bias=has_bias)
        return cls(experts, shared, compress, expand)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        mixed = self._experts(x if self._compress is None else self._compress(x), routed_by=x)
        if self._expand is not None:
            mixed = self._expand(mixed)
        return mixed.add_(self._shared(x))


def load_plain(
    weights: WeightSource,
    name: str,
    hidden: int,
    ffn: int,
    activation: Activation,
    *,
    bias: bool,
    has_all_rows: bool = True,
) -> MLP:
    """An MLP of that name: up_proj [ffn, hidden] and down_proj [hidden, ffn]. has_all_rows: every token goes through
    it."""
    up = Linear.load(weights, f"{name}.up_proj", hidden, ffn, bias=bias, has_all_rows=has_all_rows)
    down = Linear.load(weights, f"{name}.down_proj", ffn, hidden, bias=bias, has_all_rows=has_all_rows)
    return MLP(up, down, activation)
