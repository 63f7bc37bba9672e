"""System messages reach the model wherever they stand, also where its chat template rejects or leaves them out."""

from typing import Any

import pytest

from engine.text.chat_template import ChatTemplate
from engine.text.messages import with_read_system

_TURN = "{{ '[' + m.role + ']' + m.content }}"
_REFUSE = "{{ raise_exception('not here') }}"
TEMPLATES = {
    "anywhere": f"{{% for m in messages %}}{_TURN}{{% endfor %}}",
    "first only": "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    + f"{_REFUSE}{{% else %}}{_TURN}{{% endif %}}{{% endfor %}}",
    "first only, others left out": "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
    + f"{_TURN}{{% endif %}}{{% endfor %}}",
    "none, alternating": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    + f"{_REFUSE}{{% endif %}}{_TURN}{{% endfor %}}",
    "of another kind": _REFUSE,
}


def said(*turns: str) -> list[dict[str, Any]]:
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [{"role": roles[turn[0]], "content": turn} for turn in turns]


@pytest.mark.parametrize(
    ("name", "reads", "expected"),
    [
        ("anywhere", (True, True), "[system]s1[system]s2[user]u1[assistant]a1[system]s3[user]u2[system]s4"),
        ("first only", (True, False), "[system]s1\n\ns2[user]u1[assistant]a1[user]s3\n\nu2\n\ns4"),
        ("first only, others left out", (True, False), "[system]s1\n\ns2[user]u1[assistant]a1[user]s3\n\nu2\n\ns4"),
        ("none, alternating", (False, False), "[user]s1\n\ns2\n\nu1[assistant]a1[user]s3\n\nu2\n\ns4"),
    ],
)
def test_no_system_message_is_lost(name: str, reads: tuple[bool, bool], expected: str) -> None:
    template = ChatTemplate(TEMPLATES[name], {})
    assert template.reads_system == reads
    messages = with_read_system(said("s1", "s2", "u1", "a1", "s3", "u2", "s4"), lambda: template.reads_system)
    assert template.render(messages, add_generation_prompt=True) == expected


def test_a_template_that_rejects_every_small_conversation_speaks_for_itself() -> None:
    assert ChatTemplate(TEMPLATES["of another kind"], {}).reads_system == (True, True)


def test_a_message_behind_an_answer_becomes_one_of_the_user_and_parts_stay_parts() -> None:
    picture = {"type": "image"}
    messages = [{"role": "system", "content": [picture]}, *said("u1", "a1", "s2")]
    assert with_read_system(messages, lambda: (False, False)) == [
        {"role": "user", "content": [picture, {"type": "text", "text": "u1"}]},
        *said("a1"),
        {"role": "user", "content": "s2"},
    ]


def test_what_comes_later_changes_no_earlier_message() -> None:
    """Else the cached pages of every earlier turn would be of no use."""
    messages = said("u1", "s1", "a1", "u2", "a2", "s2", "a3")
    whole = with_read_system(messages, lambda: (True, False))
    assert [message["content"] for message in whole] == ["u1\n\ns1", "a1", "u2", "a2", "s2", "a3"]
    for count in range(2, len(messages)):  # each a request, the first with its system message
        part = with_read_system(messages[:count], lambda: (True, False))
        assert part == whole[: len(part)]


def test_templates_are_not_asked_where_there_is_no_system_message() -> None:
    assert with_read_system(said("u1"), lambda: pytest.fail("asked")) == said("u1")
