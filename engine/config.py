"""Settings of one engine and of one request. Frozen values, checked once when they are made; no I/O, no environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from engine.errors import InvalidRequest

DType = Literal["auto", "bfloat16", "float32"]
KVDType = Literal["auto", "int8", "fp8"]


@dataclass(frozen=True)
class EngineConfig:
    """How to load and run one model.

    dtype "auto": the checkpoint's own dtype on CUDA; on CPU bfloat16 for large checkpoints and float32 for those so
    small that compute is not bound by reading weights (then greedy tokens do not depend on who shares the batch).
    Never float16.
    """

    model: str  #: folder in Hugging Face layout, or a hub id
    dtype: DType = "auto"
    device: str = "auto"  #: "auto", "cpu" or "cuda"
    load_format: Literal["auto", "dummy"] = "auto"  #: "dummy": random weights from config.json alone, for benchmarks
    page_tokens: int = 16  #: tokens in a small page
    checkpoint_tokens: int = 512  #: a recurrent layer keeps a state for later requests every that many tokens
    kv_cache_bytes: int | None = None  #: size of the page pool; None: chosen from free memory and the model's context
    swap_bytes: int = 0  #: host memory for the pages of preempted requests; 0: they are always recomputed
    max_model_len: int | None = None  #: context limit in tokens; None: the checkpoint's own
    max_batched_tokens: int = 1024  #: token budget of one step (prefill chunks and decodes together)
    max_running: int = 64  #: sequences in one step
    max_queued_requests: int = 256
    max_queued_tokens: int = 131_072  #: prompt tokens waiting for their first step
    enable_prefix_caching: bool = True
    seed: int = 0  #: used for requests that bring no seed, and for dummy weights
    operators: Literal["auto", "torch"] = "auto"  #: "auto": C++ on CPU, Triton on CUDA; "torch": neither
    #: Of keys and values in pages; "auto": the model's dtype. "int8", and "fp8" on CUDA devices that compute it: 8 bits
    #: and a scale for every token and head, so that about twice as many tokens fit; less exact.
    kv_dtype: KVDType = "auto"
    weights: Literal["auto", "int8"] = "auto"  #: "int8": linear weights of 8 bits, on CPU; faster, less exact
    #: On CPU: matrices lie in a file in the cache folder, which all workers of the same checkpoint map. "auto": where
    #: that costs nothing (32 MiB and more, huge pages, one NUMA node).
    share_weights: Literal["auto", "on", "off"] = "auto"
    #: Plan and launch a step before the tokens of the one before are known. None: where a device computes meanwhile.
    #: On a CPU the launch itself computes: there it gains nothing, tokens only come one step later.
    overlap: bool | None = None
    enforce_eager: bool = False  #: on CUDA: run decode steps kernel by kernel, without graphs; for finding faults
    max_graph_batch: int = 512  #: on CUDA: largest decode step that gets a graph
    device_memory_share: float = 0.9  #: of a CUDA device, for all together, where kv_cache_bytes is not stated
    num_threads: int | None = None  #: torch intra-op threads; None: one for a small model on CPU, else torch's default
    tensor_parallel: int = 1  #: processes (GPUs) that share the model; sizes in bytes and threads are of each of them

    def __post_init__(self) -> None:
        for name in (
            "page_tokens",
            "checkpoint_tokens",
            "max_batched_tokens",
            "max_running",
            "max_queued_requests",
            "max_queued_tokens",
            "tensor_parallel",
            "max_graph_batch",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 < self.device_memory_share <= 1.0:
            raise ValueError(f"device_memory_share must be above 0 and at most 1, got {self.device_memory_share}")
        if self.swap_bytes < 0:
            raise ValueError(f"swap_bytes must not be negative, got {self.swap_bytes}")
        if self.weights not in ("auto", "int8"):
            raise ValueError(f"weights must be auto or int8, got {self.weights!r}")
        if self.kv_dtype not in ("auto", "int8", "fp8"):
            raise ValueError(f"kv_dtype must be auto, int8 or fp8, got {self.kv_dtype!r}")
        if self.share_weights not in ("auto", "on", "off"):
            raise ValueError(f"share_weights must be auto, on or off, got {self.share_weights!r}")
        if self.operators not in ("auto", "torch"):
            raise ValueError(f"operators must be auto or torch, got {self.operators!r}")
        if self.dtype not in ("auto", "bfloat16", "float32"):
            raise ValueError(f"dtype must be auto, bfloat16 or float32, got {self.dtype!r}")


@dataclass(frozen=True)
class SamplingParams:
    """How to continue one prompt. temperature 0 is greedy.

    Random numbers come from a counter-based generator keyed by (seed, output index), so that a sampled continuation
    does not depend on batch neighbours, on preemption, or on the replica that continues it.
    """

    max_tokens: int = 256
    n: int = 1  #: parallel samples of one prompt; they share its pages
    temperature: float = 1.0
    top_k: int = 0  #: 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  #: logits of tokens in prompt or output: positive ones / it, others * it
    presence_penalty: float = 0.0  #: taken from the logits of tokens that occur in the output
    frequency_penalty: float = 0.0  #: taken once for every occurrence in the output
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)  #: token id -> added before all others
    seed: int | None = None
    stop: tuple[str, ...] = ()  #: generation ends before the first of these; the text does not contain it
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0  #: no end-of-sequence and no stop token before that many tokens
    logprobs: int | None = None  #: None: off; k: the sampled token's log probability and those of the k likeliest
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        checks: Mapping[str, bool] = {
            "max_tokens must be at least 1": self.max_tokens >= 1,
            "n must be between 1 and 16": 1 <= self.n <= 16,
            "temperature must be between 0 and 10": 0.0 <= self.temperature <= 10.0,
            "top_k must not be negative": self.top_k >= 0,
            "top_p must be above 0 and at most 1": 0.0 < self.top_p <= 1.0,
            "min_p must be between 0 and 1": 0.0 <= self.min_p <= 1.0,
            "repetition_penalty must be between 0.01 and 100": 0.01 <= self.repetition_penalty <= 100.0,
            "presence_penalty must be between -2 and 2": -2.0 <= self.presence_penalty <= 2.0,
            "frequency_penalty must be between -2 and 2": -2.0 <= self.frequency_penalty <= 2.0,
            "logit_bias must hold at most 300 values between -100 and 100": len(self.logit_bias) <= 300
            and all(token_id >= 0 and -100.0 <= bias <= 100.0 for token_id, bias in self.logit_bias.items()),
            "min_tokens must be between 0 and max_tokens": 0 <= self.min_tokens <= self.max_tokens,
            "stop must hold at most 16 non-empty strings": len(self.stop) <= 16 and all(self.stop),
            "logprobs must be between 0 and 20": self.logprobs is None or 0 <= self.logprobs <= 20,
            "seed must fit into 64 bits": self.seed is None or -(2**63) <= self.seed < 2**64,
        }
        for message, holds in checks.items():
            if not holds:
                raise InvalidRequest(message, param=message.split(" ", 1)[0])

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def needs_history(self) -> bool:
        """Whether what is drawn next depends on the ids of all tokens before it, beside the logits."""
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0


@dataclass(frozen=True)
class ModelLimits:
    """What the scheduler must know of a loaded model; made by the composition root, so that it needs no torch."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int] = field(default_factory=frozenset)
