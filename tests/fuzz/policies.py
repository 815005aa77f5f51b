"""Random column policies for a table, and the columns that are hidden under them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.columns import Node, NodePath, node_paths_of, paths_of

_POLICIES: list[dict[str, Any]] = [
    {"values": "hidden"},
    {"values": "hidden"},
    {"values": "shown"},
    {"frequencies": "all"},
    {"frequencies": "off"},
    {"frequencies": "repeated"},
    {"frequencies": "repeated", "algorithm": "fingerprints"},
    {"frequencies": "repeated", "algorithm": "enumeration"},
    {"frequencies": "top(2)"},
    {"frequencies": "all", "ranks": "on", "values": "shown"},
    {"frequencies": "all", "by_partition": "on", "values": "shown"},
    {"value_filter": "on", "values": "shown"},
    {"frequencies": "off", "value_filter": "on", "values": "shown"},
    {"histogram": "off"},
    {"histogram": 4000, "quantiles": "off"},
    {"frequencies": "off", "histogram": "off", "quantiles": "off"},
]


@dataclass(frozen=True)
class Policies:
    """The configured column policies by path.

    The policy `default` is for all columns. A column's own policy takes precedence over it.
    """

    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def merged(self, path: str) -> dict[str, Any]:
        """Return a column's own policy, completed by the options of `default`."""
        return {**self.columns.get("default", {}), **self.columns.get(path, {})}

    def hidden(self, columns: Sequence[Node]) -> set[tuple[int, ...]]:
        """Return the keys of hidden columns.

        A column is hidden by its own policy, by the policy of a column that contains it, or by `default`. `default` has
        no effect on a column whose own policy says whether values are shown.
        """
        paths = paths_of(columns)

        def is_hidden(node_path: NodePath) -> bool:
            if self.merged(paths[node_path.keys]).get("values") == "hidden":
                return True
            # A policy of the column takes precedence over the default, but not over a hidden column above it.
            above = [paths[node_path.keys[:depth]] for depth in range(1, len(node_path.keys))]
            return any(self.columns.get(path, {}).get("values") == "hidden" for path in above)

        return {node_path.keys for node_path in node_paths_of(columns) if is_hidden(node_path)}

    def of_columns(self, columns: Sequence[Node]) -> Policies:
        """Return the default and the policies of these columns, without those of other paths."""
        valid_paths = {"default", *paths_of(columns).values()}
        return Policies({path: policy for path, policy in self.columns.items() if path in valid_paths})


def drawn_policies(draw: random.Random, columns: Sequence[Node], partition: Node | None) -> Policies:
    """Draw policies for some columns or for none, and perhaps a default.

    The partition column is always shown.
    """
    paths = paths_of(columns)
    chosen_paths = draw.sample(sorted(paths.values()), min(len(paths), draw.choice([0, 1, 2, 5])))
    chosen_policies = {path: draw.choice(_POLICIES) for path in chosen_paths}
    if draw.random() < 0.4:
        chosen_policies["default"] = draw.choice([policy for policy in _POLICIES if policy.get("values") != "shown"])
    if partition is not None:
        chosen_policies[paths[partition.key,]] = {"values": "shown"}
    return Policies(chosen_policies)
