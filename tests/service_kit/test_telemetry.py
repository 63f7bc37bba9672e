import subprocess
import sys

import pytest


def test_gradio_and_hugging_face_are_told_to_report_nothing() -> None:
    pytest.importorskip("huggingface_hub")
    code = (
        "from service_kit.telemetry import switch_telemetry_off; switch_telemetry_off();"
        "import os; from huggingface_hub import constants;"
        "print(constants.HF_HUB_DISABLE_TELEMETRY, os.environ['GRADIO_ANALYTICS_ENABLED'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
