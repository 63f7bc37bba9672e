"""What a server tells about the model it serves. No torch."""

from dataclasses import dataclass, field

from engine.sampling_params import PoolingParams


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
    weights: str = ""  #: how linear weights are quantised, "AWQ 4 bits" or "int4"; empty: they are not
    pooling: PoolingParams = field(default_factory=PoolingParams)  #: of requests for vectors that name none
    has_chat_template: bool = True  #: False: a base model, which completes text

    @property
    def precision(self) -> str:
        """The dtype, and those of weights, keys and values if they differ: "bfloat16, AWQ 4 bits, KV int8"."""
        keys_and_values = "" if self.kv_dtype in ("auto", self.dtype) else f"KV {self.kv_dtype}"
        return ", ".join(filter(None, (self.dtype, self.weights, keys_and_values)))
