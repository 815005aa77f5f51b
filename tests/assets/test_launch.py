"""`metastore backfill` with chunks that are Dagster runs.

A chunk is the partitions that one step of a backfill processes.

A version is the published statistics of a table at one snapshot. A root is the folder with all stored state.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus
from pyspark.sql import SparkSession

from metastore_assets.assets.launch import BACKFILL_TAG, RefreshJob, find_refresh_job, open_run_executor
from metastore_assets.assets.names import TABLE_TAG, TableNames, is_shortened_tag
from metastore_assets.config import CONFIG_VARIABLE, MetastoreConfig, load_config
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.backfill import BackfillResult, ChunkProcessor, ChunkResult, backfill, plan_backfill
from metastore_assets.pipeline.backfill_plan import BackfillOptions, BackfillSelection, Chunk
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.assets.lab import NO_COMPUTE_LOGS, Lab

REPOSITORY = Path(__file__).parents[2]
DEFINITIONS = "metastore_assets.definitions"
AT_ONCE = {
    "run_coordinator": {
        "module": "dagster._core.run_coordinator.default_run_coordinator",
        "class": "DefaultRunCoordinator",
    }
}


@pytest.fixture
def backfill_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A table of three days without a version, and an instance that runs each run in its own process.

    The instance starts runs at once.
    """
    home = tmp_path / "home"
    home.mkdir()
    settings = {**AT_ONCE, "telemetry": {"enabled": False}, "compute_logs": NO_COMPUTE_LOGS}
    (home / "dagster.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "workspace.yaml").write_text(f"load_from: [{{python_module: {DEFINITIONS}}}]\n")
    (tmp_path / "metastore.yaml").write_text(
        "root: ./metastore\nengine: auto\ntables: [{name: visits-eu, uri: ./visits}]\n"
    )
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "metastore.yaml"))
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    monkeypatch.chdir(tmp_path)
    with DagsterInstance.get() as instance:
        lab = Lab(tmp_path, instance)
        for day in (1, 2, 3):
            lab.write_file(day, count=5)
        yield lab


def fill(
    lab: Lab,
    choice: BackfillSelection,
    config: MetastoreConfig | None = None,
    wrap: Callable[[ChunkProcessor], ChunkProcessor] = lambda work: work,
) -> tuple[BackfillResult, list[Progress]]:
    """Run a backfill of `visits-eu` whose chunks are Dagster runs.

    Returns its result and the reported progress.

    `choice` selects the partitions. `config` replaces the lab's configuration. `wrap` changes how chunks are executed.
    """
    config = config or load_config(lab.config_file)
    table, events = config.table("visits-eu"), list[Progress]()
    versions = VersionStore(ObjectStore(config.root), "visits-eu")
    result = BackfillResult("visits-eu")
    plan = plan_backfill(config, table, choice, BackfillOptions(chunk_partitions=2))
    with open_run_executor(versions, plan.attempt, events.append) as work:
        backfill(config, table, plan, wrap(work), result)
    return result, events


def publish(lab: Lab) -> None:
    """Publish the first version without Dagster."""
    config = load_config(lab.config_file)
    refresh(config, config.table("visits-eu"), no_spark)


def no_spark() -> SparkSession:
    """Fail: with the engine `auto`, a refresh of a few bytes must not start Spark."""
    raise AssertionError("Spark was started")


def runs(lab: Lab) -> list[DagsterRun]:
    """Return the runs that backfills launched, oldest first."""
    return [run for run in lab.instance.get_runs(ascending=True) if BACKFILL_TAG in run.tags]


def test_each_chunk_is_a_run(backfill_lab: Lab) -> None:
    """A backfill of three partitions in chunks of two launches two runs.

    Their tags have the backfill, the chunk and the table. The first run also reports the partitions of version 1, which
    no run has reported.
    """
    publish(backfill_lab)
    again, events = fill(backfill_lab, BackfillSelection("all"))
    size = sum(path.stat().st_size for path in (backfill_lab.folder / "visits").rglob("*.parquet"))
    assert (again.versions, again.partitions, again.fragments, again.bytes) == ([2, 3], 3, 3, size)
    assert again.failed_checks == []
    chunks = runs(backfill_lab)
    assert [run.status for run in chunks] == [DagsterRunStatus.SUCCESS] * 2
    assert [run.tags[f"{BACKFILL_TAG}_chunk"] for run in chunks] == ["1 of 2", "2 of 2"]
    assert {run.tags["metastore/table"] for run in chunks} == {"visits-eu"}
    assert len({run.tags[BACKFILL_TAG] for run in chunks}) == 1
    partitions = [{event.partition for event in backfill_lab.events(run.run_id) if event.partition} for run in chunks]
    # The first run also reports the partitions of version 1, which no run has reported.
    assert partitions == [{f"day=2024-01-0{day}" for day in (1, 2, 3)}, {"day=2024-01-03"}]
    ends = [(event.stage.split(" is ")[1], event.part) for event in events if event.stage.endswith("success")]
    assert ends == [("success", "chunk 1 of 2"), ("success", "chunk 2 of 2")]


@pytest.mark.long
def test_the_first_version_is_published_by_one_run(backfill_lab: Lab) -> None:
    first, _ = fill(backfill_lab, BackfillSelection())
    assert (first.versions, first.fragments, first.done) == ([1], 3, True)
    assert [run.status for run in runs(backfill_lab)] == [DagsterRunStatus.SUCCESS]


@pytest.mark.long
def test_a_failed_blocking_check_does_not_stop_the_backfill(backfill_lab: Lab) -> None:
    """A run that publishes and then fails at a blocking check completes its chunk.

    The backfill reports the check, and goes on with the next chunk.
    """
    (backfill_lab.folder / "metastore.yaml").write_text(
        "root: ./metastore\nengine: auto\ntables:\n  - name: visits-eu\n    uri: ./visits\n"
        "    checks: [{row_count: {maximum: 3}, blocking: true}]\n"
    )
    publish(backfill_lab)
    again, _ = fill(backfill_lab, BackfillSelection("all"))
    assert (again.versions, again.partitions, again.done) == ([2, 3], 3, True)
    assert [run.status for run in runs(backfill_lab)] == [DagsterRunStatus.FAILURE] * 2
    assert len(again.failed_checks) == 1
    assert "row_count" in again.failed_checks[0]


@pytest.mark.long
def test_a_repeated_backfill_waits_for_the_run_that_continued(backfill_lab: Lab) -> None:
    """The run of the first of two chunks continues after Ctrl-C has ended the command.

    The same command again counts this run for the first chunk, and launches a run only for the second chunk.
    """
    publish(backfill_lab)

    def interrupted(work: ChunkProcessor) -> ChunkProcessor:
        def do(chunk: Chunk, part: str) -> ChunkResult:
            work(chunk, part)
            raise KeyboardInterrupt

        return do

    with pytest.raises(KeyboardInterrupt):
        fill(backfill_lab, BackfillSelection("all"), wrap=interrupted)
    again, _ = fill(backfill_lab, BackfillSelection("all"))
    assert (again.versions, again.partitions, again.done) == ([2, 3], 3, True)
    assert len(runs(backfill_lab)) == 2
    config = load_config(backfill_lab.config_file)
    later = plan_backfill(config, config.table("visits-eu"), BackfillSelection("all"))
    assert runs(backfill_lab)[0].tags[BACKFILL_TAG] != later.attempt


@pytest.mark.long
def test_a_failed_run_ends_the_backfill_with_its_reason(backfill_lab: Lab) -> None:
    """A failed run ends the backfill with an error that has the table, the chunk and the reason.

    The reason is a corrupt file, which the error names. Without this file, the backfill succeeds.
    """
    publish(backfill_lab)
    bad = backfill_lab.write_file(3, count=5, seed=1)
    bad.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(MetastoreError, match=rf"'visits-eu'.*1 of 1\b.*{bad.name}"):
        fill(backfill_lab, BackfillSelection())
    bad.unlink()
    backfill_lab.write_file(3, count=5, seed=2)
    assert fill(backfill_lab, BackfillSelection())[0].versions == [2]


@pytest.mark.long
def test_a_configuration_that_dagster_does_not_load_is_an_error(backfill_lab: Lab) -> None:
    """A backfill by Dagster's runs fails if the runs publish to another root than the configured one.

    It also fails for a table that has no job in Dagster.
    """
    fill(backfill_lab, BackfillSelection())
    config = load_config(backfill_lab.config_file).model_copy(update={"root": str(backfill_lab.folder / "elsewhere")})
    with pytest.raises(ConfigError, match="elsewhere"):
        fill(backfill_lab, BackfillSelection(), config)
    versions = VersionStore(ObjectStore(str(backfill_lab.folder / "metastore")), "orders")
    with (
        pytest.raises(ConfigError, match="'orders'"),
        open_run_executor(versions, ""),
    ):
        pass


def test_a_backfill_needs_an_instance_and_a_daemon(
    backfill_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an instance, a daemon or a code location, the backfill is refused before it launches a run."""
    versions = VersionStore(ObjectStore(str(backfill_lab.folder / "metastore")), "visits-eu")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"\$DAGSTER_HOME"), open_run_executor(versions, ""):
        pass
    (tmp_path / "another").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "another"))
    with pytest.raises(ConfigError, match=r"--via dagster.*dagster-daemon"), open_run_executor(versions, ""):
        pass
    monkeypatch.chdir(tmp_path / "another")
    with (
        pytest.raises(ConfigError, match=r"\[tool\.dagster\].*; start the command in the folder of `workspace\.yaml`"),
        open_run_executor(versions, ""),
    ):
        pass


@pytest.mark.parametrize("prefix", [(), ("prod", "eu-1")])
@pytest.mark.parametrize("table", ["orders", "web_orders", "a" * 100, "web-" + "a" * 62, "b" * 63])
def test_the_job_of_a_table_is_found_by_names_of_any_length(table: str, prefix: tuple[str, ...]) -> None:
    """The refresh job of a table is found by its tag, which has the name of the table.

    A tag has 63 characters at most, so the tag of a longer name is shortened and ends in a digest.
    """
    others = [TableNames(name, AssetKey("x"), AssetKey("y"), {}, prefix) for name in ("c" * 100, "d" * 63, "sales")]
    names = TableNames(table, AssetKey("x"), AssetKey("y"), {}, prefix)
    jobs = [{"name": each.job, "tags": [{"key": TABLE_TAG, "value": each.tag}]} for each in (*others, names)]
    entry = {"name": "here", "locationOrLoadError": {"repositories": [{"name": "r", "jobs": jobs}]}}
    answer = {
        "instance": {"daemonHealth": {"daemonStatus": {"required": False, "healthy": False}}},
        "workspaceOrError": {"locationEntries": [entry]},
    }
    assert find_refresh_job(answer, table) == RefreshJob("here", "r", names.job)


def test_the_job_of_a_table_with_a_longer_name_is_not_found() -> None:
    """A backfill of `orders` does not use the job of the table `web_orders`.

    The name of that job ends in `orders_refresh`, and the tag with the name of its table is shortened.
    """
    prefix = ("prod_" * 12 + "a", "b-c", "d")
    longer = TableNames("web_orders", AssetKey("x"), AssetKey("y"), {}, prefix)
    assert is_shortened_tag(longer.tag)
    job = {"name": longer.job, "tags": [{"key": TABLE_TAG, "value": longer.tag}]}
    answer = {
        "instance": {"daemonHealth": {"daemonStatus": {"required": False, "healthy": False}}},
        "workspaceOrError": {
            "locationEntries": [
                {"name": "here", "locationOrLoadError": {"repositories": [{"name": "r", "jobs": [job]}]}}
            ]
        },
    }
    assert find_refresh_job(answer, "web_orders") == RefreshJob("here", "r", longer.job)
    with pytest.raises(ConfigError, match="'orders'"):
        find_refresh_job(answer, "orders")


@pytest.mark.long
def test_a_daemon_starts_the_runs_of_a_backfill(backfill_lab: Lab) -> None:
    """The command `backfill --via dagster` succeeds with a run that Dagster's daemon starts.

    The command, the daemon and the run are three processes. The test reads the run and the partitions from the
    instance.
    """
    home = backfill_lab.folder / "instance"
    home.mkdir()
    (home / "dagster.yaml").write_bytes((REPOSITORY / "dagster.yaml").read_bytes())
    (backfill_lab.folder / "workspace.yaml").write_text(f"load_from: [{{python_module: {DEFINITIONS}}}]\n")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    log = (backfill_lab.folder / "daemon.log").open("wb")
    script = "import sys; from dagster._daemon.cli import cli; sys.exit(cli())"
    daemon = subprocess.Popen(
        [sys.executable, "-c", script, "run"], cwd=backfill_lab.folder, env=environment, stdout=log, stderr=log
    )
    arguments = [
        sys.executable,
        "-m",
        "metastore_assets",
        "backfill",
        "visits-eu",
        "--yes",
        "--json",
        "--via",
        "dagster",
    ]
    try:
        end = time.monotonic() + 120
        while True:
            done = subprocess.run(
                arguments, cwd=backfill_lab.folder, env=environment, capture_output=True, text=True, check=False
            )
            if "no daemon takes them" not in done.stdout or time.monotonic() > end:
                break
            time.sleep(1)
    finally:
        daemon.terminate()
        daemon.wait(60)
        log.close()
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["versions"] == [1]
    with DagsterInstance.from_config(str(home)) as instance:
        (run,) = (
            run for run in instance.get_runs() if BACKFILL_TAG in run.tags
        )  # The table's sensor requests a run, too.
        assert (run.job_name, run.status) == ("visits_eu_refresh", DagsterRunStatus.SUCCESS)
        assert len(instance.get_dynamic_partitions("visits-eu_partitions")) == 3
