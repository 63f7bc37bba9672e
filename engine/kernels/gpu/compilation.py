"""A shipped kernel configuration: how it is compiled ahead of time, and what its machine code must show.

Each kernel file lists its configurations (`shipped()`). Tests compile all of them for every architecture without a GPU,
and docs/kernels.md is written from the same list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Compute capabilities of compiled configurations: A100; L4 and RTX 4090; H100 and H200.
ARCHITECTURES = (80, 89, 90)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the machine code must show. Beside this, no configuration may spill registers to memory."""

    max_registers: int = 255
    has_wide_loads: bool = True  #: global loads or asynchronous copies of 128 bits, and no loads of 16 bits
    has_async_copies: bool = False  #: the loop over pages is pipelined through shared memory
    has_wgmma: bool = False  #: warp group products, on architecture 90


@dataclass(frozen=True, slots=True)
class Compilation:
    """One kernel with its types and constants; compiled once per architecture."""

    name: str  #: kernel and configuration, for the report: "paged_attention decode, bfloat16, D 128, G 4"
    kernel: Any  #: the function decorated with @triton.jit
    signature: Mapping[str, str]  #: argument -> Triton type: "*bf16", "*fp32", "i64", "i32", "fp32"
    constants: Mapping[str, Any]  #: every constexpr argument, and arguments that are None
    divisible_by_16: frozenset[str]  #: pointers and integers for which the launcher guarantees this
    num_warps: int
    num_stages: int
    has_fused_products: bool = True  #: False: products and sums are rounded separately, as on the host
    expectation: Expectation = field(default_factory=Expectation)
    architectures: tuple[int, ...] = ARCHITECTURES  #: without 80 if it reads float8_e4m3fn
