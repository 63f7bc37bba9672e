"""The configurations of products with quantised weights that are compiled ahead of time: each format in the shapes of a
model that is published in it, for decodes and for prompts."""

import torch

from engine.kernels.gpu import quantised_experts
from engine.kernels.gpu.compilation import Compilation, Expectation
from engine.kernels.gpu.packed_codes import CodeForm, Kind, Scales, words_for
from engine.kernels.gpu.quantised_product import _multiply, constants, tiles_of
from engine.kernels.gpu.skinny_product import Activation, InputNorm
from engine.kernels.operators import ClampedGate

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
        _compilation("int4, Qwen3-0.6B gates and ups", _INT4, 1024, 3072, 32, silu, squares=16),
        _compilation("int4, Qwen3-0.6B gates and ups", _INT4, 1024, 3072, 64, silu, squares=16),
        _compilation("int4, Qwen3-0.6B down", _INT4, 3072, 1024, 64, is_added=True),
        _compilation("FP8 by block, Qwen3-0.6B qkv", _FP8, 1024, 4096, 64, squares=16),
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
        *(
            _experts(name, form, shape, num_tokens, gate, is_gated=is_gated)
            for name, form, shape, tokens, gate in (
                ("MXFP4, gpt-oss-20b", _MXFP4, (32, 4, 2880, 2880), (1, 256, 4096), ClampedGate(1.702, 7.0)),
                ("FP8 by block, Qwen3-30B-A3B", _FP8, (128, 8, 2048, 768), (1, 256, 8192), None),
                ("AWQ, Mixtral-8x7B", _AWQ, (8, 2, 4096, 14336), (1, 64, 2048), None),
            )
            for is_gated in (True, False)
            for num_tokens in tokens
        ),
    ]


def _experts(
    name: str,
    form_values: tuple[Kind, Scales, int, int],
    shape: tuple[int, int, int, int],
    num_tokens: int,
    gate: ClampedGate | None,
    *,
    is_gated: bool,
) -> Compilation:
    """shape: experts, chosen, hidden, intermediate size."""
    num_experts, num_chosen, hidden, ffn = shape
    size, num_outputs = (hidden, ffn) if is_gated else (ffn, hidden)
    form = CodeForm(*form_values, words_for(size, _slots(form_values[0])), size)
    tiles = quantised_experts.tiles_for(num_tokens, num_experts, num_chosen, form, num_outputs, torch.bfloat16)
    pointers = {"x_ptr": "*bf16", "output_ptr": "*bf16", "words_ptr": "*i32", "scales_ptr": "*i32"}
    pointers |= {"factors_ptr": "*fp32", "order_ptr": "*i32", "starts_ptr": "*i32"}
    constants_of_form = quantised_experts.constants(
        tiles, form, num_experts, num_chosen, num_outputs, torch.bfloat16, gate, is_gated=is_gated
    )
    if gate is not None:
        pointers["bias_ptr"] = "*fp32"
    product = "gate, up and activation" if is_gated else "down"
    return Compilation(
        name=f"quantised experts {product}, bf16, tiles {tiles.block_n} x {tiles.block_m}, {name}",
        kernel=quantised_experts._multiply,
        signature=pointers | {"x_stride": "i32", "num_choices": "i32"},
        constants=({} if gate is not None else {"bias_ptr": None}) | constants_of_form,
        divisible_by_16=frozenset(pointers) | {"x_stride"},
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
        expectation=Expectation(max_registers=255, has_async_copies=True),
    )


def _slots(kind: Kind) -> int:
    return 8 if kind in (Kind.INT4, Kind.E2M1) else 4


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
    form = CodeForm(*form_values, words_for(size, _slots(form_values[0])), size)
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
