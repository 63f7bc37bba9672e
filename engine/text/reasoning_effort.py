"""How much a model is to think, in the words of its chat template. Knows no tokens."""

from collections.abc import Container, Mapping

EFFORT = "reasoning_effort"  #: OpenAI's name, which is also that of gpt-oss's template
#: Variables of templates that switch thinking on or off, by which Qwen, GLM, DeepSeek and Granite know them.
SWITCHES = ("enable_thinking", "thinking")


def with_effort(kwargs: Mapping[str, object], variables: Container[str]) -> dict[str, object]:
    """The values for a template, with what `reasoning_effort` among them means to one with these variables. A switch
    that has a value keeps it; a template that knows neither is not changed by it."""
    effort = kwargs.get(EFFORT)
    if effort is None:
        return dict(kwargs)
    return {switch: effort != "none" for switch in SWITCHES if switch in variables} | dict(kwargs)
