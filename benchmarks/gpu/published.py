"""What others have published about these models, in output tokens per second. None is the same test as ours."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Published:
    """One figure: the engine, what it ran on, the workload, and where the figure is from."""

    model: str
    engine: str
    device: str
    work: str
    tokens_per_s: float
    source: str


_TENSORRT = "TensorRT-LLM, docs/source/performance/perf-overview.md"
_AIMULTIPLE = "research.aimultiple.com/inference-engines"
_NANO = "github.com/cosmoliu2002/nano-vllm-triton, issue 1"

PUBLISHED: tuple[Published, ...] = (
    Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H200", "1,000 in, 1,000 out, full load", 17_744, _TENSORRT),
    Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H200", "500 in, 2,000 out, full load", 20_770, _TENSORRT),
    Published("llama-3.1-8b", "TensorRT-LLM, FP8", "H100", "1,000 in, 1,000 out, full load", 15_220, _TENSORRT),
    Published("llama-3.1-8b", "SGLang", "H100", "1,000 ShareGPT prompts", 16_215, _AIMULTIPLE),
    Published("llama-3.1-8b", "LMDeploy", "H100", "1,000 ShareGPT prompts", 16_132, _AIMULTIPLE),
    Published("llama-3.1-8b", "vLLM with FlashInfer", "H100", "1,000 ShareGPT prompts", 12_553, _AIMULTIPLE),
    Published("qwen3-0.6b", "nano-vllm-triton", "A800", "256 requests of 100 to 1,024", 10_009, _NANO),
    Published("qwen3-0.6b", "vLLM 0.10.2", "A800", "256 requests of 100 to 1,024", 8_588, _NANO),
    Published("llama-3.2-1b", "nano-vllm-triton", "A800", "256 requests of 100 to 1,024", 15_068, _NANO),
    Published("llama-3.2-1b", "vLLM 0.10.2", "A800", "256 requests of 100 to 1,024", 12_627, _NANO),
)
