"""The engine as a library: a few prompts in, answers out, in this process. `python examples/offline_generation.py`"""

import sys

from engine import LLM, SamplingParams

MODEL = sys.argv[1] if len(sys.argv) > 1 else "demo_models/raven"
QUESTIONS = ("Hello! How are you today?", "What is 12 + 30?", "What is the capital of France?")

with LLM(MODEL) as llm:
    conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
    for question, result in zip(QUESTIONS, llm.chat(conversations, SamplingParams(temperature=0)), strict=True):
        print(f"{question}\n    {result.outputs[0].text}")
