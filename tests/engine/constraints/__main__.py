"""500 schemas: those of a checkout of JSON-Schema-Test-Suite that are served, and generated ones. Prints JSON; status 1
if an answer is invalid.

    python -m tests.engine.constraints [--suite FOLDER] [--count 500]
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from engine.llm import LLM
from tests.engine.checkpoints import save
from tests.engine.constraints.schemas import generated, of_suite
from tests.engine.constraints.validity import judge


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
    invalid = [*suite.invalid, *rest.invalid]
    report = {
        "suite": {"schemas": len(from_suite), "served": num_served, "valid": suite.num_valid, "cut": suite.num_cut},
        "generated": {"valid": rest.num_valid, "cut": rest.num_cut, "refused": rest.num_refused.total()},
        "invalid": [{"schema": schema, "answer": text} for schema, text in invalid],
        "refused": dict(suite.num_refused.most_common()),
    }
    print(json.dumps(report, indent=1, ensure_ascii=False))
    return int(bool(invalid))


if __name__ == "__main__":
    sys.exit(main())
