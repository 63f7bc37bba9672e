"""The official anthropic client, each reply validated strictly by the client's own models."""

import anthropic
from harness import KEY, MODEL, URL, check, refusal, run

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=120, _strict_response_validation=True)
HELLO = [{"role": "user", "content": "Hello!"}]
TOOL = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
GREEDY = {"temperature": 0}


def create(**fields):
    asked = {"model": MODEL, "max_tokens": 12, "messages": HELLO, "extra_body": GREEDY, **fields}
    message = client.messages.create(**asked)
    type(message).model_validate(message.model_dump(), strict=True)
    return message


@check("messages: whole, stream, second turn with its own reply")
def messages():
    first = create(system="Be brief.")
    asked = {"model": MODEL, "max_tokens": 12, "messages": HELLO, "system": "Be brief.", "extra_body": GREEDY}
    with client.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text == first.content[-1].text
    assert last.usage.output_tokens == first.usage.output_tokens
    create(messages=[*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": "2 + 3?"}])


@check("messages: stop sequences and limits are told apart")
def stops():
    whole = create(max_tokens=40)
    word = whole.content[0].text.split()[1]
    stopped = create(max_tokens=40, stop_sequences=[word])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", word)
    assert word not in stopped.content[0].text
    assert create(max_tokens=1).stop_reason == "max_tokens"


@check("messages: tools, any, result, answer, streamed input")
def tools():
    asked = {"tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 200}
    first = create(**asked)
    assert first.stop_reason == "tool_use"
    use = first.content[-1]
    assert set(use.input) == {"a"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "42"}
    said = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    create(messages=said, tools=[TOOL])
    with client.messages.stream(model=MODEL, messages=HELLO, extra_body=GREEDY, **asked) as stream:
        kinds = {event.type for event in stream}
        assert stream.get_final_message().content[-1].input == use.input
    assert "input_json" in kinds


@check("messages: the beginning of the answer is continued")
def prefill():
    create(messages=[*HELLO, {"role": "assistant", "content": "Hello"}])


@check("messages: output_config json_schema")
def structured():
    config = {"format": {"type": "json_schema", "schema": TOOL["input_schema"]}}
    assert create(output_config=config, max_tokens=200).content[-1].text.startswith("{")


@check("messages: thinking with a budget")
def thinking():
    create(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=12)


@check("messages: count_tokens is what the prompt takes")
def count():
    counted = client.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.")
    usage = create(system="Be brief.").usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@check("messages: errors have the types of the client")
def errors():
    refusal(anthropic.NotFoundError, lambda: create(model="nobody"))
    refusal(anthropic.BadRequestError, lambda: create(max_tokens=0))


run(f"anthropic {anthropic.__version__}")
