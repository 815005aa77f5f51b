"""`metastore spark-server`: its output and exit status, with a running server and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run_command import error_of, run, run_json


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_CONNECT_DISCOVERY", str(tmp_path / "server" / "connect-local.json"))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    config_file = tmp_path / "metastore.yaml"
    config_file.write_text(
        'root: ./root\nspark: {spark.remote: "local[2]", spark.driver.memory: 512m}\n', encoding="utf-8"
    )
    return config_file


def test_status_without_a_server(config: Path) -> None:
    status = run("spark-server", "status", config=config)
    assert (status.exit_code, status.stdout, status.stderr) == (1, "no server runs\n", "")
    stop_result = run("spark-server", "stop", config=config)
    assert (stop_result.exit_code, stop_result.stdout) == (0, "no server runs\n")
    assert run_json("spark-server", "stop", config=config) == {"stopped": False}


def test_a_remote_server_is_not_started(config: Path) -> None:
    config.write_text("root: ./root\nspark: {spark.remote: 'sc://far:15002/;token=hush-hush'}\n", encoding="utf-8")
    error = error_of(run("spark-server", "start", config=config))
    assert error == "`spark`: sc://far:15002 is not on this machine; a server here has `spark.remote: local[*]`"


@pytest.mark.spark
@pytest.mark.long
def test_a_server_starts_once_and_stops(config: Path) -> None:
    start_answer = run_json("spark-server", "start", config=config)
    assert start_answer["started"]
    again = run_json("spark-server", "start", config=config)
    assert again == start_answer | {"started": False}
    status_answer = run_json("spark-server", "status", config=config)
    assert status_answer == {"running": True} | {key: start_answer[key] for key in ("url", "process", "logs")}
    assert Path(start_answer["logs"]).is_dir()
    assert (config.parent / "server" / "connect-local.json").stat().st_mode & 0o077 == 0, "the token is its user's"
    assert run_json("spark-server", "stop", config=config) == {"stopped": True}
    assert run("spark-server", "status", config=config).exit_code == 1
