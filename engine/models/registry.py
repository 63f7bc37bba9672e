"""Maps the name in config.json's `architectures` to the code that serves the checkpoint.

One entry per architecture is all that the rest of Agon needs: the worker builds the model from it, `agon plan` asks the
same code what its layers store, `docs/models.md` is written from it (`docs/models_table.py`), and the tests require a
tiny checkpoint of each (`tests/engine/checkpoints.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from engine.errors import CheckpointError
from engine.json_files import quoted
from engine.layers.weights import WeightSource
from engine.models.bamba import bamba
from engine.models.causal_lm import CausalLM
from engine.models.class_defaults import CLASS_DEFAULTS
from engine.models.cohere import cohere, cohere2
from engine.models.config_reader import ConfigReader
from engine.models.deepseek import NEXT_TOKEN_LAYERS as NEXT_TOKEN_LAYERS_OF_DEEPSEEK
from engine.models.deepseek import deepseek_v2, deepseek_v3, glm4_moe_lite
from engine.models.ernie4_5 import ernie4_5
from engine.models.ernie4_5_moe import NEXT_TOKEN_PARTS, ernie4_5_moe
from engine.models.exaone4 import exaone4
from engine.models.falcon import falcon
from engine.models.falcon_h1 import falcon_h1
from engine.models.gemma import gemma
from engine.models.gemma2 import gemma2
from engine.models.gemma3 import VISION_TENSORS, gemma3, gemma3_with_vision
from engine.models.gemma3n import gemma3n
from engine.models.gemma4 import TOWER_TENSORS, UNUSED_TENSORS, gemma4, gemma4_with_towers
from engine.models.glm4 import glm4
from engine.models.glm4_moe import NEXT_TOKEN_LAYERS, glm4_moe
from engine.models.gpt2 import CAUSAL_MASKS, gpt2
from engine.models.gpt_neox import MASKS_AND_FREQUENCIES, gpt_neox
from engine.models.gpt_oss import gpt_oss
from engine.models.granite import granite
from engine.models.granite_hybrid import granite_hybrid
from engine.models.granite_moe import granite_moe
from engine.models.hunyuan import hunyuan, hunyuan_moe
from engine.models.jamba import jamba
from engine.models.kimi_linear import kimi_linear
from engine.models.lfm2 import lfm2
from engine.models.lfm2_moe import lfm2_moe
from engine.models.llama import ROTARY_FREQUENCIES, llama
from engine.models.llama4 import LLAMA4_VISION, llama4, llama4_with_vision
from engine.models.mamba import falcon_mamba, mamba
from engine.models.mamba2 import mamba2
from engine.models.minimax_m2 import minimax_m2
from engine.models.ministral3 import ministral3
from engine.models.mistral import ministral, mistral
from engine.models.mistral3 import MISTRAL3_VISION, mistral3
from engine.models.mixtral import mixtral
from engine.models.nemotron_h import NEXT_TOKEN_LAYERS_OF_NEMOTRON, nemotron_h
from engine.models.olmo2 import olmo2
from engine.models.olmo3 import olmo3
from engine.models.olmoe import olmoe
from engine.models.opt import opt
from engine.models.phi import phi
from engine.models.phi3 import phi3
from engine.models.phimoe import phimoe
from engine.models.qwen2 import qwen2
from engine.models.qwen2_moe import qwen2_moe
from engine.models.qwen3 import qwen3
from engine.models.qwen3_5 import EXTRA_TENSORS, qwen3_5, qwen3_5_moe
from engine.models.qwen3_moe import qwen3_moe
from engine.models.qwen3_next import qwen3_next
from engine.models.smollm3 import smollm3
from engine.models.stablelm import stablelm
from engine.models.starcoder2 import starcoder2
from engine.models.through_transformers.way import build_through_transformers, is_installed

#: (config.json, weights) -> model. Raises CheckpointError for settings that the code does not implement.
ModelBuilder = Callable[[ConfigReader, WeightSource], CausalLM]


@dataclass(frozen=True)
class Architecture:
    """One registered architecture: what serves it, and what the documentation says about it."""

    name: str  #: in config.json's `architectures`, which is also the class in transformers
    builder: ModelBuilder
    summary: str  #: what is special about it: a cell of docs/models.md
    refused: str = ""  #: checkpoints of this name that raise CheckpointError: a cell of docs/models.md
    ignored: re.Pattern[str] = ROTARY_FREQUENCIES  #: tensors of its checkpoints that the model need not read
    is_divisible: bool = True  #: whether several processes can share it (tensor parallelism)
    code: Literal["agon", "transformers"] = "agon"  #: whose modelling code runs it

    def build(self, config: ConfigReader, weights: WeightSource) -> CausalLM:
        """The model. Raises CheckpointError for settings that the code does not implement."""
        return self.builder(config.with_defaults(CLASS_DEFAULTS.get(self.name, {})), weights)


_NO_TENSORS = re.compile(r"(?!)")
_ALL_TENSORS = re.compile(r".*", re.DOTALL)

_REGISTERED = (
    Architecture("LlamaForCausalLM", llama, "Llama 1 to 3.x; linear, llama3, yarn and longrope scaling of positions"),
    Architecture("MistralForCausalLM", mistral, "sliding window in every layer, unless it is null"),
    Architecture("MinistralForCausalLM", ministral, "sliding window in the layers that `layer_types` lists"),
    Architecture("Qwen2ForCausalLM", qwen2, "biases; windows where `use_sliding_window` is set"),
    Architecture("Qwen3ForCausalLM", qwen3, "normalised heads; windows as in Qwen2"),
    Architecture("Gemma2ForCausalLM", gemma2, "windows in every other layer, soft caps on scores and logits"),
    Architecture(
        "Gemma3ForCausalLM",
        gemma3,
        "windows in five layers of six, two bases of positions; text only",
        "images, bidirectional attention",
    ),
    Architecture(
        "Gemma3ForConditionalGeneration",
        gemma3_with_vision,
        "the text model of the Gemma 3 checkpoints with a vision tower",
        "images",
        ignored=VISION_TENSORS,
    ),
    Architecture(
        "Gemma3nForCausalLM",
        gemma3n,
        "alternating updates of several streams, per-layer embeddings, keys and values shared by layers; text only",
        "Gemma3nForConditionalGeneration, bidirectional attention",
        ignored=UNUSED_TENSORS,
        is_divisible=False,
    ),
    Architecture(
        "Gemma4ForCausalLM",
        gemma4,
        "two sizes of heads, keys and values shared by layers, per-layer embeddings, mixture of experts; text only",
        "images, sounds, bidirectional attention",
        ignored=UNUSED_TENSORS,
    ),
    Architecture(
        "Gemma4ForConditionalGeneration",
        gemma4_with_towers,
        "the text model of the Gemma 4 checkpoints with towers for images and sounds",
        "images, sounds, bidirectional attention",
        ignored=re.compile(f"{UNUSED_TENSORS.pattern}|{TOWER_TENSORS.pattern}"),
    ),
    Architecture(
        "DeepseekV2ForCausalLM", deepseek_v2, "latent attention: one vector per token is stored; mixture of experts"
    ),
    Architecture(
        "DeepseekV3ForCausalLM",
        deepseek_v3,
        "V3, R1, Kimi K2 and Moonlight; latent attention, sigmoid experts in groups",
        ignored=NEXT_TOKEN_LAYERS_OF_DEEPSEEK,
    ),
    Architecture(
        "Glm4MoeLiteForCausalLM",
        glm4_moe_lite,
        "GLM-4.7-Flash; latent attention, sigmoid experts",
        ignored=NEXT_TOKEN_LAYERS_OF_DEEPSEEK,
    ),
    Architecture("Phi3ForCausalLM", phi3, "Phi-3 and Phi-4; windows, partly rotated heads, longrope scaling"),
    Architecture("Olmo2ForCausalLM", olmo2, "OLMo 2; post-norms, norms over whole projections of queries and keys"),
    Architecture("MixtralForCausalLM", mixtral, "mixture of experts"),
    Architecture("Qwen2MoeForCausalLM", qwen2_moe, "mixture of experts and a shared expert; Qwen1.5-MoE too"),
    Architecture("Qwen3MoeForCausalLM", qwen3_moe, "mixture of experts in all layers or in some"),
    Architecture(
        "Qwen3NextForCausalLM",
        qwen3_next,
        "gated delta nets, gated attention in every fourth layer, mixture of experts",
        ignored=EXTRA_TENSORS,
    ),
    Architecture("Qwen3_5ForCausalLM", qwen3_5, "as Qwen3-Next, but dense", ignored=EXTRA_TENSORS),
    Architecture("Qwen3_5MoeForCausalLM", qwen3_5_moe, "as Qwen3-Next", ignored=EXTRA_TENSORS),
    Architecture(
        "Qwen3_5ForConditionalGeneration",
        qwen3_5,
        "the text model of the Qwen3.5 checkpoints with a vision tower; Qwen3.6 too",
        "images",
        ignored=EXTRA_TENSORS,
    ),
    Architecture(
        "Qwen3_5MoeForConditionalGeneration",
        qwen3_5_moe,
        "likewise, with a mixture of experts",
        "images",
        ignored=EXTRA_TENSORS,
    ),
    Architecture("GPTNeoXForCausalLM", gpt_neox, "Pythia too; partly rotated heads", ignored=MASKS_AND_FREQUENCIES),
    Architecture(
        "OPTForCausalLM", opt, "learned positions", "the 350M model, which has post-norms", ignored=_NO_TENSORS
    ),
    Architecture(
        "MambaForCausalLM",
        mamba,
        "no attention: two states per layer, whatever the length",
        ignored=_NO_TENSORS,
        is_divisible=False,
    ),
    Architecture(
        "JambaForCausalLM",
        jamba,
        "Mamba layers, attention in every eighth, mixture of experts",
        ignored=_NO_TENSORS,
        is_divisible=False,
    ),
    Architecture(
        "FalconMambaForCausalLM",
        falcon_mamba,
        "Mamba with normalised dt, B and C",
        ignored=_NO_TENSORS,
        is_divisible=False,
    ),
    Architecture("Mamba2ForCausalLM", mamba2, "Mamba-2, Codestral Mamba too", ignored=_NO_TENSORS, is_divisible=False),
    Architecture(
        "BambaForCausalLM", bamba, "Mamba-2 layers, attention with half-rotated heads in some", is_divisible=False
    ),
    Architecture(
        "FalconH1ForCausalLM", falcon_h1, "attention and Mamba-2 side by side in every layer", is_divisible=False
    ),
    Architecture(
        "GraniteMoeHybridForCausalLM",
        granite_hybrid,
        "Granite 4: Mamba-2 or attention; shared MLP, with or without mixture of experts",
        is_divisible=False,
    ),
    Architecture(
        "NemotronHForCausalLM",
        nemotron_h,
        "one part per layer: Mamba-2, attention, MLP, or mixture of experts (Nemotron 3)",
        ignored=NEXT_TOKEN_LAYERS_OF_NEMOTRON,
        is_divisible=False,
    ),
    Architecture(
        "KimiLinearForCausalLM",
        kimi_linear,
        "delta nets with a decay for every channel, latent attention without positions, sigmoid experts",
        is_divisible=False,
    ),
    Architecture("Lfm2ForCausalLM", lfm2, "gated short convolutions, attention in some layers", is_divisible=False),
    Architecture(
        "Lfm2MoeForCausalLM", lfm2_moe, "LFM2 with mixture of experts in the upper layers", is_divisible=False
    ),
    Architecture("GPT2LMHeadModel", gpt2, "learned positions", ignored=CAUSAL_MASKS),
    Architecture("CohereForCausalLM", cohere, "Command R; attention and MLP side by side, normalised heads"),
    Architecture("Cohere2ForCausalLM", cohere2, "Command R7B, Command A; windows, full attention without positions"),
    Architecture("Starcoder2ForCausalLM", starcoder2, "LayerNorm, plain MLP, one window for all layers, or none"),
    Architecture("Glm4ForCausalLM", glm4, "GLM-4-0414; norms before and after each part, partly rotated heads"),
    Architecture("StableLmForCausalLM", stablelm, "LayerNorm, partly rotated heads; StableLM 2 too"),
    Architecture("PhiForCausalLM", phi, "Phi-1 and Phi-2; attention and MLP side by side", "normalised heads"),
    Architecture(
        "FalconForCausalLM", falcon, "one key head, or one per group; attention and MLP side by side", "alibi"
    ),
    Architecture("Ernie4_5ForCausalLM", ernie4_5, "adjacent channels rotate together"),
    Architecture(
        "Ernie4_5_MoeForCausalLM",
        ernie4_5_moe,
        "mixture of experts with a corrected choice, shared experts",
        ignored=NEXT_TOKEN_PARTS,
    ),
    Architecture(
        "Glm4MoeForCausalLM",
        glm4_moe,
        "GLM-4.5 to 4.7; sigmoid experts with a corrected choice, in groups, and shared experts",
        ignored=NEXT_TOKEN_LAYERS,
    ),
    Architecture("HunYuanDenseV1ForCausalLM", hunyuan, "heads normalised after their rotation"),
    Architecture("HunYuanMoEV1ForCausalLM", hunyuan_moe, "mixture of experts and a shared expert"),
    Architecture("OlmoeForCausalLM", olmoe, "mixture of experts, norms over whole projections", "clipped projections"),
    Architecture("GraniteMoeForCausalLM", granite_moe, "mixture of experts; factors on the parts of the network"),
    Architecture("MiniMaxM2ForCausalLM", minimax_m2, "sigmoid experts with a corrected choice; partly rotated heads"),
    Architecture(
        "PhimoeForCausalLM", phimoe, "Phi-3.5-MoE; LayerNorm, experts weighted by SparseMixer, longrope scaling"
    ),
    Architecture("GemmaForCausalLM", gemma, "Gemma 1; scaled embeddings, norms around one"),
    Architecture(
        "GptOssForCausalLM",
        gpt_oss,
        "windows in every other layer, attention sinks, yarn scaling, mixture of experts with biases, in MXFP4 too",
    ),
    Architecture("Ministral3ForCausalLM", ministral3, "yarn scaling, queries that grow with their position"),
    Architecture(
        "Mistral3ForConditionalGeneration",
        mistral3,
        "the text model (Mistral or Ministral 3) of the checkpoints with a vision tower",
        "images, other text models",
        ignored=MISTRAL3_VISION,
    ),
    Architecture("Olmo3ForCausalLM", olmo3, "OLMo 2 with windows in three layers of four, yarn scaling in the others"),
    Architecture("SmolLM3ForCausalLM", smollm3, "layers without positions"),
    Architecture("Exaone4ForCausalLM", exaone4, "EXAONE 4; post-norms, windows, no positions in layers without one"),
    Architecture(
        "Llama4ForCausalLM", llama4, "attention in chunks, layers without positions, experts with a shared one"
    ),
    Architecture(
        "Llama4ForConditionalGeneration",
        llama4_with_vision,
        "the text model of the Llama 4 checkpoints with a vision tower",
        "images",
        ignored=LLAMA4_VISION,
    ),
    Architecture("GraniteForCausalLM", granite, "Granite 3, dense; factors on the parts of the network"),
)

ARCHITECTURES: Mapping[str, Architecture] = {architecture.name: architecture for architecture in _REGISTERED}


def registered_architecture(config: ConfigReader) -> Architecture | None:
    """The first registered name in `architectures`; None where Agon has no code for any of them.

    Raises CheckpointError for a config.json without `architectures`.
    """
    names = config.require("architectures", list)
    return next((ARCHITECTURES[name] for name in names if isinstance(name, str) and name in ARCHITECTURES), None)


def architecture_of(config: ConfigReader) -> Architecture:
    """The architecture that serves this checkpoint: a registered one, or transformers' own code for the first name.

    Whether that code can run on pages is found out when the model is built. Raises CheckpointError, with the supported
    names, if Agon has no code and transformers is not installed.
    """
    architecture = registered_architecture(config)
    if architecture is not None:
        return architecture
    names = [name for name in config.require("architectures", list) if isinstance(name, str)]
    if not names or not is_installed():
        raise CheckpointError(
            f"no code for architecture {quoted(names)}; transformers' code may run it: pip install "
            f"'agon[transformers]'; docs/models.md lists the {len(ARCHITECTURES)} that run without"
        )
    return through_transformers(names[0])


def through_transformers(name: str) -> Architecture:
    """The architecture of that name as transformers' modelling code runs it on pages."""
    return Architecture(
        name,
        partial(build_through_transformers, name, tuple(ARCHITECTURES)),
        "transformers' modelling code",
        ignored=_ALL_TENSORS,  # what is left over has raised an error by then, with the names that transformers knows
        is_divisible=False,
        code="transformers",
    )
