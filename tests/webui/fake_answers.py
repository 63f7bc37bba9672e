"""Answers of the fake controller's models: markdown of every kind that a page must show."""

MODELS = ("marsh-heron-9m", "tawny-owl-3m", "river-otter-6m", "grey-vole-1m")

STORY = (
    "Once there was a small fox who found a lantern in the snow. She did not know what it was, so she asked the crow. "
    '"It keeps a piece of the day," said the crow. The fox carried it through the long night, and everyone she met '
    "walked beside her for a while.\n\nIn the morning she set the lantern down where she had found it. "
    "Somebody else would need it next winter."
)
STORY_B = (
    "A fox lived at the edge of the wood. One evening the fox found a lantern.\n\n"
    "- It was warm.\n- It was bright.\n- It was not hers.\n\nSo she brought it back to the village and left it at the "
    "first door. The next day there was a bowl of milk on the step."
)
CODE = (
    "Here is a way to add them:\n\n"
    "```python\ndef add(a: int, b: int) -> int:\n    return a + b\n\nprint(add(12, 30))\n```\n\n"
    "So the answer is **42**, or in a formula:\n\n$$12 + 30 = 42$$"
)
CODE_B = "12 + 30 = 42.\n\n| step | value |\n|---|---|\n| tens | 40 |\n| ones | 2 |\n\nThe sum is $40 + 2 = 42$."


def answers(prompt: str) -> tuple[str, str]:
    text = prompt.lower()
    if text.startswith("raw "):
        return prompt[4:], prompt[4:]
    if "capital" in text:
        return "The capital of France is Paris.", "It is **Paris**, a city on the river Seine."
    if "12 + 30" in text:
        return CODE, CODE_B
    if "name" in text:
        return "Your name is Ada. I will remember it.", "You are called Ada."
    if "hello" in text:
        return "Hello! I am well, thank you. What can I do for you?", "Good day to you. I am fine. And you?"
    return STORY, STORY_B
