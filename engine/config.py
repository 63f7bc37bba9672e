"""Settings of one engine. Frozen values, checked once when they are made; no I/O, no environment.

The fields of EngineConfig are the only list of engine settings. The worker's flags and variables, the options of
`agon bench` and docs/settings.md follow from them.
"""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from engine.settings import Setting, check_settings

DType = Literal["auto", "bfloat16", "float32"]
Device = Literal["auto", "cpu", "cuda"]
KVDType = Literal["auto", "int8", "fp8"]  #: data types of keys and values in pages
LoadFormat = Literal["auto", "dummy"]
PromptAttentionName = Literal["auto", "triton", "flash-attention", "flashinfer"]

#: Smallest CUDA compute capability that computes fp8 (e4m3): Ada and Hopper.
FP8_CAPABILITY = (8, 9)


def usable_kv_dtypes(capability: tuple[int, int] | None) -> tuple[KVDType, ...]:
    """The data types that keys and values can have on a CUDA device of that compute capability; None: on a CPU."""
    return ("auto", "int8", "fp8") if capability is not None and capability >= FP8_CAPABILITY else ("auto", "int8")


@dataclass(frozen=True, slots=True)
class StepLimits:
    """What fits into one step."""

    max_running: int  #: sequences
    max_batched_tokens: int  #: prompt chunks and decodes together


@dataclass(frozen=True)
class EngineConfig:
    """How to load and run one model. Raises ValueError for a value that is not allowed.

    With dtype "auto" small checkpoints run in float32 on CPU, so that their greedy tokens do not depend on the other
    requests of a batch. float16 is never used.
    """

    model: Annotated[str, Setting("Folder in Hugging Face layout, or a hub id")]
    dtype: Annotated[
        DType,
        Setting(
            "Data type of weights and computation. auto: the checkpoint's own on CUDA; on CPU bfloat16 for large "
            "checkpoints, float32 for those so small that compute is not bound by reading weights"
        ),
    ] = "auto"
    device: Annotated[Device, Setting("What computes. auto: cuda where there is a device, else the CPU")] = "auto"
    load_format: Annotated[
        LoadFormat,
        Setting("Weights. auto: the checkpoint's. dummy: random ones of its shapes, for benchmarks"),
    ] = "auto"
    page_tokens: Annotated[int, Setting("Tokens in a small page", minimum=1)] = 16
    checkpoint_tokens: Annotated[
        int, Setting("Recurrent layers keep a state for later requests every so many tokens", minimum=1)
    ] = 512
    kv_cache_bytes: Annotated[
        int | None, Setting("Bytes of the page pool; unset: what free memory and the model's context allow", minimum=1)
    ] = None
    swap_bytes: Annotated[
        int, Setting("Bytes of host memory for pages of preempted requests; 0: they are always recomputed", minimum=0)
    ] = 0
    max_model_len: Annotated[int | None, Setting("Context limit in tokens; unset: the checkpoint's own", minimum=1)] = (
        None
    )
    max_batched_tokens: Annotated[
        int | None,
        Setting(
            "Token budget of one step, prefill chunks and decodes together; unset: 1024 on CPU, 2048 to 8192 on CUDA "
            "by the device's memory",
            minimum=1,
        ),
    ] = None
    max_running: Annotated[
        int | None,
        Setting("Sequences in one step; unset: 64 on CPU, 64 to 256 on CUDA by the device's memory", minimum=1),
    ] = None
    max_queued_requests: Annotated[int, Setting("Requests that may wait for their first step", minimum=1)] = 256
    max_queued_tokens: Annotated[int, Setting("Prompt tokens that may wait for their first step", minimum=1)] = 131_072
    enable_prefix_caching: Annotated[
        bool, Setting("Keep pages of past prompts for requests with the same prefix", name="prefix_caching")
    ] = True
    close_answers: Annotated[
        bool,
        Setting(
            "Answers in JSON, and tool calls whose form is forced, are closed before max_tokens would cut them; off: "
            "they are cut"
        ),
    ] = True
    seed: Annotated[int, Setting("Seed for requests that bring none, and for dummy weights")] = 0
    operators: Annotated[
        Literal["auto", "torch"],
        Setting("Which operators compute. auto: C++ on CPU where they can be built, Triton on CUDA. torch: neither"),
    ] = "auto"
    kv_dtype: Annotated[
        KVDType,
        Setting(
            "Data type of keys and values in pages. auto: the model's. int8, and fp8 on CUDA devices that compute it: "
            "8 bits and a scale for every token and head, about twice as many tokens fit, less exact"
        ),
    ] = "auto"
    kv_budget: Annotated[
        int | None,
        Setting(
            "On CPU, for models with full attention in all layers: tokens whose keys and values a layer keeps of a "
            "sequence, on average; lower layers keep more. Drops tokens of longer sequences, so answers differ; such "
            "prompts must fit into max_batched_tokens, and no prefix is cached. Unset: layers keep all tokens",
            minimum=16,
        ),
    ] = None
    weights: Annotated[
        Literal["auto", "int8", "int4"],
        Setting(
            "Data type of linear weights, rounded when they are loaded. auto: the checkpoint's. int8: 8.1 bits a "
            "weight; faster, hardly less exact. int4: 5.5 bits on CPU, 4.5 on CUDA, the output head 8; smaller, and "
            "less exact"
        ),
    ] = "auto"
    share_weights: Annotated[
        Literal["auto", "on", "off"],
        Setting(
            "On CPU: matrices lie in a file in the cache folder, which all workers of a checkpoint map. auto: where "
            "that costs nothing (32 MiB and more, huge pages, one NUMA node)"
        ),
    ] = "auto"
    overlap: Annotated[
        bool | None,
        Setting(
            "Plan and launch a step before the tokens of the step before are known. Unset: where a device computes "
            "meanwhile. On a CPU it gains nothing, and tokens come one step later"
        ),
    ] = None
    enforce_eager: Annotated[
        bool, Setting("On CUDA: run decode steps kernel by kernel, without graphs; for finding faults")
    ] = False
    batch_invariant: Annotated[
        bool,
        Setting(
            "Tokens and log probabilities have the same bits whatever runs beside them and however prompts are cut. "
            "On a CPU they have anyway. On CUDA every product has one tile and every token is attended like a decode, "
            "which costs speed, and models with experts, recurrent layers, latent attention or quantised weights are "
            "refused"
        ),
    ] = False
    dependent_launch: Annotated[
        bool,
        Setting(
            "On CUDA, from Hopper on: place a kernel's programs on the device while the kernel before it runs. Off: "
            "one after another, for all models of the process; for finding faults"
        ),
    ] = True
    max_graph_batch: Annotated[
        int, Setting("On CUDA: sequences in the largest decode step that gets a graph", minimum=1)
    ] = 512
    prompt_attention: Annotated[
        PromptAttentionName,
        Setting(
            "On CUDA: what attends prompts. auto: FlashAttention 3 or FlashInfer where one is installed, computes the "
            "same as the Triton kernels and is measured to be faster when the model is loaded. The name of a library: "
            "that one, unmeasured, if it computes the same"
        ),
    ] = "auto"
    device_memory_share: Annotated[
        float,
        Setting(
            "On CUDA: share of the device's memory for weights, steps and pages, where kv_cache_bytes is unset",
            above=0,
            maximum=1,
        ),
    ] = 0.9
    max_adapters: Annotated[
        int,
        Setting(
            "LoRA adapters that are loaded at a time, each served beside the base by the same steps; 0: none can be",
            minimum=0,
            maximum=256,
        ),
    ] = 0
    max_adapter_rank: Annotated[
        int,
        Setting(
            "Largest rank of an adapter; on CUDA each of max_adapters takes memory for this rank beforehand",
            minimum=1,
            maximum=128,
        ),
    ] = 64
    num_threads: Annotated[
        int | None,
        Setting(
            "CPU threads of each process; unset: one for a small model on CPU, else torch's default",
            minimum=1,
            name="threads",
        ),
    ] = None
    draft: Annotated[
        str | None,
        Setting(
            "What proposes tokens, several of which a step verifies: answers take fewer steps and keep every token. "
            "ngram: what followed the newest tokens earlier in the text. Else a smaller model with the same tokenizer, "
            "as a folder or hub id. Unset: nothing"
        ),
    ] = None
    draft_tokens: Annotated[
        int,
        Setting(
            "Most proposed tokens of a sequence in one step; how many are used follows from what they gain",
            minimum=1,
            maximum=64,
        ),
    ] = 8
    tensor_parallel: Annotated[
        int, Setting("Processes (GPUs) that share the model; sizes in bytes and threads are of each of them", minimum=1)
    ] = 1

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def step_limits(self) -> StepLimits:
        """The limits of a step; where they are unset, those of a CPU. Loading a model states those of the device
        (engine/runner/device_defaults.py)."""
        return StepLimits(self.max_running or 64, self.max_batched_tokens or 1024)


@dataclass(frozen=True)
class ModelLimits:
    """Limits of a loaded model that the scheduler needs. The runner makes them, so the scheduler needs no torch."""

    max_model_len: int
    vocab_size: int
    eos_token_ids: frozenset[int] = field(default_factory=frozenset)
