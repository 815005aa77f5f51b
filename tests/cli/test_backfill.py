"""`metastore backfill` as people and cron use it.

A chunk is the partitions that one step of a backfill processes.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import os
import pty
import random
import re
import select
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from metastore_assets.cli.commands import cli
from metastore_assets.report import text
from tests.cli.run_command import PROGRAM, error_of, run, run_json

RESULT = {"table", "partitions", "chunks", "versions", "fragments", "bytes", "seconds", "done", "failed_checks"}


def write(folder: Path, partition: int, name: str = "1") -> Path:
    path = folder / "lake" / f"part={partition}" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [partition, partition + 1], "word": ["a", None]}), path)
    return path


def lake_in(folder: Path) -> Path:
    """Write a table `t` of four partitions, an unpartitioned table `flat`, and their configuration.

    The tables are plain files. Return the path of the configuration.
    """
    for partition in (1, 2, 9, 10):
        write(folder, partition)
    (folder / "flat").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder / "flat" / "1.parquet")
    config = folder / "metastore.yaml"
    config.write_text("root: ./root\nengine: auto\ntables: [{name: t, uri: ./lake}, {name: flat, uri: ./flat}]\n")
    return config


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return lake_in(tmp_path)


def size_of(config: Path, *patterns: str) -> str:
    """Return the total size of the files of the table `t`, as commands print it.

    With patterns, only files that match one of the patterns count.
    """
    files = [path for pattern in patterns or ("*/*",) for path in (config.parent / "lake").glob(pattern)]
    return text.format_size(sum(path.stat().st_size for path in files))


@pytest.fixture(scope="module")
def untouched_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration for tests that change nothing."""
    return lake_in(tmp_path_factory.mktemp("lake"))


def test_the_first_backfill_reads_all_and_the_next_nothing(config: Path) -> None:
    """The first backfill publishes a version, and the second one finds the table up to date.

    Then a full backfill from partition 2 on reads three partitions again, in two chunks and two versions.
    """
    plan = run_json("backfill", "t", "--dry-run", config=config)
    assert {*plan} > RESULT
    assert (plan["dry_run"], plan["missing"], plan["versions"], plan["done"]) == (True, 4, [], False)
    assert plan["keys"] == ["part=1", "part=2", "part=9", "part=10"]
    first = run_json("backfill", "t", "--yes", config=config)
    assert set(first) == RESULT
    assert {key: first[key] for key in RESULT - {"seconds", "bytes"}} == {
        "table": "t",
        "partitions": 4,
        "chunks": 1,
        "versions": [1],
        "fragments": 4,
        "done": True,
        "failed_checks": [],
    }
    assert first["bytes"] == plan["bytes"] == sum(path.stat().st_size for path in config.parent.rglob("lake/*/*"))
    idle = run_json("backfill", "t", "--yes", config=config)
    assert (idle["chunks"], idle["versions"], idle["done"]) == (0, [], True)
    again = run_json("backfill", "t", "--yes", "--full", "--from", "2", "--chunk", "2", config=config)
    assert (again["partitions"], again["versions"], again["fragments"]) == (3, [2, 3], 3)
    rows = run_json("show", "t", "--partitions", config=config)
    assert {row["partition"]: row["version"] for row in rows} == {"part=1": 1, "part=2": 2, "part=9": 2, "part=10": 3}


def test_plan_and_result_as_text(config: Path) -> None:
    """The plan of a backfill is printed on stderr and its result on stdout.

    With `--dry-run`, the plan is on stdout. Of many partitions, the plan names the first and the last one, and with
    `-v` all. It counts the partitions that are missing, out of date, or read again. It also says which partitions are
    read although they were not selected. If nothing is to do, the result says so.
    """
    for partition in range(20, 30):
        write(config.parent, partition)
    done = run("backfill", "t", "--yes", config=config)
    assert done.exit_code == 0
    assert done.stdout.startswith("t done in ")
    size = size_of(config)
    assert done.stdout.endswith(f": 14 partitions in 1 chunk, 14 fragments ({size}) read, version 1\n")
    plan = done.stderr.splitlines()
    assert plan[0].startswith("t no version yet, snapshot ")
    assert plan[0].endswith(": 14 of 14 partitions to do (14 missing)")
    assert plan[1].startswith(f"  reads 14 fragments ({size}) in 1 chunk")
    assert plan[2:] == ["  * part=1", "    … 12 more (-v names all)", "  * part=29"]
    write(config.parent, 2, "2")
    write(config.parent, 30)
    plan_output = run(
        "backfill", "t", "--full", "--partition", "part=2*", "--chunk", "6", "--dry-run", "-v", config=config
    )
    assert plan_output.stderr == ""
    plan = plan_output.stdout.splitlines()
    other = size_of(config, "part=30/*")
    assert plan[0].endswith(": 11 of 15 partitions to do (1 out of date, 10 read again)")
    assert plan[1].startswith(
        f"  reads 13 fragments ({size_of(config, 'part=2*/*', 'part=30/*')}) in 3 chunks, a version for each, about "
    )
    assert plan[2] == (
        f"  this includes 1 fragment, {other} of 1 partition that you did not select: "
        "a version describes the whole table"
    )
    assert plan[3:] == ["  * part=2", *(f"  * part={number}" for number in range(20, 30))]
    both = run("backfill", "t", "--missing", "--stale", "--chunk", "1", "--dry-run", config=config)
    assert both.stdout.splitlines()[0].endswith(": 2 of 15 partitions to do (1 missing, 1 out of date)")
    assert both.stderr.startswith("note: --chunk has no effect without --full")
    nothing = run("backfill", "t", "--missing", "--partition", "part=1", "--yes", config=config)
    assert nothing.stdout.endswith(": nothing to do: none of 1 selected partition is missing\n")


def test_selected_partitions_can_be_read_before_the_first_version(config: Path) -> None:
    """Before the first version, a backfill of selected partitions reads them, but publishes no version.

    The next refresh reads only the other partitions.
    """
    backfill = run("backfill", "t", "--yes", "--to", "2", config=config)
    assert backfill.exit_code == 0
    assert re.search(r"\b2 partitions\b", backfill.stderr)
    assert "t read, but not published in " in backfill.stdout
    assert run_json("backfill", "t", "--yes", "--to", "2", config=config)["done"] is False
    assert run_json("refresh", "t", config=config)["fragments"]["profiled"] == 2


def test_keys_from_a_file_and_from_a_pipe(config: Path) -> None:
    folder = config.parent
    run_json("backfill", "t", "--yes", config=config)
    (folder / "keys").write_bytes("\ufeffpart=9\r\n\r\n  part=1 \n".encode())
    plan = run_json("backfill", "t", "--full", "--keys-from", str(folder / "keys"), "--dry-run", config=config)
    assert plan["keys"] == ["part=1", "part=9"]
    arguments = ["--config", str(config), "backfill", "t", "--full", "--json", "--keys-from", "-"]
    piped_run = CliRunner().invoke(cli, [*arguments, "--yes"], input="part=10\n")
    assert (json.loads(piped_run.stdout)["partitions"], piped_run.stderr) == (1, "")
    nothing = json.loads(CliRunner().invoke(cli, [*arguments, "--yes"], input="").stdout)
    assert (nothing["partitions"], nothing["done"]) == (0, True)
    prompting_run = CliRunner().invoke(cli, arguments, input="part=10\n", prog_name="metastore")
    assert "--yes" in error_of(prompting_run, 2)


@pytest.mark.parametrize(
    ("arguments", "status", "explanation"),
    [
        ("t --partition part=11", 3, "has no partition 'part=11'; of 4 the nearest are"),
        ("t --partition prat=1", 3, "it is partitioned by 'part', not by 'prat'"),
        ("t --from 9 --to 2", 3, "--from '9' is after --to '2'"),
        ("t --from 3 --to 8", 3, "no partition from '3' to '8': its 4 partitions go from 'part=1' to 'part=10'"),
        ("t --from monday", 3, "--from 'monday' is not a value of the partition column 'part': give a whole number"),
        ("t --from part=x", 3, "--from 'x' is not a value of the partition column 'part'"),
        ("t --keys-from keys", 3, "has no partition 'part=7'; of 4 the nearest are"),
        ("t --keys-from nowhere", 2, "--keys-from: nowhere cannot be read: No such file or directory"),
        ("flat --partition day=1", 3, "it is not partitioned, and its one partition is 'all'"),
        ("flat --from 1", 3, "'flat' is not partitioned: leave out --from '1'"),
        ("other", 3, "'other'"),
        ("t --full --no-publish", 2, "--full does not go with --no-publish"),
        ("t --missing --full", 2, "--full does not go with --missing"),
        ("t --restart", 2, "--restart needs --full"),
        ("t --no-publish --via dagster", 2, "--no-publish does not go with --via dagster"),
        ("t --to 2 --via dagster", 2, "the first version needs all partitions"),
        ("t --chunk 0", 2, "0 is not in the range"),
    ],
)
def test_bad_input_is_an_error_before_data_is_read(
    untouched_config: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, status: int, explanation: str
) -> None:
    """Wrong arguments of `backfill` are an error that says what is wrong, and nothing is written."""
    monkeypatch.chdir(untouched_config.parent)
    (untouched_config.parent / "keys").write_text("part=1\npart=7\n")
    message = error_of(run("backfill", *arguments.split(), "--dry-run", config=untouched_config), status)
    assert explanation in message
    assert not (untouched_config.parent / "root").exists()


def test_a_failure_reports_what_was_done(config: Path) -> None:
    """A backfill that fails at a corrupt file prints what it read before, together with the error.

    The JSON on stdout has the first of two chunks, and the error names the partition of the file. After the file is
    repaired, the next backfill reads only the remaining partitions.
    """
    run_json("backfill", "t", "--yes", config=config)
    broken_file = config.parent / "lake" / "part=9" / "1.parquet"
    good, times = broken_file.read_bytes(), broken_file.stat()
    broken_file.write_bytes(good[:-8] + b"junk" + good[-4:])
    os.utime(
        broken_file, ns=(times.st_atime_ns, times.st_mtime_ns)
    )  # As if the disk were at fault: the file's metadata do not change.
    failed_run = run("backfill", "t", "--full", "--yes", "--chunk", "2", "--json", config=config)
    assert failed_run.exit_code == 3
    plan_output = json.loads(failed_run.stdout)
    assert set(plan_output) == {*RESULT, "error"}
    assert (plan_output["chunks"], plan_output["partitions"], plan_output["versions"], plan_output["done"]) == (
        1,
        2,
        [2],
        False,
    )
    assert "part=9" in plan_output["error"]
    assert failed_run.stderr == f"error: {plan_output['error']}\n"
    broken_file.write_bytes(good)
    os.utime(broken_file, ns=(times.st_atime_ns, times.st_mtime_ns))
    plan = run_json("backfill", "t", "--full", "--chunk", "2", "--dry-run", config=config)
    assert (plan["continues"], plan["keys"]) == (2, ["part=9", "part=10"])
    rest = run_json("backfill", "t", "--full", "--yes", "--chunk", "2", config=config)
    assert (rest["partitions"], rest["versions"], rest["done"]) == (2, [3], True)


@pytest.mark.parametrize(
    ("typed_text", "status", "versions"), [pytest.param("y", 0, 1, marks=pytest.mark.long), ("n", 130, 0)]
)
def test_a_backfill_asks_for_confirmation(config: Path, typed_text: str, status: int, versions: int) -> None:
    """On a terminal, `backfill` prints its plan and asks whether to continue.

    After `y`, it publishes a version. After `n`, it changes nothing and ends with status 130.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "backfill", "t"], cwd=config.parent, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    output = b""
    end = time.monotonic() + 60
    while b"Continue?" not in output:
        assert select.select([ours], [], [], max(0.0, end - time.monotonic()))[0], output
        output += os.read(ours, 4096)
    os.write(ours, f"{typed_text}\n".encode())
    stdout = process.communicate(timeout=60)[0]
    os.close(ours)
    assert process.returncode == status
    assert b"4 of 4 partitions to do (4 missing)" in output
    assert (b"t done" in stdout) == (status == 0)
    assert len(list(config.parent.glob("root/t/versions/*.json"))) == versions


@pytest.mark.long
def test_a_backfill_that_is_killed_repeatedly_ends_correctly(config: Path) -> None:
    """A full backfill that is killed at random moments and started again reads all partitions in the end.

    After each kill, the newest version is correct. Finally, no file about the backfill's progress is left.
    """
    for partition in range(20, 40):
        write(config.parent, partition)
    run_json("backfill", "t", "--yes", config=config)
    arguments = [*PROGRAM, "backfill", "t", "--full", "--yes", "--chunk", "4", "--json"]
    draw, kills = random.Random(4), 0
    while True:
        process = subprocess.Popen(arguments, cwd=config.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            stdout = process.communicate(timeout=draw.uniform(1, 4) + kills / 4)[0]
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
        verification = run_json("verify", "t", config=config)
        assert verification["differences"] == verification["unreadable"] == []
    assert process.returncode == 0
    assert json.loads(stdout)["done"]
    assert kills > 2
    rows = run_json("show", "t", "--partitions", config=config)
    assert len(rows) == 24
    assert min(row["version"] for row in rows) > 1
    assert not list(config.parent.glob("root/t/backfills/*"))
