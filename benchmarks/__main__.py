"""Run benchmarks, and compare the package with its peers: `python -m benchmarks [NAME …]`.

Without names, all benchmarks run.
"""

from __future__ import annotations

import sys

from benchmarks import (
    cluster,
    cold,
    events,
    fingerprints,
    full,
    growth,
    incremental,
    large_lookups,
    lookups,
    partitions,
    planning,
    produce,
    produce_share,
    pruning,
    quantile_errors,
    quantiles,
    readers,
    reads,
    scale,
    scans,
    sizes,
    ticks,
    tree,
    value_counts,
    value_filters,
    warm,
)
from benchmarks.report import Row, show

BENCHMARKS = {
    "cluster": cluster.run,
    "cold": cold.run,
    "events": events.run,
    "incremental": incremental.run,
    "full": full.run,
    "fingerprints": fingerprints.run,
    "planning": planning.run,
    "growth": growth.run,
    "large_lookups": large_lookups.run,
    "value_counts": value_counts.run,
    "lookups": lookups.run,
    "value_filters": value_filters.run,
    "partitions": partitions.run,
    "produce": produce.run,
    "pruning": pruning.run,
    "quantile_errors": quantile_errors.run,
    "quantiles": quantiles.run,
    "readers": readers.run,
    "reads": reads.run,
    "shares": produce_share.run,
    "scale": scale.run,
    "scans": scans.run,
    "sizes": sizes.run,
    "ticks": ticks.run,
    "tree": tree.run,
    "warm": warm.run,
}


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all of them if there are no names, and print their comparisons.

    Returns:
        The exit status: 0 if all goals are met, 1 if a goal is missed, 2 if a name is unknown. Nothing runs in the last
        case.
    """
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no benchmark named {', '.join(sorted(unknown))}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in names or BENCHMARKS:
        rows += BENCHMARKS[name]()
    return 0 if show(rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
