"""What is known of a loaded adapter. No torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """The facts of a loaded adapter; made by engine/adapters."""

    rank: int  #: the largest one
    num_parameters: int
    num_bytes: int  #: in memory
    digest: str  #: hexadecimal, of everything in the folder that decides what it computes
    kind: str  #: "LoRA", "rsLoRA" or "DoRA"
