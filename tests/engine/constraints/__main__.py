"""500 schemas: those of a checkout of JSON-Schema-Test-Suite that are served, and generated ones, with a random model;
and 1,000 answers of the demo models under 20 schemas that a model can go on with for ever, and 240 greedy ones, which
closing must not change where they end by themselves. Prints JSON; status 1 if an answer is cut, invalid or changed.

    python -m tests.engine.constraints [--suite FOLDER] [--count 500]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from engine.llm import LLM
from tests.engine.checkpoints import save
from tests.engine.constraints.schemas import ENDLESS, generated, of_suite
from tests.engine.constraints.validity import changed_by_closing, judge

PROMPTS = ("Tell me about it.", "What is 17 + 25?", "Who are you?", "Describe a small house as data.")
DEMO_MODELS = Path(__file__).parents[3] / "demo_models"


def main() -> int:
    """The command line; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, help="a checkout of json-schema-org/JSON-Schema-Test-Suite")
    parser.add_argument("--count", type=int, default=500, help="schemas in all")
    arguments = parser.parse_args()
    from_suite = list(of_suite(arguments.suite)) if arguments.suite else []
    with tempfile.TemporaryDirectory() as folder:
        save("llama", Path(folder))
        with LLM(folder, kv_cache_bytes=32 << 20, max_running=64, num_threads=1) as llm:
            suite = judge(llm, from_suite, most=arguments.count)
            num_served = len(from_suite) - suite.num_refused.total()
            rest = judge(llm, generated(arguments.count - num_served), most=arguments.count)
    answers, num_ended, changed = {}, {}, []
    invalid = [*suite.invalid, *rest.invalid]
    for name, count in (("finch", 17), ("raven", 17), ("robin", 16)):
        with LLM(str(DEMO_MODELS / name), kv_cache_bytes=64 << 20, max_running=64) as llm:
            verdicts = judge(llm, ENDLESS, per_schema=count, is_random=False)
            with LLM(str(DEMO_MODELS / name), kv_cache_bytes=64 << 20, max_running=64, close_answers=False) as plain:
                num_ended[name], others = changed_by_closing(llm, plain, ENDLESS, PROMPTS)
        changed += others
        answers[name] = verdicts.num_answers
        invalid += verdicts.invalid
    report = {
        "suite": {"schemas": len(from_suite), "served": num_served, "valid": suite.num_valid},
        "generated": {"valid": rest.num_valid, "refused": rest.num_refused.total()},
        "answers of demo models": answers,
        "greedy answers that end by themselves": num_ended,
        "changed": changed,
        "invalid": [{"schema": schema, "max_tokens": most, "answer": text} for schema, most, text in invalid],
        "refused": dict(suite.num_refused.most_common()),
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))
    return int(bool(invalid or changed))


if __name__ == "__main__":
    sys.exit(main())
