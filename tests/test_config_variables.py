"""References to the environment: what they stand for, where, and that what they stand for is not told."""

from __future__ import annotations

import os
import string
from pathlib import Path

import pytest
from dagster import EnvVar
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import MetastoreConfig, TableConfig, load_config, read_config
from metastore_assets.config_variables import Variables
from metastore_assets.errors import ConfigError, MetastoreError
from metastore_assets.messages import without_secrets

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
    """At the top, in tables, in catalogs, in the middle of a text; numbers and policies stay."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ROOT", raising=False)
    config = load_config(written(tmp_path))
    assert config.root == str(tmp_path / "metastore" / "kept")
    assert config.storage_options == {"aws_secret_access_key": "open sesame", "aws_region": "eu-central-1"}
    assert config.spark == {"spark.hadoop.fs.s3a.secret.key": "open sesame", "spark.cores.max": 2}
    sales, orders = config.tables
    assert (sales.uri, sales.policy("note").frequencies) == ("s3://lake/sales", "off")
    assert sales.columns["note"].model_fields_set == {"frequencies"}, "what was not said stays unsaid"
    assert (orders.identifier, orders.uri) == ("db.orders", "catalog://prod/db.orders")
    assert isinstance(orders.catalog, type(config.catalogs["prod"]))
    assert orders.catalog.properties == {"uri": "https://catalog.example/", "token": "token-of-prod"}
    monkeypatch.setenv("ROOT", "s3://elsewhere")
    assert load_config(written(tmp_path)).root == "s3://elsewhere/kept"


def test_as_written_it_is_there_without_the_environment(tmp_path: Path) -> None:
    """So a code location loads where only runs have the secrets."""
    config = read_config(written(tmp_path)).located()
    assert [table.uri for table in config.tables] == ["${LAKE}/sales", "catalog://prod/${DATABASE}.orders"]
    assert config.storage_options["aws_secret_access_key"] == "${SECRET}"


def test_objects_and_the_file_are_one_configuration(tmp_path: Path) -> None:
    """Whether it was made of objects with EnvVar, or read from a file."""
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
    resolved = objects.resolved(environment)
    assert resolved == read_config(written(tmp_path, text)).resolved(environment)
    assert resolved.resolved({}) is resolved
    with pytest.raises(ConfigError, match="at least 32 characters"):
        objects.resolved({**environment, "KEY": "short"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("root: r\nstorage_options: {a: '${NONE}'}", r"yaml: storage_options\.a: the environment has no variable NONE"),
        ("root: r\ntables: [{name: a, uri: '${NONE}'}]", r"table 'a': uri: the environment has no variable NONE"),
        ("root: r\ntables: [{name: a, uri: '${1}'}]", r"table 'a': uri: `\$\{` begins the name of a variable"),
        ("root: ${", r"root: `\$\{` begins"),
    ],
)
def test_what_is_not_there_is_said_with_where(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        load_config(written(tmp_path, text))


def test_a_default_goes_for_what_is_empty_too() -> None:
    """As in a shell."""
    config = MetastoreConfig(root="${A:-}x${B:-y}$${C}$D")
    for environment in ({}, {"A": "", "B": ""}):
        assert Variables(environment).resolved(config).root == "xy${C}$D"


@given(st.text(), st.dictionaries(st.text(string.ascii_letters + "_", min_size=1), st.text(min_size=1), max_size=3))
def test_a_value_is_taken_as_it_is(text: str, environment: dict[str, str]) -> None:
    """Whatever a text is, it can be written; and whatever a variable is, it stands there and is not read again."""
    escaped = text.replace("${", "$${")
    for name, value in environment.items():
        config = MetastoreConfig(root=f"/{escaped}${{{name}}}")
        # A `$` before the escape would be read as one.
        if "$$${" not in config.root and not escaped.endswith("$"):
            assert Variables(environment).resolved(config).root == f"/{text}{value}"


def test_secrets_are_not_told(tmp_path: Path) -> None:
    """In no message, wherever it comes from, and in nothing that prints a configuration."""
    config = MetastoreConfig(
        root="s3://b/m", storage_options={"aws_secret_access_key": EnvVar("S")}, spark={"password": "${S}"}
    )
    resolved = config.resolved({"S": "open. sesame.."})
    assert "sesame" not in repr(resolved) + str(resolved)
    assert str(MetastoreError("the store refused 'open. sesame..'.")) == "the store refused '${S}'"
    assert without_secrets("opened with open. sesame..") == "opened with ${S}"
    with pytest.raises(ConfigError) as raised:
        MetastoreConfig.model_validate({"root": "r", "storage_options": {"a": {"b": "hush hush"}}})
    assert "hush" not in str(raised.value)
    assert os.environ.get("S") is None
