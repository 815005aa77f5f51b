"""What `refresh` prints about commits, as its plan and its result.

A fragment is a data file together with the deletes that apply to it.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from tests.cli.lakehouse import build, events
from tests.cli.run_command import run, run_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_a_refresh_reads_only_changed_files(tmp_path: Path) -> None:
    """A refresh after a commit reads only the added file, as its plan says.

    Older versions stay readable. `verify` finds no difference to the table. `refresh --full` reads all files again.
    """
    build(tmp_path)
    config = tmp_path / "metastore.yaml"
    run_json("refresh", "events", config=config)
    write_deltalake(str(tmp_path / "events"), events(900, 30).slice(0, 1), mode="append")
    assert run_json("show", "events", config=config)["current"] is False
    plan = run_json("refresh", "events", "--dry-run", config=config)
    assert (plan["dry_run"], plan["published"], plan["changed_partitions"]) == (True, True, ["day=2024-01-01"])
    done = run_json("refresh", "events", config=config)
    assert {key: done[key] for key in ("version", "fragments", "partitions")} == {
        key: plan[key] for key in ("version", "fragments", "partitions")
    }
    assert done["fragments"] == {"added": 1, "removed": 0, "unchanged": 3, "profiled": 1}
    assert done["partitions"] == {"changed": 1, "removed": 0, "total": 3}
    assert run_json("show", "events", config=config)["row_count"] == 811
    assert run_json("show", "events", "--version", "1", config=config)["row_count"] == 810
    assert [row["row_count"] for row in run_json("versions", "events", config=config)] == [811, 810]
    verification = run_json("verify", "events", config=config)
    assert (
        verification["version"],
        verification["fragments"],
        verification["partitions"],
        verification["complete"],
    ) == (2, 4, 3, True)
    assert verification["differences"] == verification["unreadable"] == []
    verify_output = run("verify", "events", "--sample", "2", config=config).stdout
    assert verify_output == "events version 2: 2 fragments, 0 partitions compared: all numbers match the table\n"
    again = run_json("refresh", "events", "--full", config=config)
    assert (again["version"], again["fragments"]["profiled"], again["partitions"]["changed"]) == (3, 4, 3)


def test_only_live_fragments_are_counted(tmp_path: Path) -> None:
    """After each commit, commands count as many fragments as deltalake lists files.

    The commits are deletes, an overwrite, an append and a restore.
    """
    build(tmp_path)
    config, uri = tmp_path / "metastore.yaml", str(tmp_path / "events")
    commits: list[Callable[[DeltaTable], object]] = [
        lambda table: None,
        lambda table: table.delete("day = '2024-01-02'"),
        lambda table: write_deltalake(table, events(0, 5), mode="overwrite", partition_by=["day"]),
        lambda table: write_deltalake(table, events(5, 5), mode="append"),
        lambda table: table.restore(1),
    ]
    counts = []
    for number, commit in enumerate(commits, 1):
        commit(DeltaTable(uri))
        counts.append(len(DeltaTable(uri).file_uris()))
        done = run_json("refresh", "events", config=config)
        assert (done["version"], done["fragments"]["added"] + done["fragments"]["unchanged"]) == (number, counts[-1])
        assert run_json("refresh", "events", config=config)["fragments"]["unchanged"] == counts[-1]
        [table_row] = [row for row in run_json("tables", config=config) if row["table"] == "events"]
        assert (table_row["version"], table_row["fragments"]) == (number, counts[-1])
        partitions = run_json("show", "events", "--partitions", config=config)
        assert sum(row["fragments"] for row in partitions) == counts[-1]
    assert len(set(counts)) > 2
    assert [row["fragments"] for row in run_json("versions", "events", config=config)] == counts[::-1]
    output = run("versions", "events", config=config).stdout.splitlines()
    assert [int(line.split()[-3]) for line in output[1:]] == counts[::-1]
