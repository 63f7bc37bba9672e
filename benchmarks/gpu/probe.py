"""What only a device can say, in half a minute: eleven questions, a line of JSON for each.

python -m benchmarks.gpu.probe [--rest LINES] [--device cpu]

A probe announces itself before it begins, so that one that ends the process can be told. One that loses the CUDA
context ends the process with status 9, and the caller starts it again with --rest: the probes of which the file LINES
holds nothing. The exit status is 1 where an answer is wrong. On cpu everything is tiny and without graphs, and
TRITON_INTERPRET has to be 1.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import triton
import triton.language as tl

from benchmarks.gpu.measure import CONTEXT_LOST, is_context_lost
from engine.batch import NO_TOKEN
from engine.kernels import gpu
from engine.kernels.gpu import skinny_product
from engine.kernels.gpu.dependent_launch import options_for, wait_for_previous
from engine.kernels.hardware import num_multiprocessors
from engine.kernels.step_kernels import SamplingWorkspace
from engine.runner.device.graphs import CudaGraphRecorder, GraphRecorder

Found = dict[str, Any]  #: is_right, where there is something to judge, and figures

_MESSAGE_LENGTH = 300
_BLOCK = 1024
_SLOW_ROUNDS = 200  #: so long that a kernel behind it would overtake it if it did not wait


@triton.jit
def _add_one(x_ptr, y_ptr, size, ROUNDS: tl.constexpr, BLOCK: tl.constexpr, WAITS: tl.constexpr):
    """y = 1 + x in reverse order: a program needs what another program of the kernel before has written."""
    wait_for_previous(WAITS)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + size - 1 - index, mask=index < size, other=0.0)
    for _ in range(ROUNDS):
        x = x * 0.5 + x * 0.5
    tl.store(y_ptr + index, x + 1.0, mask=index < size)


class Probes:
    """The questions, by name; each is asked by calling it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self.all: dict[str, Callable[[], Found]] = {
            "plain graph": partial(self._chain, is_dependent=False),
            "dependent launches, eager": partial(self._chain, is_dependent=True, is_graph=False),
            "dependent launches, graph": partial(self._chain, is_dependent=True),
            "dependent launches, graph with memset": partial(self._chain, is_dependent=True, between="memset"),
            "dependent launches, graph with memcpy": partial(self._chain, is_dependent=True, between="memcpy"),
            "time of a launch": partial(self._launch_time, is_dependent=False),
            "time of a dependent launch": partial(self._launch_time, is_dependent=True),
            "split sums": self._split_sums,
            "graph in pieces": self._pieces,
            "rows of NaN": self._nan_rows,
            "neighbours": self._neighbours,
        }

    def _chain(
        self, *, is_dependent: bool, is_graph: bool = True, between: Literal["memset", "memcpy"] | None = None
    ) -> Found:
        """Kernels that each need all of the one before, over and over; before the first and in the middle stands a node
        that is no kernel."""
        size, num_kernels, repeats = (1 << 20, 18, 100) if self._is_cuda else (_BLOCK + 1, 3, 2)
        buffers = [torch.zeros(size, device=self._device) for _ in range(num_kernels + 1)]
        junk = torch.zeros(size, device=self._device)
        options = self._options(is_dependent)

        def program() -> None:
            for index in range(num_kernels):
                if between is not None and index in (0, num_kernels // 2):
                    junk.zero_() if between == "memset" else junk.copy_(buffers[index])
                self._add(buffers[index], buffers[index + 1], _SLOW_ROUNDS if self._is_cuda else 1, options)

        run = self._recorder().record(program) if is_graph and self._is_cuda else program
        num_wrong = 0
        for value in range(repeats):
            buffers[0].fill_(float(value))
            run()
            num_wrong += int((buffers[-1] != value + num_kernels).sum())
        us = self._microseconds(run, repeats) / num_kernels
        return {"is_right": num_wrong == 0, "num_wrong": num_wrong, "us_per_kernel": round(us, 2)}

    def _launch_time(self, *, is_dependent: bool) -> Found:
        """Microseconds of an almost empty kernel among many in a graph: a constant of estimates.py."""
        num_launches = 400 if self._is_cuda else 2
        buffers = [torch.zeros(_BLOCK, device=self._device) for _ in range(2)]
        options = self._options(is_dependent)

        def program() -> None:
            for index in range(num_launches):
                self._add(buffers[index % 2], buffers[(index + 1) % 2], 1, options)

        run = self._recorder().record(program) if self._is_cuda else program
        run()
        return {"us": round(self._microseconds(run, 20 if self._is_cuda else 1) / num_launches, 3)}

    def _split_sums(self) -> Found:
        """A product whose programs add up their parts, back to back: equal inputs must give equal bits."""
        rows, channels, size, repeats = (16, 1024, 3072, 2000) if self._is_cuda else (3, 16, 512, 2)
        weight, x = self._random(channels, size), self._random(rows, size)
        if not self._is_cuda:  # the interpreter's products know no bfloat16
            weight, x = weight.float(), x.float()
        tiles = skinny_product.formula_tiles(size, channels, rows, x.itemsize, num_multiprocessors(self._device))
        workspace = skinny_product.ProductWorkspace.allocate(self._device)
        outputs = torch.empty(repeats, rows, channels, device=self._device, dtype=x.dtype)
        for output in outputs:
            skinny_product.multiply(x, weight, None, output, workspace, tiles)
        num_different = int((outputs != outputs[0]).flatten(1).any(1).sum())
        expected = x.double() @ weight.double().T
        error = float((outputs[0] - expected).norm() / expected.norm())
        is_right = num_different == 0 and error < 0.01
        return {"is_right": is_right, "splits": tiles.splits, "num_different": num_different, "error": round(error, 5)}

    def _pieces(self) -> Found:
        """Graphs of one pool in turns with eager work, and tensors of one that are read after it: as prompt_graphs
        records them."""
        recorder = self._recorder()
        x = torch.zeros(64, 64, device=self._device)
        seen: list[torch.Tensor] = []

        def program(cut: Callable[[], None]) -> None:
            seen.clear()
            y = x
            for _ in range(4):
                y = y + 1.0
                seen.append(recorder.alias(y))
                cut()
                y = y * 2.0
            seen.append(recorder.alias(y))

        pieces = recorder.record_pieces(program)
        num_wrong = 0
        for value in range(50 if self._is_cuda else 2):
            x.fill_(float(value))
            expected = float(value)
            for index, (piece, tensor) in enumerate(zip(pieces, seen, strict=True)):
                piece()
                expected = 2.0 * expected if index else expected
                expected += index < len(pieces) - 1
                num_wrong += int((tensor != expected).sum())
        return {"is_right": num_wrong == 0, "pieces": len(pieces), "num_wrong": num_wrong}

    def _nan_rows(self) -> Found:
        """Rows of NaN sample no token, and the row beside them what it samples alone."""
        vocab_size = 151_936 if self._is_cuda else 700
        logits = self._random(4, vocab_size).float()
        alone = self._sampled(logits[:1])
        logits[1:] = float("nan")
        tokens = self._sampled(logits)
        is_right = 0 <= tokens[0] == alone[0] < vocab_size and tokens[1:] == [NO_TOKEN] * 3
        return {"is_right": is_right, "tokens": tokens, "alone": alone[0]}

    def _sampled(self, logits: torch.Tensor) -> list[int]:
        """Rows by top-k and top-p, by top-k, by top-p and greedily. The workspace holds spans that are far away."""
        num_rows, vocab_size = logits.shape

        def column(values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values[:num_rows], dtype=dtype, device=self._device)

        workspace = SamplingWorkspace.allocate(num_rows, vocab_size, self._device)
        workspace.chosen.fill_(1_000)
        token_ids = torch.full((num_rows,), -7, device=self._device)
        gpu.sample(
            logits,
            column((1.0, 1.0, 1.0, 0.0), torch.float32),
            column((50, 50, 0, 0), torch.int32),
            column((0.9, 1.0, 0.9, 1.0), torch.float32),
            column((0.0, 0.0, 0.0, 0.0), torch.float32),
            column((1, 1, 1, 1), torch.int64),
            column((3, 3, 3, 3), torch.int64),
            token_ids,
            workspace,
        )
        return [int(token) for token in token_ids.tolist()]

    def _neighbours(self) -> Found:
        """Beside how many rows the first row of cuBLAS's products has other bits than alone; it may have."""
        shapes = ((4096, 4096), (1024, 3072), (28672, 4096)) if self._is_cuda else ((64, 64),)
        found = {}
        for channels, size in shapes:
            weight, x = self._random(channels, size), self._random(256, size)
            alone = torch.nn.functional.linear(x[:1], weight)
            found[f"{channels} x {size}"] = [
                rows
                for rows in (2, 8, 16, 17, 32, 64, 128, 256)
                if not torch.equal(torch.nn.functional.linear(x[:rows], weight)[:1], alone)
            ]
        return {"rows with other bits": found}

    def _options(self, is_dependent: bool) -> dict[str, bool]:
        """Arguments of a launch, whatever the engine's switch says."""
        if not self._is_cuda or not is_dependent:
            return {"WAITS": False}
        major, minor = torch.cuda.get_device_capability(self._device)
        return options_for(10 * major + minor)

    def _add(self, x: torch.Tensor, y: torch.Tensor, rounds: int, options: dict[str, bool]) -> None:
        grid = (triton.cdiv(x.numel(), _BLOCK),)
        _add_one[grid](x, y, x.numel(), ROUNDS=rounds, BLOCK=_BLOCK, **options)

    def _recorder(self) -> GraphRecorder:
        if self._is_cuda:
            return CudaGraphRecorder(self._device)
        from tests.engine.runner.device.tape import TapeRecorder

        return TapeRecorder()

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, device=self._device).bfloat16()

    def _microseconds(self, run: Callable[[], object], repeats: int) -> float:
        """Of one run among several, by the wall clock: launching is a part of it."""
        self._wait()
        started = time.perf_counter()
        for _ in range(repeats):
            run()
        self._wait()
        return 1e6 * (time.perf_counter() - started) / repeats

    def _wait(self) -> None:
        if self._is_cuda:
            torch.cuda.synchronize(self._device)


def ask(probes: Probes, names: Sequence[str]) -> int:
    """Ask, and print the answers. Returns the exit status."""
    status = 0
    for name in names:
        _print({"probe": name, "has_begun": True})
        started = time.perf_counter()
        try:
            found = probes.all[name]()
        except Exception as error:  # the others may still work
            traceback.print_exc()
            found = {"is_right": False, "failed": f"{type(error).__name__}: {error}"[:_MESSAGE_LENGTH]}
        _print({"probe": name, **found, "seconds": round(time.perf_counter() - started, 2)})
        if not found.get("is_right", True):
            status = 1
            if is_context_lost():
                return CONTEXT_LOST
    return status


def _print(line: Found) -> None:
    print(json.dumps(line), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rest", type=Path, help="a file of lines: probes that it names are left out")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    chosen = parser.parse_args(arguments)
    device = torch.device(chosen.device)
    if chosen.device == "cpu":
        from tests.engine.kernels.gpu import old_interpreter

        old_interpreter.mend()
    known = set()
    if chosen.rest is not None and chosen.rest.is_file():
        lines = map(json.loads, chosen.rest.read_text(encoding="utf-8").splitlines())
        known = {line["probe"] for line in lines if "probe" in line}
    probes = Probes(device)
    with torch.inference_mode():
        return ask(probes, [name for name in probes.all if name not in known])


if __name__ == "__main__":
    sys.exit(main())
