"""`agon doctor`: checks this machine for everything that Agon needs and says what to do. Changes nothing."""

import json
import os
import platform
import shutil
import socket
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.arena.data_dir import DataDir, default_data_dir
from cli.arena.embedded_redis import find_binary
from cli.arena.processes import default_threads
from cli.errors import CliError
from cli.external_store import external_store, problems_of
from cli.findings import Finding, Verdict
from cli.model_config import read_model_config, weights_line
from cli.role_checks import (
    Role,
    check_controllers,
    check_descriptors,
    check_names,
    check_packages,
    check_secrets,
    check_store,
    check_tls,
)
from engine.config import usable_kv_dtypes
from engine.errors import CheckpointError
from engine.processor import cpu_flags

app = typer.Typer(add_completion=False)

_GIB = 2**30
_MIN_FREE_DISK_BYTES = 2 * _GIB
_MIN_MEMORY_BYTES = 4 * _GIB
_PORTS = {8100: "--controller-port", 7860: "--webui-port", 8200: "--worker-port"}
_PORT_OF: dict[Role, int] = {"controller": 8100, "webui": 7860, "worker": 8200}


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Argument(help="Also say whose code runs this model: a folder, a config.json or a hub id.")
    ] = None,
    role: Annotated[
        Role, typer.Option(help="What this machine shall run: the whole arena (`agon up`), or one service by itself.")
    ] = "arena",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="The data directory that `agon up` would use.")] = None,
) -> None:
    """Check this machine. Exit code 1 if the role cannot work on it."""
    folder = DataDir(data_dir or default_data_dir())
    findings = [finding for check in _checks(folder, role) for finding in check()]
    if model is not None:
        findings.append(model_finding(*read_model_config(model)))
        findings += _compare_tokenizers(model, os.environ.get("AGON_DRAFT", ""))
    table = Table(show_header=False, box=None, pad_edge=False)
    colours = {Verdict.OK: "green", Verdict.HINT: "yellow", Verdict.PROBLEM: "red"}
    for finding in findings:
        table.add_row(finding.subject, f"[{colours[finding.verdict]}]{finding.verdict}[/]", escape(finding.text))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        Console().print(table)
    raise SystemExit(any(finding.verdict is Verdict.PROBLEM for finding in findings))


def _checks(folder: DataDir, role: Role) -> tuple[Callable[[], Iterator[Finding]], ...]:
    engine = (
        _check_torch,
        _check_cpu,
        _check_operators,
        _check_weights,
        _check_triton,
        _check_prompt_attention,
        _check_kv_dtype,
        _check_draft,
    )
    settings = (check_tls, lambda: check_secrets(role))
    of_role: dict[Role, tuple[Callable[[], Iterator[Finding]], ...]] = {
        "arena": (*engine, _check_store, check_tls, lambda: _check_disk(folder)),
        "controller": (*settings, check_store),
        "worker": (*engine, *settings, check_controllers, _check_memory),
        "webui": (*settings, check_controllers),
    }
    return (
        _check_python,
        check_names,
        lambda: check_packages(role),
        *of_role[role],
        lambda: _check_ports(folder, role),
        *((_check_memory,) if role == "arena" else ()),
        check_descriptors,
    )


def _check_python() -> Iterator[Finding]:
    is_supported = (3, 11) <= sys.version_info[:2] < (3, 14)
    text = f"{platform.python_version()} at {sys.executable}"
    yield (
        Finding("python", Verdict.OK, text)
        if is_supported
        else Finding("python", Verdict.PROBLEM, f"{text}; Agon runs on 3.11, 3.12 and 3.13")
    )


def _check_torch() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("torch", Verdict.PROBLEM, f"cannot be imported ({error}); pip install 'agon[all]'")
        return
    if torch.cuda.is_available():
        yield Finding("torch", Verdict.OK, f"{torch.__version__}, CUDA: {torch.cuda.get_device_name(0)}")
    elif torch.version.cuda is not None:
        text = f"{torch.__version__} is a CUDA build, but no GPU is usable here: a CPU build is gigabytes smaller"
        yield Finding("torch", Verdict.HINT, text)
    else:
        yield Finding("torch", Verdict.OK, f"{torch.__version__}, CPU")


def _check_cpu() -> Iterator[Finding]:
    cores = os.cpu_count() or 1
    flags = cpu_flags()
    wanted = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 bf16", "amx_bf16": "AMX bf16"}
    found = [name for flag, name in wanted.items() if flag in flags]
    text = f"{cores} cores, {platform.machine()}, {', '.join(found) or 'no vector extensions that matter'}"
    if platform.machine() == "x86_64" and "avx2" not in flags and flags:
        yield Finding("cpu", Verdict.HINT, f"{text}; without AVX2 the CPU engine is slow")
    else:
        yield Finding("cpu", Verdict.OK, text)
    yield Finding("threads", Verdict.OK, f"{default_threads()} for each worker of agon up (--threads-per-worker)")
    if cores < 2:
        yield Finding("cpu", Verdict.HINT, "a battle keeps two models busy; with one core they take turns")


def _check_operators() -> Iterator[Finding]:
    try:
        from engine.kernels.cpu.build import best_instruction_set, find_compiler, library_path
    except ImportError:
        return  # without torch there is no engine; _check_torch reports it
    name = best_instruction_set()
    path, compiler = library_path(name), find_compiler()
    if path.is_file():
        yield Finding("operators", Verdict.OK, f"C++, {name}: {path}")
    elif compiler is not None:
        yield Finding("operators", Verdict.OK, f"C++, {name}: {compiler} builds them at the first start")
    else:
        text = "no C++ compiler: the CPU engine falls back to torch operators, several times slower"
        yield Finding("operators", Verdict.HINT, f"{text} (Debian: apt install g++)")


def _check_weights() -> Iterator[Finding]:
    """Check if workers of one model share one copy of its weights."""
    try:
        from engine.kernels.cpu.packed_weights_files import PackedWeightsFiles
        from engine.runner.packed_weights import packed_weights_folder
    except ImportError:
        return
    folder = packed_weights_folder()
    sizes = PackedWeightsFiles(folder, only_huge=True).sizes()
    held = f"{sum(sizes.values()) / _GIB:.1f} GiB of {len(sizes)} models" if sizes else "none yet"
    place = _existing(folder)
    try:
        gives_huge_pages = sys.platform == "linux" and PackedWeightsFiles(place, only_huge=True).gives_huge_pages()
    except OSError as error:
        yield Finding("weights", Verdict.HINT, f"each worker keeps a copy of its own: {place}: {error.strerror}")
        return
    if gives_huge_pages:
        text = f"workers of a model share one copy in huge pages, in {folder}: {held}"
    else:
        text = f"each worker keeps a copy of its own: no huge pages in {folder} (--share-weights on shares anyhow)"
    yield Finding("weights", Verdict.OK, text)


def _check_triton() -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        has_compiler = any(shutil.which(name) for name in (os.environ.get("CC"), "gcc", "clang") if name)
        has_headers = (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file()
        yield kernels_finding(_version_of("triton"), can_build=has_compiler and has_headers)


def kernels_finding(triton_version: str | None, *, can_build: bool) -> Finding:
    """Check the kernels of CUDA devices. `can_build`: C extensions of this Python can be compiled."""
    if triton_version is None:
        text = "no Triton: steps on CUDA fall back to torch operators, several times slower"
        return Finding("kernels", Verdict.HINT, f"{text}; pip install 'agon[gpu]'")
    if not can_build:
        text = f"Triton {triton_version}, but no C compiler or no Python.h: it cannot build what launches its kernels"
        return Finding("kernels", Verdict.PROBLEM, f"{text} (Debian: apt install gcc python3-dev)")
    return Finding("kernels", Verdict.OK, f"Triton {triton_version}")


def _check_prompt_attention() -> Iterator[Finding]:
    try:
        import torch

        from engine.kernels.prompt_libraries import find_libraries
    except ImportError:
        return
    if torch.cuda.is_available():
        libraries = find_libraries(torch.cuda.get_device_capability())
        asked = os.environ.get("AGON_PROMPT_ATTENTION", "auto")
        yield prompt_attention_finding(asked, [(found.name, found.version, found.reason) for found in libraries])


def prompt_attention_finding(asked: str, libraries: Sequence[tuple[str, str | None, str | None]]) -> Finding:
    """Check what can attend prompts. `asked` is AGON_PROMPT_ATTENTION; of each library the name, the version (None: it
    is not installed) and why it cannot be used (None: it can)."""
    usable = [name for name, _, reason in libraries if reason is None and asked in ("auto", name)]
    texts = []
    for name, version, reason in libraries:
        installed = name if version is None else f"{name} {version}"
        not_asked = "" if asked in ("auto", name) else "not asked for"
        texts.append(f"{installed}: {reason or not_asked or 'compared with Triton when a model is loaded'}")
    text = f"{asked} (AGON_PROMPT_ATTENTION); {'; '.join(texts)}"
    if usable:
        text += "; the worker's log says for each model which is used or why not, /metrics which is used"
    if asked in ("auto", "triton") or usable:
        return Finding("prompts", Verdict.OK, text)
    return Finding("prompts", Verdict.HINT, f"{text}; Triton serves instead")


def _check_kv_dtype() -> Iterator[Finding]:
    try:
        import torch
    except ImportError:
        return
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    yield kv_dtype_finding(os.environ.get("AGON_KV_DTYPE", "auto"), capability)


def kv_dtype_finding(asked: str, capability: tuple[int, int] | None) -> Finding:
    """Check the KV dtype. `asked` is AGON_KV_DTYPE, `capability` that of the CUDA device, None without one."""
    usable = usable_kv_dtypes(capability)
    text = f"{asked} (AGON_KV_DTYPE), usable here: {', '.join(usable)}"
    if asked in usable:
        return Finding("kv dtype", Verdict.OK, text)
    return Finding("kv dtype", Verdict.PROBLEM, text)


def _check_draft() -> Iterator[Finding]:
    yield draft_finding(os.environ.get("AGON_DRAFT", ""))


def draft_finding(asked: str) -> Finding:
    """Check what proposes tokens. `asked` is AGON_DRAFT, empty where it is unset."""
    if asked in ("", "ngram"):
        what = "n-grams propose tokens" if asked else "no tokens are proposed"
        return Finding("drafts", Verdict.OK, f"{what} (AGON_DRAFT); models with recurrent layers run without")
    text = f"{asked} proposes tokens (AGON_DRAFT)"
    if asked.startswith(("/", "./", "../", "~")) and not Path(asked).expanduser().is_dir():
        return Finding("drafts", Verdict.PROBLEM, f"{text}, but there is no such folder")
    return Finding(
        "drafts",
        Verdict.OK,
        f"{text}; a worker refuses it where its tokenizer is not the model's or either has recurrent layers",
    )


def _compare_tokenizers(model: str, draft: str) -> list[Finding]:
    """Whether the tokens of the draft model are those of the model; nothing where one of them is not a folder here."""
    if draft in ("", "ngram") or not (Path(model).is_dir() and Path(draft).is_dir()):
        return []
    from engine.drafts.support import why_not_the_same
    from engine.text.tokenizer import Tokenizer

    num_tokens = min(int(read_model_config(each)[1].get("vocab_size", 0)) for each in (model, draft))
    reason = why_not_the_same(Tokenizer.from_folder(model), Tokenizer.from_folder(draft), num_tokens)
    if reason is not None:
        return [Finding("drafts", Verdict.PROBLEM, f"{draft} has another tokenizer than {model}: {reason}")]
    return [Finding("drafts", Verdict.OK, f"{draft} has the tokenizer of {model}")]


def model_finding(name: str, config: Mapping[str, Any]) -> Finding:
    """Whose code runs the model with this config.json, and what that costs. Reads no weights."""
    try:
        from engine.models.config_reader import ConfigReader
        from engine.models.registry import architecture_of
        from engine.models.through_transformers.way import COST
        from engine.models.weight_sizes import weight_bytes
    except ImportError as error:
        return Finding("model", Verdict.PROBLEM, f"{name}: {error}; pip install 'agon[worker]'")
    settings = ConfigReader(config)
    try:
        architecture = architecture_of(settings)
        weights = weights_line(weight_bytes(config))
    except CheckpointError as error:
        return Finding("model", Verdict.PROBLEM, f"{name}: {error}")
    if architecture.code == "agon":
        return Finding("model", Verdict.OK, f"{name}: {architecture.name}, Agon's own code; weights: {weights}")
    return Finding("model", Verdict.HINT, f"{name}: {architecture.name}, {COST}; weights: {weights}")


def _version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _check_store() -> Iterator[Finding]:
    try:
        external = external_store()
        if external is not None:
            line, problems = problems_of(external)
            yield Finding("store", Verdict.OK, line)
            for problem in problems:
                yield Finding("store", Verdict.PROBLEM, problem)
            return
        binary = find_binary()
    except CliError as error:
        yield Finding("store", Verdict.PROBLEM, str(error))
    else:
        yield Finding("store", Verdict.OK, f"{binary.path} (from {binary.origin})")


def _check_ports(folder: DataDir, role: Role) -> Iterator[Finding]:
    running = folder.running()
    if running is not None:
        text = f"not checked: an arena runs here (pid {running.pid}, {running.webui_url})"
        yield Finding("ports", Verdict.OK, text)
        return
    wanted = _PORTS if role == "arena" else {_PORT_OF[role]: "--port"}
    for port, flag in wanted.items():
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError as error:
                text = f"not free ({error.strerror}); choose another with {flag}"
                yield Finding(f"port {port}", Verdict.HINT, text)
            else:
                yield Finding(f"port {port}", Verdict.OK, "free")


def _check_disk(folder: DataDir) -> Iterator[Finding]:
    place = _existing(folder.path)
    free = shutil.disk_usage(place).free
    text = f"{free / _GIB:.1f} GiB free at {place}"
    if not os.access(place, os.W_OK):
        yield Finding("disk", Verdict.PROBLEM, f"{place} is not writable; choose another with --data-dir")
    elif free < _MIN_FREE_DISK_BYTES:
        yield Finding("disk", Verdict.HINT, f"{text}: when it is full, votes are refused")
    else:
        yield Finding("disk", Verdict.OK, text)
    if len(str(folder.store)) > 90:
        text = f"the path is too long for a socket, which will be in {tempfile.gettempdir()} instead"
        yield Finding("disk", Verdict.HINT, text)


def _existing(folder: Path) -> Path:
    """The folder, or its nearest parent that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _check_memory() -> Iterator[Finding]:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return
    text = f"{total / _GIB:.1f} GiB"
    if total < _MIN_MEMORY_BYTES:
        yield Finding("memory", Verdict.HINT, f"{text}: enough for the demo models only")
    else:
        yield Finding("memory", Verdict.OK, text)
