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

#: What is hard to lay out: a table of long words, code without a blank, wide formulas and lines, and right to left.
WIDE = (
    "Some languages compared:\n\n"
    "| Language | Characteristic | Internationalization | Recommended |\n|---|---|---|---|\n"
    "| Python | interpreted, garbage-collected | comprehensive | unconditionally |\n"
    "| Rust | ownership and borrowing | community-maintained | conditionally |\n\n"
    "Call `configuration.internationalization.translations.resolve_all_of_them(language_and_territory=True)` first.\n\n"
    "$$\\int_{-\\infty}^{\\infty} e^{-x^2}\\,dx = \\sqrt{\\pi} "
    "\\approx 1.7724538509055160272981674833411451827975494561$$\n\n"
    "```python\nprint('a line of code that is so long that it fits into no card of any width without scrolling')\n```"
)
RIGHT_TO_LEFT = (
    "\u05e9\u05dc\u05d5\u05dd, \u05d4\u05e0\u05d4 \u05e8\u05e9\u05d9\u05de\u05d4:\n\n"
    "- \u05ea\u05e4\u05d5\u05d7 \u05d0\u05d3\u05d5\u05dd\n- \u05d0\u05d2\u05e1 \u05d9\u05e8\u05d5\u05e7\n\n"
    "1. \u05e8\u05d0\u05e9\u05d5\u05df\n2. \u05e9\u05e0\u05d9\n\n"
    "| \u05e4\u05e8\u05d9 | \u05e6\u05d1\u05e2 |\n|---|---|\n"
    "| \u05ea\u05e4\u05d5\u05d7 | \u05d0\u05d3\u05d5\u05dd |\n\n> \u05d5\u05d6\u05d4 \u05e6\u05d9\u05d8\u05d5\u05d8"
)


#: What model A thinks before it answers a prompt with "think" in it.
THOUGHTS = "12 and 30, so tens first.\n\n<b>40</b> and `2`:\n```\n* no list"


def thoughts(prompt: str) -> str:
    return THOUGHTS if "think" in prompt.lower() else ""


def answers(prompt: str) -> tuple[str, str]:
    text = prompt.lower()
    if text.startswith("raw "):
        return prompt[4:], prompt[4:]
    if "compare" in text:
        return WIDE, RIGHT_TO_LEFT
    if "capital" in text:
        return "The capital of France is Paris.", "It is **Paris**, a city on the river Seine."
    if "12 + 30" in text:
        return CODE, CODE_B
    if "name" in text:
        return "Your name is Ada. I will remember it.", "You are called Ada."
    if "hello" in text:
        return "Hello! I am well, thank you. What can I do for you?", "Good day to you. I am fine. And you?"
    return STORY, STORY_B
