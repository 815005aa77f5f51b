"""Backfills of the command that are done by runs of Dagster."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import BaseWorkspaceRequestContext, WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget

from metastore_assets.assets.launch import BACKFILL_TAG, launching, work_in
from metastore_assets.config import CONFIG_VARIABLE, MetastoreConfig, load_config
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.pipeline.backfill import BackfillResult, backfill, plan_backfill
from metastore_assets.pipeline.backfill_plan import Choice
from metastore_assets.pipeline.outcome import Progress
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from tests.assets.lab import SETTINGS, Lab

REPOSITORY = Path(__file__).parents[2]
DEFINITIONS = "metastore_assets.definitions"
AT_ONCE = {
    "run_coordinator": {
        "module": "dagster._core.run_coordinator.default_run_coordinator",
        "class": "DefaultRunCoordinator",
    }
}

pytestmark = [
    # Dagster warns of what it does itself when it starts an in-process workspace.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:dagster"),
    pytest.mark.filterwarnings("ignore:.*AssetSelection.sources:DeprecationWarning"),
]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A table of three days that was never read, and an instance whose runs are executed when they are submitted."""
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    (tmp_path / "home").mkdir()
    (tmp_path / "metastore.yaml").write_text(
        "root: ./metastore\nengine: auto\ntables: [{name: visits-eu, uri: ./visits}]\n"
    )
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "metastore.yaml"))
    settings = {key: value for key, value in SETTINGS.items() if key != "concurrency"} | AT_ONCE
    with DagsterInstance.local_temp(str(tmp_path / "home"), overrides=settings) as instance:
        lab = Lab(tmp_path, instance)
        for day in (1, 2, 3):
            lab.write_file(day, count=5)
        yield lab


@pytest.fixture
def workspace(own: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[BaseWorkspaceRequestContext]:
    monkeypatch.delitem(sys.modules, DEFINITIONS, raising=False)  # Of another test, with its configuration.
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name=DEFINITIONS, working_directory=str(own.folder))
    )
    with WorkspaceProcessContext(own.instance, InProcessWorkspaceLoadTarget(origin)) as context:
        yield context.create_request_context()
    sys.modules.pop(DEFINITIONS, None)


def fill(
    lab: Lab, workspace: BaseWorkspaceRequestContext, choice: Choice, config: MetastoreConfig | None = None
) -> tuple[BackfillResult, list[Progress]]:
    """A backfill whose chunks are runs, and what was told meanwhile."""
    config = config or load_config(lab.config_file)
    table, told = config.table("visits-eu"), list[Progress]()
    versions = VersionStore(ObjectStore(config.root), "visits-eu")
    result = BackfillResult("visits-eu")
    work = work_in(lab.instance, workspace, versions, choice.id, told.append)
    plan = plan_backfill(config, table, choice, chunk=2)
    backfill(config, table, plan, work, result)
    return result, told


def test_each_chunk_is_a_run(own: Lab, workspace: BaseWorkspaceRequestContext) -> None:
    """With tags by which it is found; a run tells of what it read, as every run does."""
    first, _ = fill(own, workspace, Choice())
    assert (first.versions, first.fragments, first.done) == ([1], 3, True)
    again, told = fill(own, workspace, Choice("all"))
    size = sum(path.stat().st_size for path in (own.folder / "visits").rglob("*.parquet"))
    assert (again.versions, again.partitions, again.fragments, again.bytes) == ([2, 3], 3, 3, size)
    runs = list(own.instance.get_runs(RunsFilter(tags={BACKFILL_TAG: Choice("all").id}), ascending=True))
    assert [run.status for run in runs] == [DagsterRunStatus.SUCCESS] * 2
    assert [run.tags[f"{BACKFILL_TAG}_chunk"] for run in runs] == ["1 of 2", "2 of 2"]
    assert {run.tags["metastore/table"] for run in runs} == {"visits-eu"}
    partitions = [{event.partition for event in own.events(run.run_id) if event.partition} for run in runs]
    assert partitions == [{"day=2024-01-01", "day=2024-01-02"}, {"day=2024-01-03"}]
    assert [(event.stage.split(" is ")[1], event.part) for event in told] == [
        ("success", "1 of 2"),
        ("success", "2 of 2"),
    ]


@pytest.mark.long
def test_a_run_that_fails(own: Lab, workspace: BaseWorkspaceRequestContext) -> None:
    """Says why; what was done before stays done."""
    fill(own, workspace, Choice())
    bad = own.write_file(3, count=5, seed=1)
    bad.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(MetastoreError, match=rf"run \S+ of Dagster failed: table 'visits-eu': 1 of 1 .*{bad.name}"):
        fill(own, workspace, Choice())
    bad.unlink()
    own.write_file(3, count=5, seed=2)
    assert fill(own, workspace, Choice())[0].versions == [2]


@pytest.mark.long
def test_another_configuration_than_dagsters(own: Lab, workspace: BaseWorkspaceRequestContext) -> None:
    """A version that is published elsewhere is none; a table that Dagster does not have has no job."""
    fill(own, workspace, Choice())
    config = load_config(own.config_file).model_copy(update={"root": str(own.folder / "elsewhere")})
    with pytest.raises(ConfigError, match=r"nothing was published below .*elsewhere.*: .* different configurations"):
        fill(own, workspace, Choice(), config)
    versions = VersionStore(ObjectStore(str(own.folder / "metastore")), "orders")
    with pytest.raises(
        ConfigError, match="table 'orders': no job of the code locations here refreshes it; there are: "
    ):
        work_in(own.instance, workspace, versions, "")


def test_no_instance_and_no_daemon(own: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before anything is launched: a run would wait in the queue for ever."""
    versions = VersionStore(ObjectStore(str(own.folder / "metastore")), "visits-eu")
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    with pytest.raises(ConfigError, match=r"\$DAGSTER_HOME does not say which"), launching(versions, ""):
        pass
    (tmp_path / "another").mkdir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "another"))
    with pytest.raises(ConfigError, match="no daemon takes them from there"), launching(versions, ""):
        pass
    (tmp_path / "another" / "dagster.yaml").write_text(yaml.safe_dump(AT_ONCE))
    monkeypatch.chdir(tmp_path / "another")
    with pytest.raises(ConfigError, match="in the code locations of the working folder"), launching(versions, ""):
        pass


@pytest.mark.long
def test_with_a_daemon(own: Lab) -> None:
    """The command in one process, Dagster's daemon in another, the run in a third: found in the instance afterwards."""
    home = own.folder / "instance"
    home.mkdir()
    (home / "dagster.yaml").write_bytes((REPOSITORY / "dagster.yaml").read_bytes())
    (own.folder / "workspace.yaml").write_text(f"load_from: [{{python_module: {DEFINITIONS}}}]\n")
    environment = {**os.environ, "DAGSTER_HOME": str(home), "PYTHONPATH": str(REPOSITORY)}
    log = (own.folder / "daemon.log").open("wb")
    script = "import sys; from dagster._daemon.cli import cli; sys.exit(cli())"
    daemon = subprocess.Popen(
        [sys.executable, "-c", script, "run"], cwd=own.folder, env=environment, stdout=log, stderr=log
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
                arguments, cwd=own.folder, env=environment, capture_output=True, text=True, check=False
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
        (run,) = instance.get_runs(RunsFilter(tags={BACKFILL_TAG: Choice().id}))  # The table's sensor asks for one too.
        assert (run.job_name, run.status) == ("visits_eu_refresh", DagsterRunStatus.SUCCESS)
        assert len(instance.get_dynamic_partitions("visits-eu_partitions")) == 3
