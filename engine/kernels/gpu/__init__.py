"""Kernels for CUDA devices in Triton, one operator per file: kernel, launcher with shape checks, and the configurations
that are shipped. Their meaning is engine/kernels/reference, under the same names. Imported only where triton is."""

from engine.kernels.gpu.pages import copy_pages, gather_pages, scatter_pages
from engine.kernels.gpu.prepare_decode import prepare_decode
from engine.kernels.gpu.store_heads import store_heads

__all__ = ["copy_pages", "gather_pages", "prepare_decode", "scatter_pages", "store_heads"]
