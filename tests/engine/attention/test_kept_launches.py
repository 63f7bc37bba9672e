"""Layers that repeat the launches of an earlier one launch what they would launch themselves."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton has no release for this platform (it is for Linux on x86-64)", allow_module_level=True)

ROOT = Path(__file__).parents[3]


def test_repeated_launches_are_those_of_the_layer_itself_to_the_last_argument() -> None:
    script = Path(__file__).with_name("launches_on_an_idle_device.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, str(script)], env=environment, check=True, capture_output=True, text=True, timeout=200
    )
    results = json.loads(run.stdout)
    assert set(results) == {"qwen3", "qwen3, int8", "gemma2"}
    for name, counts in results.items():
        assert counts["differences"] == 0, name
        # Of four layers one is the first of its group; of Gemma's, which alternate, two.
        assert counts["repeated"] == counts["compared"] * (2 if name == "gemma2" else 3) // 4 > 0, name
