"""Passwords and signatures in URIs are in no message or output, and not stored.

Neither the root nor Dagster stores them. A root is the folder with all stored state.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metastore_assets import profile
from metastore_assets.config import MetastoreConfig, TableConfig
from metastore_assets.errors import MetastoreError
from metastore_assets.messages import redact, remove_secrets
from metastore_assets.pipeline.refresh import refresh
from metastore_assets.storage import object_store
from tests.cli.run_command import run

SECRET = "hush-hush"
URIS = [
    f"https://somebody:{SECRET}@127.0.0.1:9/lake/orders",
    f"https://{SECRET}@127.0.0.1:9/lake/orders",
    f"https://127.0.0.1:9/lake/orders.parquet?sv=1&sig={SECRET}",
    f"http://127.0.0.1:9/lake/orders?X-Amz-Signature={SECRET}&x=(a)",
    f"https://some:{SECRET}@127.0.0.1:9/lake/orders.csv?sig={SECRET}",
    f"s3://key:{SECRET}@bucket/lake?sig={SECRET}",
    f"ftp://key:{SECRET}@host/lake",
]


@pytest.fixture(autouse=True)
def _one_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat a failed request only once, because no server responds at the port of the URIs.

    By default, a request is repeated six times, which takes more than a second.
    """
    monkeypatch.setattr(object_store, "_MAX_RETRIES", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://a:b@h/p", "https://***@h/p"),
        ("https://token@h/p", "https://***@h/p"),
        ("x https://a:b@h/p?q=1&r='2' does not exist", "x https://***@h/p?***'2' does not exist"),
        ("'https://h/p?q=1'", "'https://h/p?***'"),
        ("https://h/p?q=1/part/0.parquet: gone", "https://h/p?*** gone"),
        ("abfss://container@account.dfs.core.windows.net/t", "abfss://container@account.dfs.core.windows.net/t"),
        ("s3://b/what?/x=1", "s3://b/what?***"),
        ("s3://b/what?", "s3://b/what?"),
        ("sqlite:////x/catalog.db", "sqlite:////x/catalog.db"),
        ("postgresql://u:p@h:5432/db", "postgresql://***@h:5432/db"),
        ("postgresql+psycopg2://u:p%40@h/db and http://c:d@e", "postgresql+psycopg2://***@h/db and http://***@e"),
        ("/a/b?c=d and mail@host", "/a/b?c=d and mail@host"),
        # Other characters precede the URI without a break.
        (r"a\thttps://token@h/p", r"a\thttps://***@h/p"),
        ("source_1https://a:b@h/p?sig=1", "source_1https://***@h/p?***"),
        ("0123456789abcdef" * 4 + "https://a:b@h/p?sig=1", "0123456789abcdef" * 4 + "https://***@h/p?***"),
    ],
)
def test_redacted_uri(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected
    assert remove_secrets(text) == expected
    assert str(MetastoreError(text)) == expected


@pytest.mark.parametrize("uri", URIS)
def test_commands_print_no_secret(tmp_path: Path, uri: str) -> None:
    """No command prints the secret in the URI of a table, and no file of the root contains it.

    Some commands fail to open the table at the URI, and others list the table.
    """
    config = {"root": "root", "engine": "auto", "tables": [{"name": "orders", "uri": uri}]}
    (tmp_path / "metastore.yaml").write_text(json.dumps(config))
    for words in (
        ["refresh", "orders"],
        ["refresh", "orders", "--json"],
        ["--debug", "refresh", "orders"],
        ["show"],
        ["show", "--json"],
        ["show", "orders"],
        ["profile", uri],
        ["profile", uri, "--json"],
        ["count", "orders", "--where", "x > 1"],
        ["check", "orders"],
    ):
        done = run(*words, config=tmp_path / "metastore.yaml")
        assert SECRET not in done.stdout + done.stderr, words
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("root/**/*") if path.is_file())


@pytest.mark.parametrize("uri", URIS)
def test_errors_contain_no_secret(tmp_path: Path, uri: str) -> None:
    table = TableConfig(name="t", uri=uri)
    with pytest.raises(MetastoreError) as error_info:
        refresh(MetastoreConfig(root=str(tmp_path), tables=[table], engine="auto"), table, lambda: None)  # type: ignore[arg-type, return-value]
    assert SECRET not in str(error_info.value)
    with pytest.raises(MetastoreError) as error_info:
        profile(uri)
    assert SECRET not in str(error_info.value)


def test_dagster_shows_no_secret() -> None:
    from metastore_assets.assets.translator import MetastoreAsset, MetastoreTranslator

    for uri in URIS:
        asset = MetastoreAsset(TableConfig(name="t", uri=uri), "source", "delta")
        spec = MetastoreTranslator().get_asset_spec(asset)
        assert SECRET not in f"{spec.description} {spec.metadata}"
