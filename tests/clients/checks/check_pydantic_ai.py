"""pydantic-ai over chat, responses and Anthropic's messages: text, stream, structured output by tool and by schema, a
tool's result."""

from importlib.metadata import version

from harness import KEY, MODEL, URL, V1, check, run
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from reply import Reply

PROVIDER = OpenAIProvider(base_url=V1, api_key=KEY)
SETTINGS = {"max_tokens": 200, "temperature": 0.0}
MODELS = {
    "chat": OpenAIChatModel(MODEL, provider=PROVIDER),
    "responses": OpenAIResponsesModel(MODEL, provider=PROVIDER),
    "messages": AnthropicModel(
        MODEL,
        provider=AnthropicProvider(base_url=URL, api_key=KEY),
        profile=AnthropicModelProfile(supports_json_schema_output=True),
    ),
}


def add(a: bool) -> int:
    """Adds."""
    return 1 + a


@check("the same text over chat, responses and messages")
def text():
    outputs = {Agent(model, model_settings=SETTINGS).run_sync("Hello!").output for model in MODELS.values()}
    assert len(outputs) == 1, outputs


@check("messages with the bound that it sends by itself")
def default_bound():
    assert Agent(MODELS["messages"], model_settings={"temperature": 0.0}).run_sync("Hello!").output


for name, model in MODELS.items():

    @check(f"structured output by tool over {name}")
    def by_tool(model=model):
        agent = Agent(model, output_type=ToolOutput(Reply), model_settings=SETTINGS, retries=0)
        assert isinstance(agent.run_sync("Hello!").output, Reply)

    @check(f"structured output by schema over {name}")
    def by_schema(model=model):
        agent = Agent(model, output_type=NativeOutput(Reply), model_settings=SETTINGS, retries=0)
        assert isinstance(agent.run_sync("Hello!").output, Reply)

    @check(f"stream, and the result of a tool, over {name}")
    def result(model=model):
        agent = Agent(model, tools=[add], model_settings=SETTINGS)
        said = [
            ModelRequest(parts=[UserPromptPart("Add.")]),
            ModelResponse(parts=[ToolCallPart("add", {"a": True}, tool_call_id="call_1")]),
            ModelRequest(parts=[ToolReturnPart("add", 2, tool_call_id="call_1")]),
        ]
        whole = agent.run_sync(message_history=said).output
        streamed = agent.run_stream_sync(message_history=said)
        assert "".join(streamed.stream_text(delta=True)) == whole != ""


run(f"pydantic-ai {version('pydantic-ai-slim')}")
