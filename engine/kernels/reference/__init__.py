"""Reference kernels in plain torch: the definition of what the kernels of engine/kernels/gpu compute, not made for
speed.

One file per operator, with the same names as in engine/kernels/gpu. This module implements the protocol StepKernels; it
serves a CUDA runner without Triton, and the tests compare the Triton kernels with it."""

from engine.kernels.reference.activation import gelu_tanh, gelu_tanh_mul, silu_mul
from engine.kernels.reference.choose_experts import choose_experts, order_by_expert
from engine.kernels.reference.gated_delta import gated_delta
from engine.kernels.reference.gated_norm import gated_norm
from engine.kernels.reference.grouped_experts import grouped_experts
from engine.kernels.reference.launching import keep_launches
from engine.kernels.reference.logprobs import top_logprobs
from engine.kernels.reference.mamba import causal_conv, selective_scan
from engine.kernels.reference.mamba2 import head_scan
from engine.kernels.reference.masks import mask_tokens
from engine.kernels.reference.merge_states import merge_states
from engine.kernels.reference.norm import layer_norm, rms_norm
from engine.kernels.reference.paged_attention import attend_decode, attend_mixed
from engine.kernels.reference.pages import copy_pages, gather_pages, scatter_pages
from engine.kernels.reference.penalties import add_biases, penalise
from engine.kernels.reference.prepare_decode import prepare_decode
from engine.kernels.reference.sampling import sample
from engine.kernels.reference.shared_prefix import attend_shared_prefix
from engine.kernels.reference.store_heads import store_heads

__all__ = [
    "add_biases",
    "attend_decode",
    "attend_mixed",
    "attend_shared_prefix",
    "causal_conv",
    "choose_experts",
    "copy_pages",
    "gated_delta",
    "gated_norm",
    "gather_pages",
    "gelu_tanh",
    "gelu_tanh_mul",
    "grouped_experts",
    "head_scan",
    "keep_launches",
    "layer_norm",
    "mask_tokens",
    "merge_states",
    "order_by_expert",
    "penalise",
    "prepare_decode",
    "rms_norm",
    "sample",
    "scatter_pages",
    "selective_scan",
    "silu_mul",
    "store_heads",
    "top_logprobs",
]
