"""S3 credentials occur nowhere in a project's definitions, events, logs, plans and errors.

A root is the folder with all stored state.
"""

import json
import re
import socket
from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, EnvVar, MaterializeResult, serialize_value
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_aws.s3 import S3Resource
from deltalake import write_deltalake

from metastore_assets import MetastoreConfig, TableConfig, build_metastore_definitions, fetch_column_statistics
from metastore_assets.assets.secrets import hide_secrets
from metastore_assets.errors import ConfigError, MetastoreError, StoreError
from metastore_assets.messages import remember_secret
from tests.assets.user_project import STATISTICS, attached, commit, reported_row_counts
from tests.cli.run_command import run

ID, SECRET, TOKEN = "AKIA.TOLD.TO.NOBODY", "hush/hush+0123456789. x..", "token-that-is-told-to-nobody"
ENVIRONMENT = {"OUR_KEY_ID": ID, "OUR_SECRET": SECRET, "OUR_TOKEN": TOKEN}


@pytest.fixture
def lake(s3_options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with the table `sales` in a bucket; the credentials are in this process's environment."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    place = "s3://metastore/of-a-project"
    rows = pa.table({"day": [date(2024, 1, 1)] * 3, "amount": [1, 2, 2]})
    options = {name: value for name, value in s3_options.items() if name != "aws_allow_http"}
    write_deltalake(f"{place}/sales", rows, storage_options={**options, "allow_http": "true"}, mode="overwrite")
    return place


def resource(endpoint: str) -> S3Resource:
    return S3Resource(
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=EnvVar("OUR_KEY_ID"),
        aws_secret_access_key=EnvVar("OUR_SECRET"),
        aws_session_token=EnvVar("OUR_TOKEN"),
    )


def config(lake: str) -> MetastoreConfig:
    return MetastoreConfig(
        root=f"{lake}/metastore", engine="auto", tables=[TableConfig(name="sales", uri=f"{lake}/sales")]
    )


def assert_no_secrets(*texts: str, folder: Path | None = None) -> None:
    """Assert that no secret occurs in the texts or in a file below the folder."""
    files = [file.read_bytes() for file in folder.rglob("*") if file.is_file()] if folder else []
    for secret in ENVIRONMENT.values():
        spellings = {secret, secret.replace("/", "\\/"), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        for spelling in spellings:
            assert not [text for text in texts if spelling in text]
            assert not [data for data in files if spelling.encode() in data]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.s3
def test_a_project_on_s3_shows_and_stores_no_secrets(
    lake: str,
    s3_endpoint: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With table and root on S3, no secret is in definitions, events, logs, errors or stored files.

    One dagster-aws resource refers to the environment variables with the secrets. The sensor, a run and a lookup use
    it, also with an endpoint that does not respond.
    """
    home = tmp_path / "home"
    home.mkdir()
    s3 = resource(s3_endpoint)
    with DagsterInstance.local_temp(str(home)) as instance:
        definitions = build_metastore_definitions(config(lake), s3=s3)
        assert reported_row_counts(instance, commit(definitions, instance), STATISTICS) == {None: 3}
        assert commit(definitions, instance) is None
        attached_values = attached(fetch_column_statistics(MaterializeResult(), "sales", config(lake), s3=s3))
        assert attached_values["dagster/row_count"] == 3
        again = build_metastore_definitions(config(lake), s3=s3)
        repository_text = serialize_value(RepositorySnap.from_def(again.get_repository_def())) + repr(again)
        source = again.resolve_asset_graph().get(AssetKey(["sales", "sales_source"]))
        assert source.kinds == {"delta"}, "the lookup of the newest version used the same credentials"

        # Errors: nothing listens at the endpoint, for the sensor, a run, and a writer's report.
        monkeypatch.setattr("metastore_assets.storage.object_store._MAX_RETRIES", 0)
        address = f"127.0.0.1:{closed_port()}"
        broken_definitions = build_metastore_definitions(config(lake), s3=resource(f"http://{address}"))
        errors = []
        with pytest.raises(StoreError, match=rf"s3://\S+ .*{re.escape(address)}\b") as error_info:
            commit(broken_definitions, instance)
        errors.append(repr(error_info.value) + str(error_info.value))
        result = broken_definitions.resolve_job_def("sales_refresh").execute_in_process(
            instance=instance, raise_on_error=False
        )
        assert not result.success
        errors += [str(event) for event in result.all_events]
        output, log = capfd.readouterr(), caplog.text
        assert_no_secrets(repository_text, str(attached_values), *errors, output.out, output.err, log, folder=home)


@pytest.mark.s3
def test_the_command_prints_no_secrets(lake: str, s3_endpoint: str, tmp_path: Path) -> None:
    """The command prints no secret in plans, results, statistics, errors and tracebacks.

    The configuration refers to the secrets as `${VAR}`.
    """
    text = """
root: {lake}/metastore-of-command
engine: auto
storage_options: &access
  aws_endpoint: {endpoint}
  aws_allow_http: "true"
  aws_region: us-east-1
  max_retries: "0"
  aws_access_key_id: ${{OUR_KEY_ID}}
  aws_secret_access_key: ${{OUR_SECRET}}
  aws_session_token: ${{OUR_TOKEN}}
tables: [{{name: sales, uri: "{lake}/sales", storage_options: *access}}]
"""
    file = tmp_path / "metastore.yaml"
    file.write_text(text.format(lake=lake, endpoint=s3_endpoint), encoding="utf-8")
    done = [
        run(*arguments.split(), config=file)
        for arguments in ("refresh sales --dry-run --json", "refresh sales --json", "show sales")
    ]
    assert [one.exit_code for one in done] == [0, 0, 0], done
    assert "3 rows" in done[-1].stdout
    file.write_text(text.format(lake=lake, endpoint=f"http://127.0.0.1:{closed_port()}"), encoding="utf-8")
    failed_refresh = run("--debug", "refresh", "sales", config=file)
    assert failed_refresh.exit_code == 3
    assert "Traceback" in failed_refresh.stderr
    assert_no_secrets(*(text for one in (*done, failed_refresh) for text in (one.stdout, one.stderr)))


def test_errors_that_are_stored_have_no_secrets() -> None:
    """An error whose cause has a secret loses the cause.

    An error whose message has a secret is replaced.

    Errors without secrets are unchanged.
    """
    remember_secret("abracadabra", "${SPELL}")
    error = ConfigError("it is refused")
    error.__cause__ = ValueError("abracadabra")
    with pytest.raises(MetastoreError) as error_info, hide_secrets():
        raise error
    assert (type(error_info.value), str(error_info.value)) == (ConfigError, "it is refused")
    assert error_info.value.__cause__ is None
    with pytest.raises(MetastoreError, match=r"RuntimeError.*\$\{SPELL\}"), hide_secrets():
        raise RuntimeError("said abracadabra")
    with pytest.raises(ZeroDivisionError), hide_secrets():
        _ = 1 / 0
