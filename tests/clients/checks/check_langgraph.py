"""langchain-anthropic over Anthropic's messages, and langgraph's agent with it and with langchain-openai."""

from importlib.metadata import version

from harness import KEY, MODEL, URL, V1, check, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent
from reply import Reply

SENT = {"model": MODEL, "api_key": KEY, "max_retries": 0, "temperature": 0, "max_tokens": 200}
ANTHROPIC = ChatAnthropic(base_url=URL, **SENT)
MODELS = {"langchain-anthropic": ANTHROPIC, "langchain-openai": ChatOpenAI(base_url=V1, **SENT)}


@tool
def add(a: bool) -> int:
    """Adds."""
    return 1 + a


@check("langchain-anthropic: invoke, stream with usage, second turn")
def chats():
    whole = ANTHROPIC.invoke("Hello!")
    chunks = list(ANTHROPIC.stream("Hello!"))
    streamed = sum(chunks[1:], start=chunks[0])
    assert streamed.text == whole.text
    assert streamed.usage_metadata["input_tokens"] == whole.usage_metadata["input_tokens"] > 0
    assert ANTHROPIC.invoke([HumanMessage("Hello!"), streamed, HumanMessage("What is 2 + 3?")]).text


@check("langchain-anthropic: tools whole and streamed, the result, the answer")
def tools():
    asked = HumanMessage("Add.")
    forced = ANTHROPIC.bind_tools([add], tool_choice="any")
    chunks = list(forced.stream([asked]))
    for reply in (forced.invoke([asked]), sum(chunks[1:], start=chunks[0])):
        assert reply.tool_calls[0]["name"] == "add"
        results = [ToolMessage("2", tool_call_id=call["id"]) for call in reply.tool_calls]
        ANTHROPIC.bind_tools([add]).invoke([asked, reply, *results])


@check("langchain-anthropic: structured output by tool and by schema")
def structured():
    for method in ("function_calling", "json_schema"):
        assert isinstance(ANTHROPIC.with_structured_output(Reply, method=method).invoke("Hello!"), Reply)


@check("langchain-anthropic: tokens are counted")
def count():
    assert ANTHROPIC.get_num_tokens_from_messages([HumanMessage("Hello!")]) > 0


for name, model in MODELS.items():

    @check(f"langgraph's agent calls a tool and reads its result, with {name}")
    def agent(model=model):
        def choose(state, runtime):
            """A tool must be called first; then the model is free."""
            forced = {} if len(state["messages"]) > 1 else {"tool_choice": "any"}
            return model.bind_tools([add], **forced)

        said = create_react_agent(choose, [add]).invoke({"messages": [("user", "Add.")]}, {"recursion_limit": 8})
        assert [message.type for message in said["messages"][:4]] == ["human", "ai", "tool", "ai"]

    @check(f"langgraph's agent streams its steps and ends with a structured answer, with {name}")
    def ended(model=model):
        steps = create_react_agent(model, [], response_format=Reply)
        parts = list(steps.stream({"messages": [("user", "Hello!")]}, {"recursion_limit": 8}, stream_mode="updates"))
        assert isinstance(parts[-1]["generate_structured_response"]["structured_response"], Reply)


run(f"langchain-anthropic {version('langchain-anthropic')}, langgraph {version('langgraph')}")
