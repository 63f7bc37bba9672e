"""Which form of tool calls a model is trained on, as its chat template and its special tokens tell."""

import re
from collections.abc import Container

from engine.sampling_params import ToolFormat
from engine.text.tool_calls import deepseek, gemma, glm, harmony, kimi, llama, mistral, phi, pythonic, tagged

#: An example of a Python call in a template's instructions: `[name(parameter=value`.
_PYTHON_EXAMPLE = re.compile(r"\[\w+\(\w+\s*=")


def detect_format(template: str, special_tokens: Container[str]) -> ToolFormat | None:
    """The format of a chat template's source. None: it shows none that is known."""

    def shows(*marks: str) -> bool:
        return all(mark in template for mark in marks)

    if shows(harmony.CHANNEL, harmony.MESSAGE):
        return "harmony"
    if shows(deepseek.CALL_BEGIN):
        return "deepseek_v3" if shows("```json") else "deepseek_v31"
    if shows(mistral.CALLS):
        return "mistral" if shows(mistral.ARGS) else "mistral_list"
    if shows(kimi.CALL_BEGIN):
        return "kimi"
    if shows(gemma.BEGIN) or shows(gemma.FUNCTION_BEGIN):
        return "gemma"
    if shows(phi.END) or shows(phi.WORD):
        return "phi"
    if shows("<|tool_call|>"):
        return "granite"
    if shows(glm.BEGIN, glm.KEY):
        return "glm"
    if shows("<tool_call>"):
        return "qwen3_xml" if shows(tagged.FUNCTION) else "hermes"
    if shows(pythonic.START) or _PYTHON_EXAMPLE.search(template):
        return "pythonic"
    if shows(llama.PYTHON_TAG) or (shows("parameters") and llama.PYTHON_TAG in special_tokens):
        return "llama3_json"
    return None


def marks_of(tool_format: ToolFormat) -> tuple[str, ...]:
    """The texts of a format that a tokenizer may have as special tokens."""
    match tool_format:
        case "deepseek_v3" | "deepseek_v31":
            return (
                deepseek.CALLS_BEGIN,
                deepseek.CALLS_END,
                deepseek.CALL_BEGIN,
                deepseek.CALL_END,
                deepseek.SEPARATOR,
            )
        case "gemma":
            return (
                gemma.BEGIN,
                gemma.END,
                gemma.QUOTE,
                gemma.FUNCTION_BEGIN,
                gemma.FUNCTION_END,
                gemma.FUNCTION_QUOTE,
            )
        case "glm":
            return (glm.BEGIN, glm.END, glm.KEY, glm.KEY_END, glm.VALUE, glm.VALUE_END)
        case "harmony":
            return (
                harmony.START,
                harmony.CHANNEL,
                harmony.MESSAGE,
                harmony.CONSTRAIN,
                harmony.END,
                harmony.CALL,
                harmony.RETURN,
            )
        case "kimi":
            return (kimi.CALLS_BEGIN, kimi.CALLS_END, kimi.CALL_BEGIN, kimi.CALL_END, kimi.ARGUMENTS)
        case "llama3_json":
            return (llama.PYTHON_TAG,)
        case "mistral" | "mistral_list":
            return (mistral.CALLS, mistral.ARGS, mistral.CALL_ID)
        case "phi":
            return (phi.CALLS, phi.END)
        case "pythonic":
            return (pythonic.START, pythonic.END)
        case "granite":
            return ("<|tool_call|>", "<tool_call>", tagged.END)
        case "hermes" | "qwen3_xml":
            return ("<tool_call>", tagged.END)
