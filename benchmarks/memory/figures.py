"""The figures of docs/memory.md as PNG. The only part of the memory benchmarks that needs matplotlib (extra `dev`)."""

from pathlib import Path
from typing import Any

from benchmarks.memory.experiments import layers_of
from benchmarks.memory.simulator import Result
from engine.memory.planning.planner import plan_layers

_GIB = 2**30


def draw(results: dict[str, Any], runs: dict[str, Result], folder: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(exist_ok=True)

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name in ("planner", "uniform"):
        run = runs[name]
        (line,) = axes.plot(run.times, [held / _GIB for held in run.held], label=f"{name}: held")
        axes.plot(run.times, [live / _GIB for live in run.live], ":", color=line.get_color(), label=f"{name}: live")
    axes.set(xlabel="simulated seconds", ylabel="GiB", title="Memory over time, 20 long documents, Ministral-8B")
    axes.legend()
    _save(figure, folder / "memory_over_time.png")

    report = plan_layers(layers_of("gemma-3-27b"), page_tokens=16)
    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    for name in report.designs:
        axes.plot(report.lengths, [100 * report.waste(name, length) for length in report.lengths], "o-", label=name)
    axes.set(xscale="log", yscale="log", xlabel="tokens of a request", ylabel="waste over live bytes, %")
    axes.set_title("Waste by design, Gemma-3-27B")
    axes.legend()
    _save(figure, folder / "waste_by_design.png")

    figure, grid = pyplot.subplots(2, 2, figsize=(9, 6), sharey=True)
    for row, (model, loads) in zip(grid, results["hit_rates"].items(), strict=True):
        for axes, (load, curves) in zip(row, loads.items(), strict=True):
            for name, curve in curves.items():
                axes.plot([float(key) for key in curve], list(curve.values()), "o-", label=name)
            label = "shared articles" if load == "articles" else "pool / bytes of all conversations"
            axes.set(xlabel=label, ylabel="hit rate", title=f"{model}, {load}", ylim=(0, 1))
    grid[0][0].legend(fontsize=7)
    _save(figure, folder / "hit_rate.png")

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    batches = {name: entry["decode_batch"] for name, entry in results["long_documents"].items()}
    axes.bar(list(batches), list(batches.values()))
    axes.set(ylabel="sequences in a decode step", title="Batch size, 20 long documents, Ministral-8B")
    axes.tick_params(axis="x", labelrotation=15)
    _save(figure, folder / "batch_size.png")


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
