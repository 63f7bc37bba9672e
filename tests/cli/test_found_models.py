"""`agon models find` reads the caches of other programs."""

import json
from pathlib import Path

import pytest

from cli.models import app
from tests.engine.formats.gguf_files import write


def find(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, object]]:
    app(["find", "--json"], standalone_mode=False)
    return {model["name"]: model for model in json.loads(capsys.readouterr().out)}


def test_models_of_three_caches_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plain = write(tmp_path, "llama", "llama", is_plain=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    (tmp_path / "hub" / "models--some--plain" / "snapshots").mkdir(parents=True)
    plain.rename(tmp_path / "hub" / "models--some--plain" / "snapshots" / "0")
    studio = tmp_path / ".lmstudio" / "models" / "some" / "packed"
    studio.mkdir(parents=True)
    (studio / "packed-Q4_K_M.gguf").write_bytes(file.read_bytes())
    (studio / "broken-Q4_K_M.gguf").write_bytes(b"GGUF")
    manifest = tmp_path / "ollama" / "manifests" / "registry.ollama.ai" / "library" / "small" / "1b"
    manifest.parent.mkdir(parents=True)
    (tmp_path / "ollama" / "blobs").mkdir()
    (tmp_path / "ollama" / "blobs" / "sha256-ab").write_bytes(file.read_bytes())
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:ab"}
    manifest.write_text(json.dumps({"layers": [layer, {"mediaType": "other"}]}))
    found = find(capsys)
    assert found.keys() == {"some/plain", "small:1b", "some/packed-Q4_K_M", "some/broken-Q4_K_M"}
    assert (found["some/plain"]["architecture"], found["some/plain"]["refused"]) == ("LlamaForCausalLM", "")
    small = found["small:1b"]
    assert (small["cache"], small["architecture"], small["data_type"], small["refused"]) == (
        "Ollama",
        "llama",
        "F32",
        "",
    )
    assert small["num_bytes"] == file.stat().st_size
    assert "is cut inside its header" in str(found["some/broken-Q4_K_M"]["refused"])


def test_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.setenv(name, str(tmp_path))
    app(["find"], standalone_mode=False)
    assert "There are no models" in capsys.readouterr().out
