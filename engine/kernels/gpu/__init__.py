"""Triton kernels for CUDA devices, one operator per file: kernel, launcher with shape checks, and the configurations
that are compiled ahead of time. engine/kernels/reference defines what they compute, under the same names. Imported only
if triton is installed."""

from engine.kernels.gpu.launching import keep_launches
from engine.kernels.gpu.logprobs import top_logprobs
from engine.kernels.gpu.masks import mask_tokens
from engine.kernels.gpu.merge_states import merge_states
from engine.kernels.gpu.paged_attention import attend_decode, attend_mixed
from engine.kernels.gpu.pages import copy_pages, gather_pages, scatter_pages
from engine.kernels.gpu.penalties import add_biases, penalise
from engine.kernels.gpu.prepare_decode import prepare_decode
from engine.kernels.gpu.sampling import sample
from engine.kernels.gpu.shared_prefix import attend_shared_prefix
from engine.kernels.gpu.store_heads import store_heads

__all__ = [
    "add_biases",
    "attend_decode",
    "attend_mixed",
    "attend_shared_prefix",
    "copy_pages",
    "gather_pages",
    "keep_launches",
    "mask_tokens",
    "merge_states",
    "penalise",
    "prepare_decode",
    "sample",
    "scatter_pages",
    "store_heads",
    "top_logprobs",
]
