"""pydantic-ai: text, structured output by tool and by schema, a tool in between, over chat and responses."""

from importlib.metadata import version

from harness import KEY, MODEL, V1, check, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

PROVIDER = OpenAIProvider(base_url=V1, api_key=KEY)
SETTINGS = {"max_tokens": 200, "temperature": 0.0}
MODELS = {
    "chat": OpenAIChatModel(MODEL, provider=PROVIDER),
    "responses": OpenAIResponsesModel(MODEL, provider=PROVIDER),
}


class Reply(BaseModel):
    """The answer."""

    yes: bool


@check("text over chat and responses")
def text():
    outputs = [Agent(model, model_settings=SETTINGS).run_sync("Hello!").output for model in MODELS.values()]
    assert outputs[0] == outputs[1]


for name, model in MODELS.items():

    @check(f"structured output by tool over {name}")
    def by_tool(model=model):
        agent = Agent(model, output_type=ToolOutput(Reply), model_settings=SETTINGS, retries=0)
        assert isinstance(agent.run_sync("Hello!").output, Reply)

    @check(f"structured output by schema over {name}")
    def by_schema(model=model):
        agent = Agent(model, output_type=NativeOutput(Reply), model_settings=SETTINGS, retries=0)
        assert isinstance(agent.run_sync("Hello!").output, Reply)


run(f"pydantic-ai {version('pydantic-ai-slim')}")
