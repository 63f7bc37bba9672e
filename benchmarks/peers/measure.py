"""Peers take turns on the same work: every round runs each workload through each peer, back to back.

All peers stay loaded and sleep while another one runs; the noise meter would reveal a peer that does not sleep. Medians
over the rounds count, and every row says how busy other processes kept the machine.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.noise import QUIET, Noise, wait_until_quiet
from benchmarks.peers.process import PeerFailed, PeerProcess
from benchmarks.peers.variants import VARIANTS, Variant
from cli.bench.workloads import Work, named, within_vocabulary

#: The peer with whose first tokens those of the other peers are compared.
REFERENCE = "agon"
Progress = Callable[[str], None]


@dataclass(slots=True)
class Row:
    """One peer on one workload."""

    peer: str
    workload: str
    work: list[Work]
    limit: int | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)
    noise: list[Noise] = field(default_factory=list)

    def as_dict(self, process: PeerProcess, reference: "Row | None") -> dict[str, Any]:
        seconds = [answer["seconds"] for answer in self.answers]
        others = [noise.others_cores for noise in self.noise]
        row: dict[str, Any] = {
            "peer": self.peer,
            "version": process.version,
            "workload": self.workload,
            "requests": len(self.work),
            "limit": self.limit,
            "prompt_tokens": sum(len(item.ids) for item in self.work),
            "output_tokens": sum(item.out for item in self.work),
            "seconds": [round(second, 4) for second in seconds],
            "others_cores": others,
            "own_cores": [noise.own_cores for noise in self.noise],
            "is_quiet": max(others) <= QUIET,
            "load_s": process.load_s,
            "start_s": process.start_s,
            **self._agreement(reference),
        }
        if self.workload == "single":
            row["ttft_ms"] = round(1e3 * statistics.median(answer["ttft_s"] for answer in self.answers), 3)
            tpot = [1e3 * answer["tpot_s"] for answer in self.answers]
            row["tpot_ms"] = round(statistics.median(tpot), 4)
            row["spread_percent"] = _spread(tpot)
        else:
            row["output_tokens_per_s"] = round(row["output_tokens"] / statistics.median(seconds), 1)
            row["best_output_tokens_per_s"] = round(row["output_tokens"] / min(seconds), 1)
            row["spread_percent"] = _spread(seconds)
        return row

    def _agreement(self, reference: "Row | None") -> dict[str, Any]:
        """How many answers begin with the same token. With random weights in bfloat16, even batches of one peer differ
        in late tokens."""
        ours = self.answers[-1]["tokens"]
        theirs = reference.answers[-1]["tokens"] if reference is not None and reference.answers else None
        if ours is None or theirs is None:
            return {"first_tokens_equal": None}
        pairs = list(zip(ours, theirs, strict=False))  # a limited row has fewer
        equal = sum(a[:1] == b[:1] for a, b in pairs)
        return {"first_tokens_equal": f"{equal} of {len(pairs)}"}


def measure(
    peers: Sequence[str],
    workloads: Sequence[str],
    settings: Mapping[str, Any],
    vocab_size: int,
    *,
    rounds: int,
    wait_quiet_s: float,
    progress: Progress,
    variants: Mapping[str, Variant] = VARIANTS,
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows, and the reasons of peers that failed."""
    failed: dict[str, str] = {}
    rows: dict[tuple[str, str], Row] = {}
    with ExitStack() as stack:
        processes: dict[str, PeerProcess] = {}
        for peer in peers:
            progress(f"loading {peer}")
            try:
                processes[peer] = stack.enter_context(PeerProcess(variants[peer], dict(settings)))
            except (PeerFailed, FileNotFoundError) as error:
                failed[peer] = str(error)
                progress(f"{peer} failed: {error}")
        for number in range(rounds + 1):  # round 0 warms up with few tokens and does not count
            for workload in workloads:
                for peer, process in processes.items():
                    variant = variants[peer]
                    if workload not in variant.workloads or peer in failed:
                        continue
                    work = within_vocabulary(named(workload)[: variant.limit], vocab_size)
                    row = rows.setdefault((peer, workload), Row(peer, workload, work, variant.limit))
                    try:
                        if number == 0:
                            process.run([Work(item.ids, min(item.out, 4)) for item in work], is_single=False)
                            continue
                        wait_until_quiet(wait_quiet_s)
                        answer, noise = process.run(work, is_single=workload == "single")
                    except PeerFailed as error:
                        failed[peer] = str(error)
                        progress(f"{peer} failed: {error}")
                        continue
                    row.answers.append(answer)
                    row.noise.append(noise)
                    progress(
                        f"round {number} of {rounds}: {workload} {peer} {answer['seconds']:.2f} s, "
                        f"others {noise.others_cores}"
                    )
        return (
            [
                {
                    **row.as_dict(processes[peer], rows.get((REFERENCE, workload))),
                    "resident_bytes": processes[peer].resident_bytes,
                }
                for (peer, workload), row in rows.items()
                if row.answers and peer not in failed
            ],
            failed,
        )


def _spread(values: Sequence[float]) -> float:
    return round(100 * (max(values) - min(values)) / statistics.median(values), 1)


def result_path(folder: Path, model: str) -> Path:
    return folder / f"peers-{model}.json"
