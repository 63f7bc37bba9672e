"""docs/ratings.md from the results. The text is in template.md; here are the tables."""

import json
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "ratings.md"


def write_report(results: Path) -> None:
    """Write the page from the results in this file."""
    PAGE.write_text(render(json.loads(results.read_text())))


def render(results: dict[str, Any]) -> str:
    """The page. Raises KeyError if a part has not been measured."""
    coverage, agreement, speed = (results[part] for part in ("coverage", "agreement", "speed"))
    styles, turns = coverage["styles"], speed["cpu_in_turns"]
    (before,) = set(turns) - {"now"}
    timings = {name: value for name, value in speed.items() if name.endswith("_s")}
    tables = {
        "newcomer_replications": f"{_drawn(coverage['newcomers'][0]):,}",
        "replications": f"{coverage['boards'][0]['replications']:,}",
        "few": str(coverage["anchors"][0]["replications"]),
        "newcomers": _newcomers(coverage["newcomers"]),
        "boards": _boards(coverage["boards"]),
        "equal_votes": f"{coverage['equal_models']['num_votes']:,}",
        "equal": (
            f"{_percent(coverage['equal_models']['boards_wrong'])} of the boards have such a range, and "
            f"{_percent(coverage['equal_models']['boards_wrong_by_overlap'])} if single intervals decide."
        ),
        "anchors": _anchors(coverage["anchors"]),
        "tie_points": str(coverage["boards_with_ties"][0]["tie_width_points"]),
        "ties": _ties(coverage["boards_with_ties"]),
        "weightings": _weightings(coverage["weightings"]),
        "true_effect": str(styles["true_effect"]),
        "effect": str(styles["effect"]),
        "effect_before": str(styles["effect_before"]),
        "strengths_covered": _percent(styles["strengths_covered"]),
        "num_random": str(agreement["num_random_sets"]),
        "num_large": f"{agreement['num_large']:,}",
        "agreement": _agreement(agreement["largest_difference_points"]),
        "style_coefficient": _small(agreement["style"]["coefficient"]),
        "style_error": _small(agreement["style"]["relative_error_of_its_error"]),
        "library_seconds": ", ".join(
            f"{name.replace('_', '-')} {value}" for name, value in agreement["seconds_for_the_large_set"].items()
        ),
        "agreement_load": str(agreement["machine"]["load_before"]),
        "speed_machine": "{cpu}, {cores} cores, load {load_before} before the run".format(**speed["machine"]),
        "speed_votes": f"{speed['num_votes']:,}",
        "speed_models": str(speed["num_models"]),
        "speed": _table(
            ("what", "s"), [(name.removesuffix("_s").replace("_", " "), str(value)) for name, value in timings.items()]
        ),
        "before_commit": before,
        "now_arrays": str(turns["now"]["from_arrays_s"]),
        "now_counts": str(turns["now"]["from_counts_s"]),
        "before_arrays": str(turns[before]["from_arrays_s"]),
        "before_counts": str(turns[before]["from_counts_s"]),
        **{f"{part}_commit": str(results[part]["commit"]) for part in ("coverage", "agreement", "speed")},
    }
    return Template((Path(__file__).parent / "template.md").read_text()).substitute(tables)


def _drawn(row: dict[str, Any]) -> int:
    drawn: int = row["replications"] + row["without_interval"]
    return drawn


def _newcomers(rows: list[dict[str, Any]]) -> str:
    return _table(
        (
            "votes of the board",
            "covered",
            "before",
            "half interval",
            "before",
            "never lost or never won",
            "others covered",
        ),
        [
            (
                f"{row['num_votes']:,}",
                _percent(row["covered"]),
                _percent(row["covered_before"]),
                f"{row['half_width_points']:.0f}",
                f"{row['half_width_points_before']:.0f}",
                str(row["without_interval"]),
                _percent(row["others_covered"]),
            )
            for row in rows
        ],
    )


def _boards(rows: list[dict[str, Any]]) -> str:
    return _table(
        ("votes", "covered", "all ranks right", "by single intervals"),
        [
            (
                f"{row['num_votes']:,}",
                _percent(row["covered"]),
                _percent(row["boards_with_all_ranks_right"]),
                _percent(row["boards_with_all_ranks_right_by_overlap"]),
            )
            for row in rows
        ],
    )


def _anchors(boards: list[dict[str, Any]]) -> str:
    events = {
        "thirtieth_vote": "the thirtieth vote of a weak newcomer",
        "newcomer_of_30": "its thirty votes",
        "newcomer_of_100": "a hundred votes of it",
        "five_clones_of_100": "a hundred votes of each of five clones of the worst",
    }
    rows = []
    for board in boards:
        for event, words in events.items():
            cells = [
                f"{seen['median']} ({seen['largest']})"
                for seen in (board["moves_points"][event], board["moves_points"][event + "_with_anchor"])
            ]
            rows.append((f"{board['num_votes']:,}", words, *cells))
    return _table(("votes of the board", "what joins", "no anchor", "anchor"), rows)


def _ties(rows: list[dict[str, Any]]) -> str:
    return _table(
        ("votes", "Rao-Kupper", "half wins"),
        [(f"{row['num_votes']:,}", _percent(row["covered"]), _percent(row["covered_by_half_wins"])) for row in rows],
    )


def _weightings(figures: dict[str, Any]) -> str:
    crowds = {"honest": "all honest", "one_in_ten_careless": "one in ten tosses a coin"}
    return _table(
        ("voters", "weighting", "covered", "median half interval"),
        [
            (words, weighting, _percent(seen["covered"]), f"{seen['half_width_points']:.1f}")
            for crowd, words in crowds.items()
            for weighting, seen in figures[crowd].items()
        ],
    )


def _agreement(figures: dict[str, Any]) -> str:
    libraries = list(dict.fromkeys(library for seen in figures.values() for library in seen))
    rows = []
    for library in libraries:
        cells = []
        for seen in figures.values():
            found = seen.get(library)
            parts = () if found is None else (found["rating"], found.get("half_width"))
            cells.append("; ".join(_small(part) for part in parts if part is not None))
        rows.append((library.replace("_", " "), *cells))
    return _table(("rating; half interval", *figures), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _small(value: float) -> str:
    return "0" if value == 0 else f"{value:.1g}" if value < 1e-3 else f"{value:.4f}"
