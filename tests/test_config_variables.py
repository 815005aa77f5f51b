"""References to environment variables are resolved where they are allowed.

Messages do not show values that may be secrets.
"""

from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from dagster import EnvVar
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import ColumnPolicy, MetastoreConfig, TableConfig, load_config, read_config
from metastore_assets.config.variables import VariableResolver
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import remove_secrets

FILE = """
root: ${ROOT:-./metastore}/kept
storage_options: {aws_secret_access_key: "${SECRET}", aws_region: eu-central-1}
catalogs: {prod: {type: rest, uri: "https://${HOST}/", token: "${TOKEN}"}}
spark: {spark.hadoop.fs.s3a.secret.key: "${SECRET}", spark.cores.max: 2}
tables:
  - {name: sales, uri: "${LAKE}/sales", columns: {note: {frequencies: off}}}
  - {name: orders, catalog: prod, table: "${DATABASE}.orders"}
"""
ENVIRONMENT = {
    "SECRET": "open sesame",
    "HOST": "catalog.example",
    "TOKEN": "token-of-prod",
    "LAKE": "s3://lake",
    "DATABASE": "db",
}


def written(folder: Path, text: str = FILE) -> Path:
    path = folder / "metastore.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_text_may_refer_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts at the top level, in tables and in catalogs may be or contain references.

    Numbers and policies stay as they are.
    """
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ROOT", raising=False)
    config = load_config(written(tmp_path))
    assert config.root == str(tmp_path / "metastore" / "kept")
    assert config.storage_options == {"aws_secret_access_key": "open sesame", "aws_region": "eu-central-1"}
    assert config.spark == {"spark.hadoop.fs.s3a.secret.key": "open sesame", "spark.cores.max": 2}
    sales, orders = config.tables
    assert (sales.uri, sales.effective_policy("note").frequencies) == ("s3://lake/sales", "off")
    assert sales.columns["note"].model_fields_set == {"frequencies"}, "unset keys stay unset"
    assert (orders.identifier, orders.uri) == ("db.orders", "catalog://prod/db.orders")
    assert isinstance(orders.catalog, type(config.catalogs["prod"]))
    assert orders.catalog.properties == {"uri": "https://catalog.example/", "token": "token-of-prod"}
    monkeypatch.setenv("ROOT", "s3://elsewhere")
    assert load_config(written(tmp_path)).root == "s3://elsewhere/kept"


def test_a_configuration_with_references_loads_without_the_environment(tmp_path: Path) -> None:
    """Reading a configuration leaves its references as they are.

    So a code location loads even if only runs have the variables with secrets.
    """
    config = read_config(written(tmp_path)).locate()
    assert [table.uri for table in config.tables] == ["${LAKE}/sales", "catalog://prod/${DATABASE}.orders"]
    assert config.storage_options["aws_secret_access_key"] == "${SECRET}"


def test_objects_with_references_equal_the_file(tmp_path: Path) -> None:
    objects = MetastoreConfig(
        root=str(tmp_path / "m"),
        storage_options={"aws_secret_access_key": EnvVar("SECRET")},
        hidden_key=EnvVar("KEY"),  # type: ignore[arg-type]
        tables=[TableConfig(name="sales", uri="s3://lake/sales", storage_options={"token": EnvVar("TOKEN")})],
    )
    text = (
        'root: ./m\nstorage_options: {aws_secret_access_key: "${SECRET}"}\nhidden_key: ${KEY}\n'
        'tables: [{name: sales, uri: s3://lake/sales, storage_options: {token: "${TOKEN}"}}]'
    )
    environment = {**ENVIRONMENT, "KEY": "k" * 32}
    resolved_config = objects.resolve(environment)
    assert resolved_config == read_config(written(tmp_path, text)).resolve(environment)
    assert resolved_config.resolve({}) is resolved_config
    with pytest.raises(ConfigError, match=r"\b32\b"):
        objects.resolve({**environment, "KEY": "short"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root: r\nstorage_options: {a: '${NONE}'}", r"yaml: storage_options\.a: .*\bNONE\b"),
        ("root: r\ntables: [{name: a, uri: '${NONE}'}]", r"'a': uri: .*\bNONE\b"),
        ("root: r\ntables: [{name: a, uri: '${1}'}]", r"'a': uri: `\$\{`"),
        ("root: ${", r"root: `\$\{`"),
    ],
)
def test_unset_variables_are_reported_with_their_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(written(tmp_path, text))


def test_a_default_replaces_empty_values() -> None:
    """`${A:-x}` is `x` if the variable `A` is not set or empty, as in a shell."""
    config = MetastoreConfig(root="${A:-}x${B:-y}$${C}$D")
    for environment in ({}, {"A": "", "B": ""}):
        assert VariableResolver(environment).resolve(config).root == "xy${C}$D"


@given(st.text(), st.dictionaries(st.text(string.ascii_letters + "_", min_size=1), st.text(min_size=1), max_size=3))
def test_values_of_variables_are_not_resolved_again(text: str, environment: dict[str, str]) -> None:
    """`$${` stands for a literal `${`, so any text can be written.

    A variable's value may contain `${` literally.
    """
    escaped_text = text.replace("${", "$${")
    for name, value in environment.items():
        config = MetastoreConfig(root=f"/{escaped_text}${{{name}}}")
        # A `$` before the escape would be read as one.
        if "$$${" not in config.root and not escaped_text.endswith("$"):
            assert VariableResolver(environment).resolve(config).root == f"/{text}{value}"


def test_messages_show_no_secrets(tmp_path: Path) -> None:
    """Neither a message nor a printed configuration contains the value of a secret."""
    config = MetastoreConfig(
        root="s3://b/m", storage_options={"aws_secret_access_key": EnvVar("S")}, spark={"password": "${S}"}
    )
    resolved_config = config.resolve({"S": "open. sesame.."})
    assert "sesame" not in repr(resolved_config) + str(resolved_config)
    assert str(MetastoreError("the store refused 'open. sesame..'.")) == "the store refused '${S}'"
    assert remove_secrets("opened with open. sesame..") == "opened with ${S}"
    with pytest.raises(ConfigError) as error_info:
        MetastoreConfig.model_validate({"root": "r", "storage_options": {"a": {"b": "hush hush"}}})
    assert "hush" not in str(error_info.value)
    assert os.environ.get("S") is None


EVERYWHERE = """
root: ${ROOT:-m}
engine: ${ENGINE:-auto}
keep_versions: ${KEEP:-7}
catalogs: {prod: {type: "${KIND:-rest}", uri: http://c}}
emr_serverless:
  {application: "${APP:-a}", execution_role: "${ROLE}", engine: "${INNER:-auto}", interval: "${EVERY:-2.5}"}
databases:
  - {database: "${DATABASE:-db}", catalog: prod, only: "${ONLY:-fact_*}", sensor: {interval: "${EVERY_SECONDS:-9}"}}
tables:
  - name: ${NAME:-sales}
    uri: ${LAKE}/sales
    format: ${FORMAT:-delta}
    restrict_to_table_root: ${CONFINE:-true}
    partitions: "${WHERE:-day >= '2024-01-01'}"
    schema: {a: "${TYPE:-int64}"}
    sensor: {interval: "${EVERY_SECONDS:-9}"}
    checks:
      - row_count: ${ROWS:-5}
        blocking: ${BLOCKING:-false}
        severity: ${SEVERITY:-warn}
      - fresh: ${AGE:-6h}
    columns:
      note:
        frequencies: ${FREQUENCIES:-top(5)}
        histogram: ${BINS:-2000}
        ranks: ${RANKS:-off}
        checks: [{accepted_values: ["${FIRST:-a}", "$${x}", 7]}, {range: {minimum: "${LEAST:--1.5}"}}]
"""


def test_every_key_may_refer_to_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys with numbers or choices may have references, too.

    The value is validated as if the file contained it.
    """
    config = read_config(written(tmp_path, EVERYWHERE))
    (table,), (database,) = config.tables, config.databases
    assert (config.engine, config.keep_versions, config.root) == ("auto", 7, "${ROOT:-m}")
    assert config.emr_serverless is not None
    assert (config.emr_serverless.engine, config.emr_serverless.interval) == ("auto", 2.5)
    assert config.emr_serverless.execution_role == "${ROLE}"
    assert (config.catalogs["prod"].type, database.only, database.sensor.interval) == ("rest", ("fact_*",), 9)
    assert (table.name, table.uri, table.format, table.restrict_to_table_root) == (
        "sales",
        "${LAKE}/sales",
        "delta",
        True,
    )
    assert (table.partitions, table.declared, table.sensor.interval) == ("day >= '2024-01-01'", {"a": "int64"}, 9)
    policy = table.columns["note"]
    assert (policy.frequencies, policy.histogram, policy.ranks) == ("top(5)", 2000, "off")
    assert table.checks == ({"row_count": 5, "blocking": False, "severity": "warn"}, {"fresh": "6h"})
    assert policy.checks == ({"accepted_values": ["a", "${x}", 7]}, {"range": {"minimum": -1.5}})

    for name, value in {"ENGINE": "spark", "KEEP": "12", "FORMAT": "iceberg", "ROWS": "8", "LAKE": "/lake"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("ROLE", "arn:aws:iam::123456789012:role/r")
    resolved_config = load_config(written(tmp_path, EVERYWHERE))
    assert (resolved_config.engine, resolved_config.keep_versions, resolved_config.tables[0].format) == (
        "spark",
        12,
        "iceberg",
    )
    assert resolved_config.tables[0].checks[0] == {"row_count": 8, "blocking": False, "severity": "warn"}
    assert resolved_config.tables[0].columns == config.tables[0].columns, "resolved values are not resolved again"
    # Elsewhere it is resolved again, so a literal text must stay escaped.
    config_to_send = VariableResolver(os.environ, preserve_secret_references=True).resolve(resolved_config)
    assert config_to_send.tables[0].columns["note"].checks[0]["accepted_values"] == ["a", "$${x}", 7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root: r\nengine: ${NONE}", r"yaml: engine: .*\bNONE\b"),
        ("root: r\nengine: ${NONE:-sprak}", r"engine = 'sprak': .*'spark'.*'auto'.*'emr-serverless'"),
        ("root: r\nkeep_versions: ${NONE:-0}", "keep_versions = 0: "),
        (
            "root: r\ntables: [{name: a, uri: u, columns: {b: {histogram: '${NONE}'}}}]",
            r"'a': columns\.b = .*: histogram: .*\bNONE\b",
        ),
        ("root: r\ntables: [{name: a, uri: u, format: '${'}]", r"'a'.*: format: `\$\{`"),
    ],
)
def test_invalid_values_are_reported_when_the_file_is_read(tmp_path: Path, text: str, message: str) -> None:
    """Reading the file reports unset variables, malformed references and invalid resolved values.

    This holds for keys with numbers or choices, whose references are resolved when the file is read.
    """
    with pytest.raises(ConfigError, match=message):
        read_config(written(tmp_path, text))


def test_objects_may_refer_to_the_environment_in_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINS", "3000")
    monkeypatch.setenv("ENGINE", "auto")
    policy = ColumnPolicy(histogram=EnvVar("BINS"))  # type: ignore[arg-type]
    assert policy.histogram == 3000
    assert MetastoreConfig(root="r", engine=EnvVar("ENGINE")).engine == "auto"  # type: ignore[arg-type]
    assert ColumnPolicy(histogram=EnvVar.int("BINS")).histogram == policy.histogram
    cores = MetastoreConfig(root="r", spark={"spark.cores.max": EnvVar.int("BINS")}).resolve()
    assert cores.spark == {"spark.cores.max": str(policy.histogram)}
