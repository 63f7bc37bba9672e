"""What the machine code of each kernel must show, by module and function in engine/kernels/gpu. A kernel that is not
here is expected to load 128 bits at a time. Independent of this, none may spill registers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Expectation:
    """Requirements on the machine code."""

    max_registers: int = 255
    has_wide_loads: bool = True  #: global loads or asynchronous copies of 128 bits, and no loads of 16 bits
    has_async_copies: bool = False  #: the loop over pages is pipelined through shared memory
    has_wgmma: bool = False  #: warp group products, on architecture 90


#: Argument -> value or type; "ALIGNED": names of those that 16 divides.
_Arguments = Mapping[str, Any]


def _attention(arguments: _Arguments) -> Expectation:
    """The speed of decodes depends on occupancy: three programs per multiprocessor, two if pages are converted."""
    registers = 255
    if arguments["MODE"] == "decode" and arguments["HEAD_DIM"] <= 128:
        registers = 168 if arguments["query_ptr"] == arguments["pages_ptr"] else 255
    return Expectation(registers, has_async_copies=True, has_wgmma=arguments["BLOCK_M"] >= 64)


def _experts(arguments: _Arguments) -> Expectation:
    is_small = arguments["BLOCK_M"] == 16
    return Expectation(96 if is_small else 192, has_async_copies=True, has_wgmma=arguments["BLOCK_M"] >= 64)


def _is_aligned(arguments: _Arguments) -> bool:
    """Whether rows of logits begin and end at multiples of 16: not with GPT-2's vocabulary, whose rows are read
    narrowly."""
    return arguments["ALIGNED"] >= {"row_stride", "vocab_size"}


def _draw(arguments: _Arguments) -> Expectation:
    """Two programs per multiprocessor. A single span has fewer logits than the threads can load, so its loads are not
    wide with 16-bit logits."""
    return Expectation(128, has_wide_loads=arguments["logits_ptr"] == "*fp32" and _is_aligned(arguments))


def _logprobs(arguments: _Arguments) -> Expectation:
    return Expectation(128, has_wide_loads=_is_aligned(arguments))


def _scan_spans(arguments: _Arguments) -> Expectation:
    return Expectation(96) if _is_aligned(arguments) else Expectation(128, has_wide_loads=False)


def _penalise(arguments: _Arguments) -> Expectation:
    return Expectation(96, has_wide_loads=arguments["ALIGNED"] >= {"counts_stride", "vocab_size"})


def _product(arguments: _Arguments) -> Expectation:
    """Two programs per multiprocessor for 16 rows in 16 bits. A bias is read narrowly. One step is no loop."""
    has_two = arguments["BLOCK_R"] == 16 and arguments["x_ptr"] != "*fp32"
    return Expectation(
        128 if has_two else 255,
        has_wide_loads=arguments.get("bias_ptr") is None,
        has_async_copies=arguments["STEPS"] > 1,
    )


def _quantised_product(arguments: _Arguments) -> Expectation:
    return Expectation(has_wide_loads=arguments.get("bias_ptr") is None, has_async_copies=True)


def _store_heads(arguments: _Arguments) -> Expectation:
    return Expectation(128 if arguments["HEAD_DIM"] <= 128 else 168)


#: Narrow loads: of indices, of a table, or of a number or two for each thread beside a wide state.
EXPECTATIONS: dict[str, Expectation | Callable[[_Arguments], Expectation]] = {
    "activation:_activate_rows": Expectation(64),
    "adapters:_multiply_down": Expectation(128, has_async_copies=True),
    "adapters:_add_up": Expectation(128, has_wide_loads=False),
    "attend_pages:attend_pages": _attention,
    "choose_experts:_choose": Expectation(64, has_wide_loads=False),
    "choose_experts:_order": Expectation(128, has_wide_loads=False),
    "delta_chunks:_prepare": Expectation(has_wide_loads=False),
    "delta_chunks:_advance_chunks": Expectation(has_wide_loads=False, has_async_copies=True),
    "dequantise:_dequantise": Expectation(128, has_wide_loads=False),
    "gated_delta:_advance": Expectation(128, has_wide_loads=False),
    "gated_delta:_gated_norm": Expectation(64),
    "grouped_experts:_multiply": _experts,
    "grouped_experts:_add": Expectation(64),
    "head_scan_chunks:_advance_chunks": Expectation(has_wide_loads=False, has_async_copies=True),
    "logprobs:_logprobs": _logprobs,
    "mamba:_convolve": Expectation(128),
    "mamba:_convolve_one": Expectation(96),
    "mamba:_keep_last": Expectation(96),
    "mamba:_scan": Expectation(192, has_wide_loads=False),
    "mamba2:_scan": Expectation(has_wide_loads=False),
    "masks:_mask_tokens": Expectation(64, has_wide_loads=False),
    "merge_states:_merge_states": Expectation(64),
    "norm:_norm": Expectation(64),
    "pages:_move_pages": Expectation(40),
    "penalties:_add_biases": Expectation(40, has_wide_loads=False),
    "penalties:_penalise": _penalise,
    "prepare_decode:_prepare_decode": Expectation(40, has_wide_loads=False),
    "quantised_experts:_multiply": Expectation(has_async_copies=True),
    "quantised_product:_multiply": _quantised_product,
    "sampling:_draw": _draw,
    "skinny_product:_multiply": _product,
    "spans:_scan_spans": _scan_spans,
    "store_heads:_store_heads": _store_heads,
}


def expectation_of(kernel: str, arguments: _Arguments) -> Expectation:
    """kernel: "module:function". arguments: types, and values of constants."""
    found = EXPECTATIONS.get(kernel.rpartition(".")[2], Expectation())
    return found if isinstance(found, Expectation) else found(arguments)
