"""A shipped kernel configuration: the arguments to compile it ahead of time, and what its machine code must show.

Each kernel file lists its own configurations (`shipped()`). Tests compile all of them for every architecture without a
GPU, and docs/kernels.md is written from the same list.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Compute capabilities to compile for: A100; L4 and RTX 4090; H100 and H200.
ARCHITECTURES = (80, 89, 90)


@dataclass(frozen=True, slots=True)
class Expectation:
    """Requirements on the machine code. Independent of them, no configuration may spill registers to memory."""

    max_registers: int = 255
    has_wide_loads: bool = True  #: global loads or asynchronous copies of 128 bits, and no loads of 16 bits
    has_async_copies: bool = False  #: the loop over pages is pipelined through shared memory
    has_wgmma: bool = False  #: warp group products, on architecture 90


@dataclass(frozen=True, slots=True)
class Compilation:
    """One kernel with all arguments of its compilation; made by a kernel file's `shipped()`."""

    name: str  #: kernel and configuration, for the report: "paged_attention decode, bfloat16, D 128, G 4"
    kernel: Any  #: the @triton.jit function
    signature: Mapping[str, str]  #: argument -> Triton type: "*bf16", "*fp32", "i64", "i32", "fp32"
    constants: Mapping[str, Any]  #: all constexpr arguments, and arguments that are None
    divisible_by_16: frozenset[str]  #: pointers (bytes) and integers; the launcher guarantees it
    num_warps: int
    num_stages: int
    max_registers: int | None = None  #: limit given to the compiler, by thread; None: its own choice
    has_fused_products: bool = True  #: False: no FMA; a product and a sum are rounded separately, as on the host
    expectation: Expectation = field(default_factory=Expectation)
    architectures: tuple[int, ...] = ARCHITECTURES  #: without 80 if pages are float8_e4m3fn, which it lacks
