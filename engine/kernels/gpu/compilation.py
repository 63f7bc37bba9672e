"""A kernel configuration that is shipped: what is compiled ahead of time for it, and what must be found in the result.

Each kernel file lists its own (`shipped()`). Tests compile all of them for every architecture without a GPU, and
docs/kernels.md is written from the same list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Compute capabilities that are compiled for: A100, L4 and RTX 4090, H100 and H200.
ARCHITECTURES = (80, 89, 90)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the machine code must show, where it is stated. No configuration may spill registers to memory."""

    max_registers: int = 255
    has_wide_loads: bool = True  #: global loads or asynchronous copies of 128 bits, and no loads of 16 bits
    has_async_copies: bool = False  #: the loop over pages is pipelined through shared memory
    has_wgmma: bool = False  #: warp group products, on architecture 90


@dataclass(frozen=True, slots=True)
class Compilation:
    name: str  #: kernel and configuration, for the report: "paged_attention decode, bfloat16, D 128, G 4"
    kernel: Any  #: the function under @triton.jit
    signature: Mapping[str, str]  #: argument -> Triton type: "*bf16", "*fp32", "i64", "i32", "fp32"
    constants: Mapping[str, Any]  #: every constexpr argument, and arguments that are None
    divisible_by_16: frozenset[str]  #: pointers and integers that the launcher guarantees to be so
    num_warps: int
    num_stages: int
    has_fused_products: bool = True  #: False: a product and a sum stay two roundings, as they are on the host
    expectation: Expectation = field(default_factory=Expectation)
    architectures: tuple[int, ...] = ARCHITECTURES  #: without 80 where float8_e4m3fn is read: it has no such type
