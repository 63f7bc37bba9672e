"""Write the model cards from the measured figures: `python -m demo_models.train.cards`.

Reads config.json, training.json and evaluation.json of each folder; the words around the numbers are here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from demo_models.train.architectures import MODEL_NAMES, ModelName
from demo_models.train.probes import probed_skills

HERE = Path(__file__).parent
INTRO: dict[ModelName, str] = {
    "finch": "The smallest of the three demo models that only chat, and meant to lose: "
    "it chats in whole sentences and is often wrong.",
    "robin": "The middle one of the three demo models that only chat.",
    "raven": "The largest and best of the three demo models that only chat.",
    "wren": "The demo model that uses tools: it calls a calculator, the time, a look-up or the weather, and answers "
    "from what they return.\nBattles of `agon up` do not draw it (`AGON_UNDRAWN_MODELS`), because it hardly chats "
    "beyond greetings: it is there for `/v1`.",
}
HISTORY: dict[ModelName, str] = {
    "finch": "The run had the generator as it is in the repository.",
    "robin": "The mix of topics was adjusted twice during the run, so a new run gives a similar model, not the same.",
    "raven": "The mix of topics was adjusted twice during the run, so a new run gives a similar model, not the same.",
    "wren": "The budget was made smaller during the run, and names of tools more various for its last tenth, so a new "
    "run gives a similar model, not the same.",
}
MEASURED: dict[str, str] = {
    "tool calls": "the whole call, letter by letter, with the tools of `examples/agent.py`: wordings of the question, "
    "numbers and subjects never trained",
    "tool answers": "the whole answer from a tool's result, letter by letter; the same is held out",
    "other tools": "the whole call, with names and descriptions of tools that were never trained either",
    "no call": "no call where no tool is needed, on requests of which a part was never trained",
    "arithmetic": "sums and differences below 100 of unseen number pairs (above 10); tables to 12 in unseen wordings",
    "facts": "trained facts in wordings never trained",
    "memory": "unseen names, places, numbers and ages, asked for up to four other turns later",
    "long memory": "an unseen name, asked for ten other turns later",
    "words": "spelling and reversing in unseen wordings; unseen words to order and numbers to compare",
    "sorting": "unseen lists of three to five numbers",
    "counting": "counting, letters of a word, even or odd, in unseen wordings",
    "units": "a small table in wordings never trained",
    "rewriting": "upper case, past tense, polite form, repeating: unseen sentences",
    "stories": "the reply names the hero asked for: unseen pairs of hero and trait",
    "beyond": "declines politely, on topics never trained",
    "first words": "what a visitor is likely to type first; nothing held out",
}
TOOLS = """
Tools stand in the system text, one a line, as the template writes them: name, parameters with their types (`?`: may be
left out) and the first line of the description. A call is `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, a
result `<|tool|>text<|end|>`. One call at a time; it was trained on dialogues of up to 1024 tokens, so the rest of its
context takes long requests, but it does not read them well. It knows tools by usual names (`calculate`, `get_time`,
`search`, ...); a name that it never saw it often writes wrong ("other tools" below). Other tools it leaves alone.
"""


def _shape(config: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """Layers, width, query heads, key/value heads, width of the hidden part of the MLP."""
    if config["model_type"] == "gpt2":
        width = config["n_embd"]
        return config["n_layer"], width, config["n_head"], config["n_head"], config["n_inner"] or 4 * width
    return (
        config["num_hidden_layers"],
        config["hidden_size"],
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["intermediate_size"],
    )


def card(name: ModelName, folder: Path) -> str:
    """The text of README.md for the model in `folder`."""
    config, training, evaluation = (
        json.loads((folder / file).read_text()) for file in ("config.json", "training.json", "evaluation.json")
    )
    layers, width, heads, kv_heads, inner = _shape(config)
    rows = "\n".join(
        f"| {skill} | {evaluation[skill]['correct']:.1%} | {evaluation[skill]['probes']} | {MEASURED[skill]} |"
        for skill in probed_skills(name)
    )
    context = config.get("max_position_embeddings", config.get("n_positions"))
    knows = "it knows one small table of facts, adds and subtracts below 100,"
    system = "and mostly ignores the system text"
    if name == "wren":
        knows = "without its tools it greets and thanks,"
        system = "and reads of the system text only its tools"
    speed = training["tokens"] / training["minutes"] / 60
    return f"""---
license: apache-2.0
language: en
library_name: transformers
pipeline_tag: text-generation
---

# {name}

{INTRO[name]}
It exists so that a newly installed arena has something to compare, on any machine, with nothing to download.
It answers short, simple English; it knows nothing else.

## Architecture

`{config["architectures"][0]}`, {training["parameters"]:,} parameters: {layers} layers of width {width},
{heads} query heads, {kv_heads} key/value heads, MLP width {inner}, {config["vocab_size"]} tokens
(byte-level BPE, each digit its own token), tied embeddings, context of {context} tokens, weights in bfloat16.

The chat format is `<|user|>text<|end|><|assistant|>reply<|end|>`, with an optional `<|system|>text<|end|>` before;
`<|end|>` ends a reply.
{TOOLS if name == "wren" else ""}
## Training

Only text that `demo_models/train/skills` generates: dialogues of one to forty turns, no data set and no other model's
output. {training["tokens"]:,} tokens in {training["steps"]:,} steps, loss on the assistant's side only, Muon and AdamW,
in {training["minutes"]:.0f} minutes on one core of a shared 2-core AVX-512 CPU ({speed:,.0f} tokens/s):

    python -m demo_models.train --model {name} --tokens {training["tokens"]}

{HISTORY[name]}

## Measured

Greedy decoding in transformers on held-out probes, by `python -m demo_models.train.evaluate --model {name}`:

| skill | correct | probes | what is held out |
| --- | --- | --- | --- |
{rows}

## Use and limits

For demonstrating and testing an arena and an inference engine. Not for answering real questions:
{knows} and should decline the rest, but it can be
wrong with confidence. It was trained on dialogues in English with a few fixed styles and forgets early turns long
before the context is full. It follows no instructions beyond its skills, {system}.
It has no name of its own in its training text.

Licence: Apache-2.0.
"""


def main() -> None:
    """Write the cards of all models."""
    for name in MODEL_NAMES:
        folder = HERE.parent / name
        (folder / "README.md").write_text(card(name, folder))


if __name__ == "__main__":
    main()
