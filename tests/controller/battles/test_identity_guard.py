"""Which answers reveal their model, in several languages."""

import pytest

from controller.battles.identity_guard import IdentityGuard

GUARD = IdentityGuard(lambda: ["acme/Finch-3B", "robin"])


@pytest.mark.parametrize(
    "answer",
    [
        "I am Finch-3B, how may I help?",
        "Hello! I'm finch 3b.",
        "My name is Robin.",
        "As an AI language model trained by OpenAI, I cannot say.",
        "I am a large language model, developed by Mistral.",
        "I\u2019m ChatGPT.",
        "You can call me Claude.",
        "Ich bin GPT-4.",
        "Je suis un assistant cr\xe9\xe9 par Anthropic.",
        "Soy un modelo entrenado por Google DeepMind.",
        "\u6211\u662fQwen\uff0c\u6709\u4ec0\u4e48\u53ef\u4ee5\u5e2e\u4f60\uff1f",
        "First line.\nI am robin.",
    ],
)
def test_an_answer_that_names_itself_is_noticed(answer: str) -> None:
    assert GUARD.is_revealed(("Fine.", answer), ["Hi"])


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "A robin is a small bird. I am sure you will like it.",
        "OpenAI and Anthropic are companies.",
        "I am happy to help. Llamas live in the Andes.",
        "The finch sings. I am an assistant.",
        "I am amazoned by that.",
        "As an example, take OpenAI. This is what Anthropic says.",
        "Claude Monet painted water lilies; this was in Giverny.",
    ],
)
def test_an_answer_about_something_else_is_left_alone(answer: str) -> None:
    assert not GUARD.is_revealed((answer, ""), ["Hi"])


def test_names_in_the_visitors_own_prompt_do_not_count() -> None:
    assert not GUARD.is_revealed(("Sure: I am Robin Hood!", ""), ["Play Robin Hood."])
    assert GUARD.is_revealed(("Sure: I am Robin Hood, by OpenAI!", "I am ChatGPT"), ["Play Robin Hood."])
