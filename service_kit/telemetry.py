"""Telemetry of libraries, switched off: it would tell third parties what runs here."""

import os

_SWITCHES = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def switch_telemetry_off() -> None:
    """Set the environment's switches; called by the main function of a service.

    Gradio and huggingface_hub read them when they are imported, so call this before.
    """
    os.environ.update(_SWITCHES)
