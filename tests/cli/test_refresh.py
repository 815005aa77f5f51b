"""What `refresh` tells of commits, before and after."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import write_deltalake

from tests.cli.lakehouse import build, events
from tests.cli.support import answer

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_a_commit(tmp_path: Path) -> None:
    """The plan says what the refresh then does; what did not change is not read; old versions stay readable."""
    build(tmp_path)
    config = tmp_path / "metastore.yaml"
    answer("refresh", "events", config=config)
    write_deltalake(str(tmp_path / "events"), events(900, 30).slice(0, 1), mode="append")
    assert answer("show", "events", config=config)["current"] is False
    plan = answer("refresh", "events", "--dry-run", config=config)
    assert (plan["dry_run"], plan["published"], plan["changed_partitions"]) == (True, True, ["day=2024-01-01"])
    done = answer("refresh", "events", config=config)
    assert {key: done[key] for key in ("version", "fragments", "partitions")} == {
        key: plan[key] for key in ("version", "fragments", "partitions")
    }
    assert done["fragments"] == {"added": 1, "removed": 0, "kept": 3, "profiled": 1}
    assert done["partitions"] == {"changed": 1, "removed": 0, "total": 3}
    assert answer("show", "events", config=config)["row_count"] == 811
    assert answer("show", "events", "--version", "1", config=config)["row_count"] == 810
    assert [row["row_count"] for row in answer("versions", "events", config=config)] == [811, 810]
    again = answer("refresh", "events", "--full", config=config)
    assert (again["version"], again["fragments"]["profiled"], again["partitions"]["changed"]) == (3, 4, 3)
