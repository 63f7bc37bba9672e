"""llguidance and xgrammar: time for a mask, to compile, and how many schemas of JSON-Schema-Test-Suite they follow.

xgrammar is no dependency: `python -m benchmarks.constraints.libraries --suite FOLDER` measures those libraries that can
be imported. Vocabularies are synthetic: bytes, and frequent beginnings and middles of English and JSON words. Of the
suite's cases those count whose texts a library accepts and rejects as the suite says. Prints JSON.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import random
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "number": {"type": "number"}},
            "required": ["street", "number"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "age", "tags", "address"],
    "additionalProperties": False,
}
_INSTANCE = {
    "name": "Ada Lovelace",
    "age": 36,
    "tags": ["red", "blue"],
    "address": {"street": "St. James", "number": 7.5},
}


class Grammar(Protocol):
    def mask(self) -> None: ...
    def accept(self, token_id: int) -> bool: ...
    def is_whole(self) -> bool: ...


class Library(Protocol):
    name: str

    def compile(self, schema: Any) -> Grammar | None:
        """None: refused."""
        ...


def vocabulary(size: int) -> list[bytes]:
    """Bytes first, then distinct pieces of words."""
    draw = random.Random(3)
    syllables = [
        c + v + e for c in "bcdfghjklmnprstvwz" for v in "aeiou" for e in ("", "n", "r", "s", "t", "ing", "ed")
    ]
    pieces = {bytes([value]): None for value in range(256)}
    for text in (
        '{"',
        '":',
        '",',
        '"}',
        '": "',
        '", "',
        "},",
        "]}",
        "[{",
        '":{"',
        "\n  ",
        "    ",
        "true",
        "false",
        "null",
    ):
        pieces.setdefault(text.encode())
    while len(pieces) < size - 1:
        word = "".join(draw.choice(syllables) for _ in range(draw.randint(1, 4)))
        pieces.setdefault((draw.choice(["", " ", " ", '"', "_"]) + draw.choice([word, word.title()])).encode())
    return list(pieces)


class _Greedy:
    """Texts to ids, longest piece first."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._ids = {piece: index for index, piece in enumerate(pieces)}

    def __call__(self, text: str | bytes) -> list[int]:
        rest, ids = text.encode() if isinstance(text, str) else text, []
        while rest:
            length = next(n for n in range(min(24, len(rest)), 0, -1) if rest[:n] in self._ids)
            ids.append(self._ids[rest[:length]])
            rest = rest[length:]
        return ids


class LLGuidance:
    name = "llguidance"

    def __init__(self, pieces: list[bytes]) -> None:
        import llguidance

        class Source(_Greedy):
            def __init__(self) -> None:
                super().__init__(pieces)
                self.eos_token_id, self.bos_token_id, self.special_token_ids = len(pieces), None, [len(pieces)]
                self.tokens = [*pieces, b"</s>"]

        self._library = llguidance
        started = time.perf_counter()
        self._tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Source()), n_vocab=len(pieces) + 1)
        self.read_s = time.perf_counter() - started
        self._row = np.zeros(-(-(len(pieces) + 1) // 32), np.int32)

    def compile(self, schema: Any) -> Grammar | None:
        text = self._library.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = self._library.LLMatcher(self._tokenizer, text, log_level=0)
        if matcher.is_error():
            return None
        row = self._row

        class Compiled:
            def mask(self) -> None:
                matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)

            def accept(self, token_id: int) -> bool:
                return bool(matcher.consume_token(token_id))

            def is_whole(self) -> bool:
                return bool(matcher.is_accepting())

        return Compiled()


class XGrammar:
    name = "xgrammar"

    def __init__(self, pieces: list[bytes]) -> None:
        import xgrammar

        self._library = xgrammar
        started = time.perf_counter()
        info = xgrammar.TokenizerInfo(
            [*pieces, b"</s>"], xgrammar.VocabType.RAW, vocab_size=len(pieces) + 1, stop_token_ids=[len(pieces)]
        )
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.read_s = time.perf_counter() - started
        self._mask = xgrammar.allocate_token_bitmask(1, len(pieces) + 1)

    def compile(self, schema: Any) -> Grammar | None:
        try:
            compiled = self._compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
        except Exception:
            return None
        matcher, mask = self._library.GrammarMatcher(compiled, terminate_without_stop_token=False), self._mask

        class Compiled:
            def mask(self) -> None:
                matcher.fill_next_token_bitmask(mask)

            def accept(self, token_id: int) -> bool:
                return bool(matcher.accept_token(token_id))

            def is_whole(self) -> bool:
                return bool(matcher.is_completed() if hasattr(matcher, "is_completed") else matcher.is_terminated())

        return Compiled()


def _times(library: Library, ids: list[int]) -> dict[str, float]:
    """Milliseconds to compile, microseconds for a mask; the first token's mask is apart, as caches are empty then."""
    compiles, masks, firsts = [], [], []
    for _ in range(10):
        started = time.perf_counter()
        grammar = library.compile(_SCHEMA)
        compiles.append(time.perf_counter() - started)
        assert grammar is not None
        for position, token_id in enumerate(ids):
            started = time.perf_counter()
            grammar.mask()
            (firsts if position == 0 else masks).append(time.perf_counter() - started)
            assert grammar.accept(token_id)
    return {
        "compile_ms": round(1e3 * statistics.median(compiles), 3),
        "mask_us": round(1e6 * statistics.median(masks), 1),
        "mask_us_mean": round(1e6 * statistics.fmean(masks), 1),
        "mask_us_p99": round(1e6 * sorted(masks)[int(0.99 * len(masks))], 1),
        "first_mask_us": round(1e6 * statistics.median(firsts), 1),
    }


def _cases(folder: Path) -> Iterator[tuple[Any, list[tuple[Any, bool]]]]:
    for file in sorted((folder / "tests" / "draft2020-12").glob("*.json")):
        for case in json.loads(file.read_text()):
            yield case["schema"], [(test["data"], test["valid"]) for test in case["tests"]]


def _coverage(library: Library, encode: Callable[[str], list[int]], folder: Path) -> dict[str, int]:
    """Whole schemas of which every instance is judged right, those with an invalid one let through, those with a valid
    one rejected, and those refused. A valid instance may be rejected for the order of its properties."""
    counts = dict.fromkeys(("right", "lets_invalid_through", "rejects_valid", "refused"), 0)
    for schema, tests in _cases(folder):
        if library.compile(schema) is None:
            counts["refused"] += 1
            continue
        outcomes = [(_accepts(library, schema, encode(json.dumps(data))), valid) for data, valid in tests]
        if any(accepted and not valid for accepted, valid in outcomes):
            counts["lets_invalid_through"] += 1
        elif any(valid and not accepted for accepted, valid in outcomes):
            counts["rejects_valid"] += 1
        else:
            counts["right"] += 1
    return counts


def _accepts(library: Library, schema: Any, ids: list[int]) -> bool:
    grammar = library.compile(schema)
    assert grammar is not None
    return all(grammar.accept(token_id) for token_id in ids) and grammar.is_whole()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, help="a checkout of json-schema-org/JSON-Schema-Test-Suite")
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        ).stdout.strip(),
        "machine": {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()},
        "load": os.getloadavg(),
    }
    for kind in (LLGuidance, XGrammar):
        try:
            found: dict[str, Any] = {"version": importlib.metadata.version(kind.name)}
            for size in (49_152, 151_936):
                pieces = vocabulary(size)
                library = kind(pieces)
                ids = _Greedy(pieces)(json.dumps(_INSTANCE))
                found[str(size)] = {"read_tokens_s": round(library.read_s, 3), **_times(library, ids)}
            if arguments.suite:
                small = vocabulary(512)
                found["suite"] = _coverage(kind(small), _Greedy(small), arguments.suite)
        except ImportError as error:
            found = {"missing": str(error)}
        report[kind.name] = found
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
