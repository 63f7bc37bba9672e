"""Flags, variables and defaults of a worker are an interface: scripts and container files hold them."""

import argparse
from typing import Any

import pytest

from model_worker.config import WorkerSettings
from model_worker.main import build_parser, read_settings

#: Field (AGON_ and its name in capitals is the variable), flag, default. A release adds its new settings.
NAMES: tuple[tuple[str, str | None, Any], ...] = (
    ("model", "--model", ()),
    ("engine", "--engine", "paged"),
    ("engine_process", "--engine-process", "auto"),
    ("host", "--host", "127.0.0.1"),
    ("port", "--port", 8200),
    ("controller_urls", "--controller", ()),
    ("worker_url", "--worker-url", None),
    ("worker_token", None, None),
    ("worker_token_file", "--worker-token-file", None),
    ("api_keys", None, ()),
    ("api_keys_file", "--api-keys-file", None),
    ("api_docs", "--api-docs", False),
    ("dtype", "--dtype", "auto"),
    ("device", "--device", "auto"),
    ("threads", "--threads", None),
    ("operators", "--operators", "auto"),
    ("kv_dtype", "--kv-dtype", "auto"),
    ("weights", "--weights", "auto"),
    ("share_weights", "--share-weights", "auto"),
    ("tensor_parallel", "--tensor-parallel", 1),
    ("enforce_eager", "--enforce-eager", False),
    ("max_graph_batch", "--max-graph-batch", 512),
    ("prompt_attention", "--prompt-attention", "auto"),
    ("device_memory_share", "--device-memory-share", 0.9),
    ("load_format", "--load-format", "auto"),
    ("page_tokens", "--page-tokens", 16),
    ("checkpoint_tokens", "--checkpoint-tokens", 512),
    ("kv_cache_bytes", "--kv-cache-bytes", None),
    ("swap_bytes", "--swap-bytes", 0),
    ("max_model_len", "--max-model-len", None),
    ("max_batched_tokens", "--max-batched-tokens", None),
    ("max_running", "--max-running", None),
    ("max_queued_requests", "--max-queued-requests", 256),
    ("max_queued_tokens", "--max-queued-tokens", 131_072),
    ("prefix_caching", "--prefix-caching", True),
    ("overlap", "--overlap", None),
    ("seed", "--seed", 0),
    ("default_max_tokens", "--default-max-tokens", 2048),
    ("max_body_bytes", "--max-body-bytes", 1 << 20),
    ("request_timeout_s", "--request-timeout-s", 600.0),
    ("slow_client_s", "--slow-client-s", 30.0),
    ("stalled_step_s", "--stalled-step-s", 60.0),
    ("drain_s", "--drain-s", 30.0),
    ("echo_tokens_per_s", "--echo-tokens-per-s", 50.0),
    ("echo_num_tokens", "--echo-num-tokens", None),
    ("echo_fail_after", "--echo-fail-after", None),
)


def test_settings_have_the_names_and_defaults_that_they_had() -> None:
    fields = WorkerSettings.model_fields
    assert [(name, ... if fields[name].is_required() else fields[name].default) for name, _, _ in NAMES] == [
        (name, default) for name, _, default in NAMES
    ]


def test_flags_have_the_names_that_they_had() -> None:
    flags: dict[str, argparse.Action] = {action.dest: action for action in build_parser()._actions}
    for name, flag, _ in NAMES:
        assert (flags[name].option_strings[0] if name in flags else None) == flag
    switches = {
        name for name, action in flags.items() if f"--no-{action.option_strings[0][2:]}" in action.option_strings
    }
    assert switches >= {"enforce_eager", "prefix_caching", "overlap"}


def test_a_variable_sets_the_engine_and_a_flag_wins_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGON_CHECKPOINT_TOKENS", "256")
    monkeypatch.setenv("AGON_OVERLAP", "false")
    monkeypatch.setenv("AGON_PREFIX_CACHING", "false")
    config = read_settings(["--model", "name=folder", "--checkpoint-tokens", "128", "--threads", "3"]).engine_config
    assert (config.model, config.num_threads, config.checkpoint_tokens) == ("folder", 3, 128)
    assert (config.overlap, config.enable_prefix_caching) == (False, False)
