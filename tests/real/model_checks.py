"""The published model, served by our engine, against transformers on the weights that it makes of the same file."""

from pathlib import Path

import torch

from engine.errors import CheckpointError
from engine.llm import LLM
from engine.sampling_params import SamplingParams
from tests.real.checks import Outcome

_PROMPTS = (
    "The capital of France is",
    "Once upon a time",
    "def main():\n",
    "Dear Sir or Madam,",
    "1, 2, 3, 4,",
    "The recipe needs two eggs,",
    "Die Katze sitzt auf",
    "<html><body>",
    "In 1969, the first",
    "Q: Why is the sky blue?\nA:",
)
_NUM_TOKENS = 50
_CHECK = "greedy tokens as transformers, float32"


def greedy_as_transformers(file: Path) -> Outcome:
    """The first tokens of some texts, greedily, in float32. By torch operators: products in C++ of weights in blocks
    round activations to 8 bits."""
    try:
        llm = LLM(str(file), dtype="float32", operators="torch", num_threads=2)
    except CheckpointError as error:
        return Outcome(file.name, _CHECK, 0, 0, f"not served: {error}".replace(f"{file.parent}/", ""))
    prompts = [llm.get_tokenizer().encode(prompt, add_special_tokens=True) for prompt in _PROMPTS]
    params = SamplingParams(max_tokens=_NUM_TOKENS, temperature=0.0, ignore_eos=True)
    ours = [output.outputs[0].token_ids for output in llm.generate(prompts, params)]
    llm.close()
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.float32)
    num_equal = 0
    for prompt, answer in zip(prompts, ours, strict=True):
        tokens = torch.tensor([prompt])
        with torch.inference_mode():
            whole = theirs.generate(tokens, max_new_tokens=_NUM_TOKENS, do_sample=False, eos_token_id=None)
        wanted = whole[0, len(prompt) :].tolist()
        num_equal += sum(a == b for a, b in zip(answer, wanted, strict=False))
    return Outcome(file.name, _CHECK, num_equal, _NUM_TOKENS * len(_PROMPTS))
