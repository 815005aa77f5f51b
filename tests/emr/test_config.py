"""Configuration of EMR Serverless: what is refused with which error, and what a job's request has.

A root is the folder with all stored state.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets import MetastoreConfig
from metastore_assets.checks.configured_checks import read_named_checks
from metastore_assets.config import load_config
from metastore_assets.config.emr import job_folder
from metastore_assets.databases import DatabaseListing, expand_databases
from metastore_assets.emr.job import _refresh
from metastore_assets.emr.request import JobAnswer, JobRequest
from metastore_assets.errors import ConfigError, CorruptionError, FragmentError, MetastoreError
from metastore_assets.resources.configuration import Configuration
from metastore_assets.resources.emr import build_request, job_parameters, tag_value
from tests.cli.run_command import error_of, run
from tests.conftest import REPOSITORY

SETTINGS = {"application": "00f1qs2u5gdh6a0l", "execution_role": "arn:aws:iam::123456789012:role/metastore-refresh"}
TABLE = {"name": "sales", "uri": "s3://lake/sales"}


def written(**over: Any) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "root": "s3://lake/metastore",
        "engine": "emr-serverless",
        "emr_serverless": SETTINGS,
        "tables": [TABLE],
    }
    return {name: value for name, value in {**arguments, **over}.items() if value is not None}


def config_file(folder: Path, **over: Any) -> Path:
    file = folder / "metastore.yaml"
    file.write_text(yaml.safe_dump(written(**over)), encoding="utf-8")
    return file


def request(full: bool = False, *partitions: str, **over: Any) -> JobRequest:
    config = Configuration.of(MetastoreConfig.model_validate(written(**over)))
    return build_request(config, "sales", full=full, partitions=partitions)


@pytest.mark.parametrize(
    ("over", "explanation"),
    [
        ({"emr_serverless": None}, "`emr_serverless`"),
        ({"emr_serverless": {"application": "00f1"}}, "emr_serverless.execution_role"),
        (
            {"emr_serverless": {**SETTINGS, "execution_role": "admin"}},
            "emr_serverless.execution_role = 'admin'",
        ),
        ({"emr_serverless": {**SETTINGS, "application": "My app"}}, "emr_serverless.application = 'My app'"),
        ({"emr_serverless": {**SETTINGS, "environment": "./e.tar.gz"}}, "emr_serverless.environment = './e.tar.gz'"),
        ({"emr_serverless": {**SETTINGS, "archive": "s3://a/b"}}, "emr_serverless.archive = 's3://a/b'"),
        ({"root": "./metastore"}, "`emr_serverless.folder`"),
        ({"root": "./m", "emr_serverless": {**SETTINGS, "folder": "s3://b/f"}}, "'./m'"),
        ({"tables": [{**TABLE, "uri": "./sales"}]}, "'./sales'"),
        ({"tables": [{**TABLE, "uri": "file:///sales"}]}, "'file:///sales'"),
        ({"tables": [{**TABLE, "uri": "FILE:///sales"}]}, "'FILE:///sales'"),
        ({"path_mapping": {"s3://old": "/new"}}, "'/new'"),
        (
            {"storage_options": {"aws_secret_access_key": "hush"}},
            "storage_options.aws_secret_access_key",
        ),
        ({"hidden_key": "k" * 40}, "hidden_key"),
        (
            {
                "catalogs": {"prod": {"type": "sql", "uri": "sqlite:///here.db"}},
                "tables": [{"catalog": "prod", "table": "a.sales", "name": "sales"}],
            },
            "'sqlite:///here.db'",
        ),
        (
            {"catalogs": {"prod": {"type": "rest", "uri": "https://me:pass@host"}}},
            "catalogs.prod.uri",
        ),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, over: dict[str, Any], explanation: str) -> None:
    """Reading the configuration raises an error with the key and the remedy, and without secrets."""
    with pytest.raises(ConfigError, match=re.escape(explanation)) as error_info:
        load_config(config_file(tmp_path, **over))
    assert not [secret for secret in ("hush", "kkkk", "me:pass") if secret in str(error_info.value)]


def test_settings_from_variables_are_checked_when_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config_file(tmp_path, root="${ROOT}")
    monkeypatch.setenv("ROOT", "s3://lake/metastore/")
    assert job_folder(load_config(file)) == "s3://lake/metastore/emr-serverless.jobs"
    monkeypatch.setenv("ROOT", "s3a://lake/metastore")
    assert job_folder(load_config(file)) == "s3://lake/metastore/emr-serverless.jobs"
    monkeypatch.setenv("ROOT", "/local")
    with pytest.raises(ConfigError, match=r"`emr_serverless\.folder`"):
        load_config(file)


def test_other_engines_ignore_the_section(tmp_path: Path) -> None:
    """With another engine, the configuration may have the section `emr_serverless`.

    So users can try the other engine without removing the section.
    """
    for engine in ("spark", "auto"):
        assert load_config(config_file(tmp_path, engine=engine, root="./metastore")).engine == engine


def test_the_command_refuses_the_engine(tmp_path: Path) -> None:
    """With the engine `emr-serverless`, `refresh` fails and names the command to use instead.

    `backfill --via dagster` refuses the option `--engine`.
    """
    file = config_file(tmp_path)
    sent_request = "metastore backfill sales --via dagster"
    assert sent_request in error_of(run("refresh", "sales", config=file))
    assert "--engine" in error_of(
        run("backfill", "sales", "--engine", "auto", "--via", "dagster", "--yes", config=file), status=2
    )


def test_a_request_holds_the_configured_table() -> None:
    """The request has the table's catalog, partition patterns and policies.

    It has no other tables, checks, or settings of EMR Serverless.
    """
    table = {
        "name": "sales",
        "catalog": "prod",
        "table": "shop.sales",
        "format": "iceberg",
        "at": "main",
        "partitions": {"day": ["2024-*", "2025-*"]},
        "statistics": "my_stats:Benford",
        "columns": {"default": {"histogram": 2048}, "amount": {"frequencies": "top(10)", "checks": ["not_null"]}},
        "sensor": {"interval": 7},
    }
    over = {
        "tables": [table, {"name": "other", "uri": "s3://lake/other"}],
        "catalogs": {"prod": {"type": "glue", "glue.region": "eu-central-1"}, "other": {"type": "hive", "uri": "x"}},
        "allow": ["s3://elsewhere/"],
        "path_mapping": {"s3://old/": "s3://lake/"},
    }
    sent_request = request(True, "day=2024-*", **over)
    config, result = JobRequest.from_json(json.loads(json.dumps(sent_request.to_json()))).load_config()
    here = MetastoreConfig.model_validate(written(**over)).resolve()
    assert (sent_request.full, sent_request.partitions) == (True, ("day=2024-*",))
    assert [table.name for table in config.tables] == ["sales"]
    assert config.engine == "spark"
    assert config.emr_serverless is None
    mine = here.table("sales")
    for name in ("uri", "catalog", "identifier", "format", "at", "partitions", "allow", "path_mapping", "statistics"):
        assert getattr(result, name) == getattr(mine, name), name
    for column in ("amount", "other"):
        assert result.effective_policy(column).model_dump(exclude={"checks"}) == mine.effective_policy(
            column
        ).model_dump(exclude={"checks"})
    assert not read_named_checks(result)


def test_the_request_says_that_a_table_is_of_a_database() -> None:
    """The job gets the table's database, format and URI.

    Policies for columns that the table lacks are no errors.
    """
    over = {
        "catalogs": {"prod": {"type": "glue"}},
        "tables": [{"catalog": "prod", "database": "shop", "columns": {"price": {"histogram": "off"}}}],
    }
    config = MetastoreConfig.model_validate(written(**over))
    located_config = config.locate()
    members = DatabaseListing(located_config.databases[0].key, tables={"orders": "hudi"})
    expanded_config = Configuration.of(expand_databases(config, [])[0])
    expanded_config = Configuration(expanded_config.file, expanded_config.config_object, listings=(members,))
    sent_request = build_request(expanded_config, "shop_orders", full=False, partitions=())
    _, result = JobRequest.from_json(json.loads(json.dumps(sent_request.to_json()))).load_config()
    (here,) = expanded_config.unresolved().tables
    assert (result.database, result.declared_format, result.uri) == (here.database, "hudi", here.uri)
    assert result.unknown_policy_columns(set()) == []


def test_the_job_resolves_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables in fields for secrets are sent as references that the job resolves.

    Other variables are sent resolved.
    """
    monkeypatch.setenv("LAKE", "lake")
    monkeypatch.setenv("TOKEN", "hush-hush")
    over = {
        "root": "s3://${LAKE}/metastore",
        "tables": [{"catalog": "prod", "table": "shop.sales", "name": "sales"}],
        "catalogs": {"prod": {"type": "rest", "uri": "https://host", "token": "${TOKEN}"}},
    }
    with pytest.raises(ConfigError, match=r"TOKEN.*`spark\.emr-serverless\.driverEnv\.TOKEN: …`"):
        request(**over)
    sent_request = request(**over, emr_serverless={**SETTINGS, "secrets": {"TOKEN": "prod/catalog"}})
    text = json.dumps(sent_request.to_json())
    assert "hush" not in text
    assert sent_request.config["root"] == "s3://lake/metastore"
    assert sent_request.secrets == {"TOKEN": "prod/catalog"}
    monkeypatch.setenv("TOKEN", "of the job")
    (catalog,) = [JobRequest.from_json(json.loads(text)).load_config()[1].catalog]
    assert getattr(catalog, "properties", {}) == {"uri": "https://host", "token": "of the job"}


@given(st.text(alphabet="${}AB:-x/", min_size=1, max_size=12))
def test_texts_arrive_unchanged(text: str) -> None:
    """The job gets the configured snapshot, option and root, even if they look like variable references."""
    escaped_text = text.replace("${", "$${")
    over = {
        "tables": [{**TABLE, "at": escaped_text, "options": {"delimiter": escaped_text}}],
        "root": f"s3://roots/{escaped_text}",
    }
    config, result = JobRequest.from_json(request(**over).to_json()).load_config()
    assert (result.at, result.options["delimiter"], config.root) == (text, text, f"s3://roots/{text}")


def test_errors_have_their_class_after_a_round_trip() -> None:
    """An error that a job sends to Dagster keeps its class if the class can be built from a message.

    Otherwise the received error is a MetastoreError.
    """
    for error, kind in ((CorruptionError("x"), CorruptionError), (FragmentError("x", path="p"), MetastoreError)):
        back = JobAnswer(kind=type(error).__name__, message="x").to_error("job 1")
        assert (type(back), str(back)) == (kind, "x (job 1)")
    assert type(JobAnswer(kind="SystemExit", message="x").to_error("job 1")) is MetastoreError
    assert JobAnswer.from_message({"other": 1}) is None
    # A job with another version of the package may send more fields.
    assert JobAnswer.from_message({"metastore": {"kind": "ConfigError", "new": 1}}) == JobAnswer(kind="ConfigError")
    assert JobAnswer.from_message(JobAnswer(3, 1.5).to_message()) == JobAnswer(3, 1.5)


def test_a_job_of_another_release_is_refused() -> None:
    """A job fails before it reads data if its release of this package is not that of the requester.

    The requester might not use the statistics that such a job would publish.
    """
    sent_request = replace(request(), version="0.0.1, profiles 1")
    with pytest.raises(ConfigError, match=r"\bsales\b.*metastore-assets 0.*0\.0\.1"):
        _refresh(sent_request, print)


def test_tags_are_valid_for_aws() -> None:
    """Characters that AWS does not allow in tags are replaced, and texts over 256 characters are cut.

    The value of a tag may come from any partition key.
    """
    assert tag_value("day=2024-01-01/country=A%26B") == "day=2024-01-01/country=A_26B"
    assert tag_value("é" * 300) == "_" * 256
    assert tag_value("me@example.com: a+b_c.d") == "me@example.com: a+b_c.d"


def test_our_parameters_are_on_the_command_line() -> None:
    """Spark properties that every job needs are on the command line of the job.

    Those of users are passed as `spark-defaults`, where values need no quotes.
    """
    over = {
        "emr_serverless": {
            **SETTINGS,
            "environment": "s3://lake/environment.tar.gz",
            "logs": "s3://lake/logs/",
            "timeout_minutes": 90,
            "spark": {
                "spark.archives": "s3://lake/more.zip#more",
                "spark.executor.extraJavaOptions": "-Da=b -Dc=d",
                "spark.dynamicAllocation.maxExecutors": 20,
                "spark.dynamicAllocation.enabled": True,
            },
        }
    }
    settings = MetastoreConfig.model_validate(written(**over)).emr_serverless
    assert settings is not None
    job = job_parameters(settings, "sales", "s3://lake/run.py")
    assert job["applicationId"] == SETTINGS["application"]
    assert job["executionTimeoutMinutes"] == 90
    line = job["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"].split()
    assert "spark.archives=s3://lake/environment.tar.gz#environment,s3://lake/more.zip#more" in line
    assert "spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python" in line
    (defaults,) = job["configurationOverrides"]["applicationConfiguration"]
    assert defaults["properties"] == {
        "spark.executor.extraJavaOptions": "-Da=b -Dc=d",
        "spark.dynamicAllocation.maxExecutors": "20",
        "spark.dynamicAllocation.enabled": "true",
    }
    assert job["configurationOverrides"]["monitoringConfiguration"]["s3MonitoringConfiguration"]["logUri"]


def test_the_documented_configuration_and_policies_are_valid() -> None:
    """The configuration in the documentation is valid, and has the section `emr_serverless`.

    Each AWS policy in the documentation is JSON.
    """
    page = (REPOSITORY / "docs" / "how-to" / "emr-serverless.md").read_text(encoding="utf-8")
    (documented_config,) = re.findall(r"```yaml\n(root:.*?)```", page, re.DOTALL)
    config = MetastoreConfig.model_validate(yaml.safe_load(documented_config))
    assert config.engine == "emr-serverless"
    assert config.emr_serverless is not None
    for policy in re.findall(r"```json\n(.*?)```", page, re.DOTALL):
        assert json.loads(policy)["Version"] == "2012-10-17"
