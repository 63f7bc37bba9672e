"""The row of a measured operator: its times, and its share of the machine's limit."""

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.operators.cases import Case
from benchmarks.operators.limits import Limits


def row_of(case: Case, times: Sequence[float], limits: Limits) -> dict[str, Any]:
    """times: seconds of single calls."""
    limit = limits.seconds(case.num_bytes, case.operations, case.arithmetic or case.dtype)
    return {
        "operator": case.operator,
        "implementation": case.implementation,
        "shape": case.shape,
        "dtype": str(case.dtype).removeprefix("torch."),
        "bytes": case.num_bytes,
        "operations": case.operations,
        "best_us": round(1e6 * min(times), 2),
        "median_us": round(1e6 * statistics.median(times), 2),
        "calls": len(times),
        "limit_us": round(1e6 * limit, 2),
        "share_of_limit": round(limit / min(times), 4),
    }
