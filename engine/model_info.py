"""What a server tells about the model it serves. No torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts of a loaded model; made by load_runner."""

    name: str
    architecture: str
    num_parameters: int
    dtype: str
    context_length: int  #: tokens, after the configured limit
    revision: str  #: short digest of the weights; "dummy" for random ones
    device: str
    kv_dtype: str = "auto"  #: of keys and values in pages, as torch calls it
    operators: str = "torch"  #: what computes: "torch", "triton", or "cpp-" and the instruction set

    @property
    def precision(self) -> str:
        """The dtype, and that of keys and values if it differs: "bfloat16, KV int8"."""
        return self.dtype if self.kv_dtype in ("auto", self.dtype) else f"{self.dtype}, KV {self.kv_dtype}"
