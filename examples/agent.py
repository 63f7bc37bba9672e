"""An agent with three tools on the demo model wren, by OpenAI's Agents SDK (`pip install openai-agents`).

`python examples/agent.py [URL of a controller or worker] [question ...]`
"""

import sys
from datetime import datetime

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8100"
QUESTIONS = sys.argv[2:] or ["Hello!", "What is 1234 * 56?", "What time is it?", "Tell me about Mount Kenya."]
FACTS = {"mount kenya": "Mount Kenya is a tall mountain in Africa.", "ravens": "Ravens are large black birds."}


def calculate(expression: str) -> str:
    """Work out an arithmetic expression with + - * /."""
    is_plain = set(expression) <= set("0123456789.+-*/() ") and "**" not in expression
    return str(eval(expression)) if is_plain else "invalid expression"


def current_time() -> str:
    """Tell the current time."""
    return f"{datetime.now():%H:%M}"


def look_up(topic: str) -> str:
    """Look up a topic in the encyclopedia."""
    return FACTS.get(topic.lower(), "Nothing found.")


set_tracing_disabled(True)
model = OpenAIChatCompletionsModel("wren", AsyncOpenAI(base_url=f"{URL}/v1", api_key="none"))
tools = [function_tool(function) for function in (calculate, current_time, look_up)]
agent = Agent("helper", tools=tools, model=model, model_settings=ModelSettings(temperature=0))
for question in QUESTIONS:
    print(f"{question}\n    {Runner.run_sync(agent, question).final_output}")
