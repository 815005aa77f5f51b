"""Iceberg tables are opened by name in SQL, REST and Glue catalogs through pyiceberg.

The tables may be in an object store.

A difference is the data files added and removed between two snapshots.
"""

from __future__ import annotations

import json
import threading
import traceback
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog

from metastore_assets.config import CatalogConfig, TableConfig, load_config
from metastore_assets.errors import ConfigError, TableFormatError, TableNotFoundError
from metastore_assets.formats import MetadataCache, SnapshotDiff, open_table_format
from metastore_assets.formats.catalogs.base import ListedTable
from metastore_assets.formats.catalogs.client import list_tables
from metastore_assets.messages import remove_secrets
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_rows

_ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def _configured(folder: Path, text: str) -> TableConfig:
    (folder / "metastore.yaml").write_text(text)
    return load_config(folder / "metastore.yaml").tables[0]


def _sql(database: Path, name: str) -> SqlCatalog:
    database.parent.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{database}", warehouse=str(database.parent / "warehouse"))


def _fill(catalog: Catalog, location: str | None = None) -> str:
    catalog.create_namespace("db")
    table = catalog.create_table("db.sales", _ROWS.schema, location)
    table.append(_ROWS)
    return table.metadata_location


def test_the_embedded_catalog_is_a_file_below_the_root(tmp_path: Path) -> None:
    """The catalog `default` needs no configuration: it is the file `catalog.db` below `root`.

    An open table sees later commits. A missing table is an error.
    """
    table = _configured(tmp_path, "{root: meta, tables: [{name: t, catalog: default, table: db.sales}]}")
    assert table.uri == "catalog://default/db.sales"
    table_format = open_table_format(table)
    with pytest.raises(TableNotFoundError, match=r"'default'.*'db.sales'.*meta/catalog\.db"):
        table_format.snapshot()
    assert not (tmp_path / "meta").exists()
    with _sql(tmp_path / "meta" / "catalog.db", "default") as catalog:
        _fill(catalog)
        assert read_rows(table_format.snapshot()) == [(1,), (2,)]
        first = table_format.current()
        catalog.load_table("db.sales").append(_ROWS)
        assert table_format.current() != first
        assert table_format.snapshot().reference == table_format.current()
        assert len(read_rows(table_format.snapshot())) == 4
    missing = table.model_copy(update={"identifier": "db.other"})
    with pytest.raises(TableNotFoundError, match=r"'db\.other'"):
        open_table_format(missing).snapshot()


def test_the_difference_of_two_snapshots_in_a_catalog_has_only_the_new_file(tmp_path: Path) -> None:
    """A difference is computed from the cache, although each commit writes another metadata file.

    It has only the file that the commit added. `history_change` is `recreated` if the table was dropped and created
    again at the same location.
    """
    table = _configured(tmp_path, "{root: meta, tables: [{name: t, catalog: default, table: db.sales}]}")
    location = str(tmp_path / "sales")
    with _sql(tmp_path / "meta" / "catalog.db", "default") as catalog:
        _fill(catalog, location)
        cache = MetadataCache(ignore_process=True)
        first = open_table_format(table, cache).snapshot()
        catalog.load_table("db.sales").append(_ROWS)
        entries = dict(cache.entries)
        table_format = open_table_format(table, MetadataCache(lambda: entries, ignore_process=True))
        diff = table_format.changes(first.reference)
        assert isinstance(diff, SnapshotDiff), diff
        (new_file,) = (
            task.file.file_path.rpartition("/")[2]
            for task in catalog.load_table("db.sales").scan().plan_files()
            if not first.fragments[0].path.endswith(task.file.file_path.rpartition("/")[2])
        )
        assert [fragment.path.rpartition("/")[2] for fragment in diff.added] == [new_file]
        assert diff.removed == frozenset()
        assert table_format.history_change(first.reference, table_format.current()) is None
        catalog.drop_table("db.sales")
        catalog.create_table("db.sales", _ROWS.schema, location).append(_ROWS)
        assert table_format.history_change(first.reference, table_format.current()) == "recreated"


def test_a_named_catalog_has_the_properties_of_pyiceberg(tmp_path: Path) -> None:
    """A table is read from a named catalog, which is configured with pyiceberg's properties.

    The path of the catalog's database is relative to the configuration file. `at` selects an earlier snapshot.
    """
    with _sql(tmp_path / "lake.db", "lake") as catalog:
        _fill(catalog)
        catalog.load_table("db.sales").append(_ROWS)
        first = catalog.load_table("db.sales").metadata.snapshots[0].snapshot_id
    table = _configured(
        tmp_path,
        "{root: meta, catalogs: {lake: {type: sql, uri: 'sqlite:///lake.db'}},"
        f" tables: [{{name: t, catalog: lake, table: db.sales, at: {first}}}]}}",
    )
    snapshot = open_table_format(table).snapshot()
    assert (snapshot.id, len(read_rows(snapshot))) == (str(first), 2)


def test_a_table_relocated_after_registration_is_read(tmp_path: Path) -> None:
    """A table that was moved after its registration is read with a path mapping.

    The catalog has the old path of the metadata file. Without a path mapping, the table is not found.
    """
    with _sql(tmp_path / "lake.db", "lake") as catalog:
        _fill(catalog, location=str(tmp_path / "old" / "sales"))
    (tmp_path / "old").rename(tmp_path / "new")
    text = (
        "{root: meta, catalogs: {lake: {type: sql, uri: 'sqlite:///lake.db'}}, RELOCATE"
        "tables: [{name: t, catalog: lake, table: db.sales}]}"
    )
    with pytest.raises(TableNotFoundError, match=r"db\.sales.*\.metadata\.json"):
        open_table_format(_configured(tmp_path, text.replace("RELOCATE", ""))).snapshot()
    path_mapping = f"path_mapping: {{'{tmp_path}/old': new}}, "
    assert (
        len(read_rows(open_table_format(_configured(tmp_path, text.replace("RELOCATE", path_mapping))).snapshot())) == 2
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{name: t, catalog: default}]", "needs both"),
        ("[{name: t, table: db.t}]", "needs both"),
        ("[{name: t, uri: x, catalog: default, table: db.t}]", r"\buri\b.*\bcatalog\b"),
        ("[{name: t}]", r"'t': uri\b"),
        ("[{name: t, catalog: lake, table: db.t}]", r"'lake'.*\bother, default\b"),
    ],
)
def test_a_table_has_exactly_one_location(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _configured(tmp_path, f"{{root: r, catalogs: {{other: {{type: rest, uri: 'http://x'}}}}, tables: {text}}}")


def test_invalid_catalogs_are_reported(tmp_path: Path) -> None:
    """A catalog of an unknown type is an error, and so is `default` if the root is no local folder."""
    with pytest.raises(ConfigError, match=r"catalogs\.lake\.type.*'jdbc'.*'sql'.*'rest'.*'glue'.*'hive'"):
        _configured(tmp_path, "{root: r, catalogs: {lake: {type: jdbc}}}")
    with pytest.raises(ConfigError, match=r"'default'.*`catalogs`"):
        _configured(tmp_path, "{root: 's3://b/r', tables: [{name: t, catalog: default, table: db.t}]}")


class _Rest(BaseHTTPRequestHandler):
    """The part of the REST catalog protocol that reading a table needs."""

    location = ""

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._answer(200, {"defaults": {}, "overrides": {}})
        elif self.path.startswith("/v1/namespaces/db/tables?") or self.path == "/v1/namespaces/db/tables":
            self._answer(200, {"identifiers": [{"namespace": ["db"], "name": "sales"}]})
        elif self.path.startswith("/v1/namespaces/db/tables/sales"):
            config = {"s3.access-key-id": "vended", "s3.endpoint": "http://there"}
            metadata = json.loads(Path(self.location).read_text())
            self._answer(200, {"metadata-location": self.location, "metadata": metadata, "config": config})
        else:
            error = {"message": "no such table", "type": "NoSuchTableException", "code": 404}
            self._answer(404, {"error": error})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[str]:
    """The URI of a REST catalog with one table."""
    with _sql(tmp_path / "lake.db", "lake") as catalog:
        location = _fill(catalog).removeprefix("file://")
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Rest,), {"location": location}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_rest_catalog_provides_credentials(tmp_path: Path, rest: str) -> None:
    """A table is read with the credentials that its REST catalog provides.

    Storage options of the table take precedence. Tables of the catalog can be listed.
    """
    text = (
        f"{{root: r, catalogs: {{lake: {{type: rest, uri: '{rest}'}}}}, "
        "tables: [{name: t, catalog: lake, table: db.NAME, storage_options: {aws_endpoint: http://mine}}]}"
    )
    snapshot = open_table_format(_configured(tmp_path, text.replace("NAME", "sales"))).snapshot()
    assert read_rows(snapshot) == [(1,), (2,)]
    options = dict(snapshot.fragments[0].source.location.options)  # type: ignore[attr-defined]
    assert options["aws_access_key_id"] == "vended"
    assert options["aws_endpoint"] == "http://mine"
    with pytest.raises(TableNotFoundError, match=r"'lake'.*'db\.other'"):
        open_table_format(_configured(tmp_path, text.replace("NAME", "other"))).snapshot()
    catalog = load_config(tmp_path / "metastore.yaml").catalogs["lake"]
    assert list_tables(catalog, "db") == [ListedTable("sales", "iceberg")]


@pytest.mark.parametrize(
    ("properties", "cause"),
    [
        ("type: rest, uri: 'http://127.0.0.1:1'", r"\b127\.0\.0\.1\b.*\bport=1\b"),
        ("type: sql, uri: 'nonsense://x'", r"\bnonsense\b"),
    ],
)
def test_the_error_names_a_catalog_that_does_not_respond(tmp_path: Path, properties: str, cause: str) -> None:
    text = f"{{root: r, catalogs: {{lake: {{{properties}}}}}, tables: [{{name: t, catalog: lake, table: db.t}}]}}"
    with pytest.raises(TableFormatError, match=rf"'lake'.*'db\.t'.*{cause}"):
        open_table_format(_configured(tmp_path, text)).snapshot()


@pytest.mark.parametrize(
    ("properties", "cause"),
    [
        ({"type": "sql", "uri": "postgresql+nope://me:a-s3cret%21@127.0.0.1:1/db"}, r"\bpostgresql\.nope\b"),
        (
            {
                "type": "rest",
                "uri": "http://127.0.0.1:1",
                "credential": "id:a-s3cret%21",
                "oauth2-server-uri": "http://127.0.0.1:1/tokens",
            },
            r"\b127\.0\.0\.1\b.*\bport=1\b.*/tokens\b",
        ),
        ({"type": "hive", "uri": "thrift://me:a-s3cret%21@127.0.0.1:1"}, r"\b127\.0\.0\.1\b.*\b1\b"),
    ],
    ids=["sql", "rest", "hive"],
)
def test_secrets_of_a_catalog_are_redacted(properties: dict[str, str], cause: str) -> None:
    """A secret in the configuration of a catalog is in no error message and in no repr.

    `remove_secrets` removes it from a traceback.
    """
    catalog = CatalogConfig.model_validate({**properties, "name": "lake"})
    table = TableConfig(name="t", catalog=catalog, table="db.t")
    with pytest.raises(TableFormatError, match=rf"'lake'.*'db\.t'.*{cause}") as error_info:
        open_table_format(table).snapshot()
    error_text = "".join(traceback.format_exception(error_info.value))
    assert "a-s3cret" not in str(error_info.value)
    assert "a-s3cret" not in remove_secrets(error_text)
    assert "a-s3cret" not in repr(table)


@pytest.mark.s3
def test_a_table_in_a_glue_catalog_is_read(tmp_path: Path, s3_endpoint: str) -> None:
    """A table named in a Glue catalog is read with pyiceberg's properties for Glue.

    The catalog is a test server.
    """
    properties = {
        "glue.endpoint": s3_endpoint,
        "glue.region": "us-east-1",
        "glue.access-key-id": "key",
        "glue.secret-access-key": "not-a-secret",
    }
    _fill(GlueCatalog("lake", **properties), location=str(tmp_path / "sales"))
    text = json.dumps({
        "root": "r",
        "catalogs": {"lake": {"type": "glue", **properties}},
        "tables": [{"name": "t", "catalog": "lake", "table": "db.sales"}],
    })  # fmt: skip
    assert read_rows(open_table_format(_configured(tmp_path, text)).snapshot()) == [(1,), (2,)]


@pytest.mark.s3
def test_a_table_in_a_bucket_is_read(tmp_path: Path, s3_options: dict[str, str]) -> None:
    """A table with deletes in a bucket is read by its folder and by its metadata file.

    A copy of the table in another bucket is read, too.
    """
    prefix = f"tables/{uuid.uuid4().hex}"
    writer = IcebergWriter(tmp_path / "t", [column(1, "id", "long")], version=3, location=f"s3a://metastore/{prefix}/t")
    data = writer.data(_ROWS)
    writer.commit(data)
    writer.commit(writer.deletion_vector(data["file_path"], [0]))
    client = boto3.client(
        "s3",
        endpoint_url=s3_options["aws_endpoint"],
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="not-a-secret",
    )
    client.create_bucket(Bucket="copies")
    for bucket in ("metastore", "copies"):
        for path in (tmp_path / "t").rglob("*.*"):
            client.upload_file(str(path), bucket, f"{prefix}/{path.relative_to(tmp_path)}")
        for uri in ("t", "t/metadata/v2.metadata.json"):
            config = TableConfig(name="t", uri=f"s3://{bucket}/{prefix}/{uri}", storage_options=s3_options)
            table = open_table_format(config)
            snapshot = table.snapshot()
            assert table.current() == snapshot.reference
            assert snapshot.fragments[0].path.startswith(f"s3://{bucket}/")
            assert read_rows(snapshot) == [(2,)]
