"""The configurations of products with quantised weights that are compiled ahead of time: each format in the shapes of a
model that is published in it, for decodes and for prompts."""

import torch

from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.gpu.packed_codes import CodeForm, Kind, Scales, words_for
from engine.kernels.gpu.quantised_product import _multiply, constants, tiles_of
from engine.kernels.gpu.skinny_product import Activation, InputNorm

#: Multiprocessors of an H200, for which shipped configurations are chosen.
_H200 = 132
_AWQ = (Kind.INT4, Scales.WITH_ZEROS, 0, 128)
_GPTQ = (Kind.INT4, Scales.FLOAT32, 8, 128)
_INT4 = (Kind.INT4, Scales.WITH_ZEROS, 0, 64)
_INT8 = (Kind.INT8, Scales.FLOAT32, 128)
_FP8 = (Kind.E4M3, Scales.FLOAT32, 0, 128)
_MXFP4 = (Kind.E2M1, Scales.EXPONENTS, 0, 32)


def shipped() -> list[Compilation]:
    """Products of decodes with their neighbours, of a few rows, and of prompts."""
    silu, none = Activation.SILU_MUL, Activation.NONE
    return [
        _compilation("AWQ, Llama-3.1-8B qkv", _AWQ, 4096, 6144, 16, squares=64),
        _compilation("AWQ, Llama-3.1-8B gates and ups", _AWQ, 4096, 14336, 16, silu, squares=64),
        _compilation("AWQ, Llama-3.1-8B down", _AWQ, 14336, 4096, 16, is_added=True),
        _compilation("AWQ, Llama-3.1-8B qkv", _AWQ, 4096, 6144, 64),
        _compilation("AWQ, Llama-3.1-8B qkv", _AWQ, 4096, 6144, 512),
        _compilation("GPTQ, Qwen3-0.6B output", _GPTQ, 2048, 1024, 16, is_added=True),
        _compilation("int4, Qwen3-0.6B qkv", _INT4, 1024, 4096, 16, squares=16),
        _compilation("int4, Qwen3-0.6B qkv", _INT4, 1024, 4096, 16, squares=16, dtype="fp16"),
        _compilation("int4, Qwen3-0.6B qkv", _INT4, 1024, 4096, 512),
        _compilation("Q6_K, Qwen3-0.6B down", (Kind.INT8, Scales.FLOAT32, 32, 16), 3072, 1024, 16, is_added=True),
        _compilation("int8, Qwen3-0.6B gates and ups", (*_INT8, 1024), 1024, 3072, 16, silu, squares=16),
        _compilation("int8, Qwen3-0.6B head", (*_INT8, 128), 1024, 151936, 16),
        _compilation("int8, Qwen3-0.6B qkv", (*_INT8, 1024), 1024, 4096, 512),
        _compilation("FP8 by block, Qwen3-0.6B qkv", _FP8, 1024, 4096, 16, squares=16),
        _compilation("FP8 by block, Llama-3.1-8B down", _FP8, 14336, 4096, 16, is_added=True),
        _compilation("FP8 by block, Llama-3.1-8B qkv", _FP8, 4096, 6144, 512),
        _compilation("FP8 by output, Llama-3.1-8B qkv", (*_FP8[:3], 4096), 4096, 6144, 16, none, squares=64),
        _compilation("MXFP4, gpt-oss-20b", _MXFP4, 2880, 2880, 16, none),
        _compilation("int4, Llama-3.2-1B qkv", _INT4, 2048, 3072, 16, dtype="fp32"),
    ]


def _compilation(
    name: str,
    form_values: tuple[Kind, Scales, int, int],
    size: int,
    num_outputs: int,
    num_rows: int,
    activation: Activation = Activation.NONE,
    *,
    squares: int = 0,
    is_added: bool = False,
    dtype: str = "bf16",
) -> Compilation:
    num_channels = num_outputs * (1 if activation is Activation.NONE else 2)
    slots = 8 if form_values[0] in (Kind.INT4, Kind.E2M1) else 4
    form = CodeForm(*form_values, words_for(size, slots), size)
    torch_dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]
    tiles = tiles_of(form, num_channels, num_rows, torch_dtype.itemsize, _H200)
    pointers = {name: f"*{dtype}" for name in ("x_ptr", "output_ptr")} | {"words_ptr": "*i32", "scales_ptr": "*i32"}
    if squares:
        pointers |= {"norm_ptr": "*fp32", "squares_ptr": "*fp32"}
    if is_added:
        pointers["output_squares_ptr"] = "*fp32"
    if tiles.splits > 1:
        pointers |= {"partials_ptr": "*fp32", "counters_ptr": "*i32"}
    optional = ("bias_ptr", "norm_ptr", "squares_ptr", "output_squares_ptr", "partials_ptr", "counters_ptr")
    norm = InputNorm(torch.empty(0), 0.0, squares) if squares else None
    words = [f"quantised product, {dtype}, {size} x {num_channels}", f"tiles {tiles.block_n} x {tiles.block_r}"]
    words += [f"{tiles.splits} splits", name]
    return Compilation(
        name=", ".join(words),
        kernel=_multiply,
        signature=pointers
        | {"x_stride": "i32", "output_stride": "i32", "num_rows": "i32", "factor": "fp32", "eps": "fp32"},
        constants={name: None for name in optional if name not in pointers}
        | constants(form, num_outputs, activation, norm, tiles, torch_dtype)
        | {"ADDS": is_added},
        divisible_by_16=frozenset({*pointers, "x_stride", "output_stride"}),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        expectation=Expectation(max_registers=255, has_async_copies=True),
    )
