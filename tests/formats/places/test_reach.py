"""How far a table reaches: what its metadata name is read in its own store, and beyond only where that is named."""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import CatalogConfig, TableConfig, load_config
from metastore_assets.errors import FragmentError, MetastoreError, TableFormatError
from metastore_assets.formats import open_table_format
from metastore_assets.formats.places.location import Location
from metastore_assets.formats.places.reach import Place, Reach
from tests.formats.delta.log_writer import add_file, commit, field, metadata, protocol, write_vector
from tests.formats.hudi.tables import HudiCopyOnWrite, HudiMergeOnRead
from tests.formats.iceberg.writer import IcebergWriter, column
from tests.formats.oracle import read_columns, read_rows

_FORMATS = Path(__file__).parents[3] / "metastore_assets" / "formats"


def _reach(uri: str, **settings: Any) -> Reach:
    table = TableConfig(name="t", uri=uri, **settings)
    return Reach.of(table, Location.of(uri, table.storage_options, confined=table.confine))


def _uri(found: tuple[Location, str]) -> str:
    location, path = found
    return location.full_path(path)


@pytest.mark.parametrize(
    ("table", "recorded", "opened"),
    [
        ("s3://b/t", "s3://b/t/x", "s3://b/t/x"),
        ("s3://b/t", "s3a://b/u/x", "s3://b/u/x"),
        ("s3a://b/t", "s3://b/u/x", "s3a://b/u/x"),
        ("s3://b/t", "S3N://b/t/../u/./x", "s3://b/u/x"),
        ("s3://b/t", "s3://b/../../x", "s3://b/x"),
        ("s3://b", "s3://b/x", "s3://b/x"),
        ("gs://b/t", "gcs://b/u", "gs://b/u"),
        ("abfss://c@acc.dfs.core.windows.net/t", "az://c/u", "abfss://c@acc.dfs.core.windows.net/u"),
        (
            "abfss://c@acc.dfs.core.windows.net/t",
            "WASBS://c@ACC.blob.core.windows.net/u",
            "abfss://c@acc.dfs.core.windows.net/u",
        ),
        ("/lake/t", "/etc/x", "/etc/x"),
        ("/lake/t", "file:///etc/x", "/etc/x"),
        ("/lake/t", "File:/etc/x", "/etc/x"),
        ("/lake/t", "file://localhost/etc/x%20y", "/etc/x%20y"),
        ("/lake/t", "//etc//x/../y", "/etc/y"),
        ("/lake/t", "/lake/t/../t/x", "/lake/t/x"),
        ("/", "/x", "/x"),
    ],
)
def test_within_the_tables_store_locations_are_followed(table: str, recorded: str, opened: str) -> None:
    """However they are spelt, they are opened as the table itself is."""
    location, path = _reach(table, storage_options={"aws_region": "x"}).to(recorded)
    assert location.full_path(path) == opened
    assert location.options == (("aws_region", "x"),)


@pytest.mark.parametrize(
    ("table", "recorded", "line"),
    [
        ("s3://b/t", "s3://other/lake/t/data/p=1/q=%20/x.parquet", 'allow: ["s3://other/lake/t/"]'),
        ("s3://b/t", "s3a://other/lake/t/metadata/m.avro", 'allow: ["s3://other/lake/t/"]'),
        ("s3://b/t", "s3://other/t/data/0110/1010/01101010/x", 'allow: ["s3://other/t/"]'),
        ("s3://b/t", "s3://other/x", 'allow: ["s3://other/"]'),
        ("s3://b/t", "s3://B/t/x", 'allow: ["s3://B/t/"]'),
        ("s3://b/t", "gs://b/t/x", 'allow: ["gs://b/t/"]'),
        ("s3://b/t", "/etc/passwd", 'allow: ["/etc/"]'),
        ("s3://b/t", "/passwd", 'allow: ["/passwd"]'),
        ("s3://b/t", "file:///data/x", 'allow: ["/data/"]'),
        ("s3://b/t", 'file:///da"ta é/x', 'allow: ["/da\\"ta é/"]'),
        ("s3://b/t", "https://s3.amazonaws.com/b/t/x", 'allow: ["https://s3.amazonaws.com/b/t/"]'),
        ("s3://b/t", "HTTP://169.254.169.254/latest/x", 'allow: ["http://169.254.169.254/latest/"]'),
        ("s3://b/t", "s3:/t/x", 'allow: ["s3:///t/"]'),
        ("s3://b/t", "s3://b@c/t/x", 'allow: ["s3://b@c/t/"]'),
        ("/lake/t", "s3://b/t/x", 'allow: ["s3://b/t/"]'),
        ("/lake/t", "http://h/x", 'allow: ["http://h/"]'),
        ("az://c/t", "abfss://c@evil.dfs.core.windows.net/t/x", 'allow: ["abfss://c@evil.dfs.core.windows.net/t/"]'),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://d@a.dfs.core.windows.net/t/x", None),
        ("s3://b/t", "hdfs://name:8020/t/x", None),
        ("s3://b/t", "dbfs:/t/x", None),
    ],
)
def test_beyond_it_the_error_says_which_line_to_add(table: str, recorded: str, line: str | None) -> None:
    """And with that line it is read; where nothing reads it, the line would not help."""
    with pytest.raises(TableFormatError) as caught:
        _reach(table).to(recorded)
    message = str(caught.value)
    assert message.startswith(f"{table}: its metadata name {recorded}, which is ")
    assert "relocate" in message
    if line is None:
        return
    assert f"{line} (`--allow" in message
    allow = yaml.safe_load(line)["allow"]
    assert _reach(table, allow=allow).to(recorded)
    with pytest.raises(TableFormatError, match="confine"):
        _reach(table, allow=allow, confine=True).to(recorded)


def test_only_whole_segments_of_a_prefix_count() -> None:
    """What begins alike is another folder, and what leads out of an allowed one is not in it."""
    reach = _reach("s3://b/t", allow=["s3://other/lake/", "/data", "s3://third"], relocate={"/old": "gs://new/t"})
    for recorded in (
        "s3://other/lake/x",
        "s3n://other/lake/a/../x",
        "/data/x",
        "s3://third/x",
        "/old/x",
        "gs://new/t/y",
    ):
        assert reach.to(recorded)
    for recorded in (
        "s3://other/lake2/x",
        "s3://other/lake/../x",
        "/data2/x",
        "/data/../etc/x",
        "s3://third2/x",
        "/old/../x",
        "/older/x",
        "gs://new/x",
    ):
        with pytest.raises(TableFormatError, match="allow: "):
            reach.to(recorded)


def test_credentials_go_where_the_configuration_says_only() -> None:
    """To an allowed place of the same service; never to another service, or another account."""
    secrets = {"aws_secret_access_key": "s", "aws_endpoint": "http://own"}
    reach = _reach("s3://b/t", storage_options=secrets, allow=["s3://o", "gs://o", "http://o", "az://o", "/o"])
    assert dict(reach.to("s3://o/x")[0].options) == secrets
    for recorded in ("gs://o/x", "http://o/x", "az://o/x", "/o/x"):
        assert reach.to(recorded)[0].options == ()
    azure = {"azure_storage_account_name": "mine", "azure_storage_sas_key": "s"}
    theirs = "abfss://o@theirs.dfs.core.windows.net"
    reach = _reach("az://c/t", storage_options=azure, allow=["az://o", theirs])
    assert dict(reach.to("abfss://c@mine.dfs.core.windows.net/x")[0].options) == azure
    assert dict(reach.to("az://o/x")[0].options) == azure
    assert reach.to(f"{theirs}/x")[0].options == ()
    disk = _reach("/t", storage_options=secrets | azure, allow=["s3://o", "az://o", "https://o"])
    assert dict(disk.to("s3://o/x")[0].options) == secrets
    assert dict(disk.to("az://o/x")[0].options) == azure
    assert disk.to("https://o/x")[0].options == ()
    assert "'s'" not in repr(pickle.loads(pickle.dumps(reach)))


@given(
    st.lists(st.sampled_from(["..", ".", "a", "t", "%2e%2e", "..a", "é"]), max_size=8),
    st.sampled_from(["s3://b/t/", "s3a://b/", "/", "file:///"]),
)
def test_what_is_confined_is_below_whatever_the_path(segments: list[str], start: str) -> None:
    """Told by Python's own paths, which share no code with it."""
    recorded = start + "/".join(segments)
    table = "s3://b/t" if start.startswith("s3") else "/nowhere/t"
    place = os.path.normpath("/" + re.sub(r"^[a-z0-9]+:/*b?", "", recorded).lstrip("/"))
    root = "/t" if table.startswith("s3") else "/nowhere/t"
    reach = _reach(table, confine=True)
    if place == root or place.startswith(f"{root}/"):
        location, path = reach.to(recorded)
        assert location is reach.table
        assert os.path.normpath(f"{root}/{path}") == place
    else:
        with pytest.raises(TableFormatError, match="confine"):
            reach.to(recorded)


def test_no_path_leads_out_of_a_location(tmp_path: Path) -> None:
    """Whoever asks: only `Reach` decides over `..`."""
    (tmp_path / "secret").write_text("x")
    (tmp_path / "t").mkdir()
    for uri in (str(tmp_path / "t"), "s3://bucket/t"):
        location = Location.of(uri)
        for ask in (location.read, location.open, location.stat, location.modified, location.has_any):
            with pytest.raises(OSError, match="leads out"):
                ask("../secret")
        with pytest.raises(OSError, match="leads out"):
            list(location.names("a/../../t"))


_FIELDS = [field("a", "long")]


def _delta(folder: Path, path: str, vector: dict[str, Any] | None = None) -> Path:
    """A table of one data file of three rows that lies elsewhere."""
    add = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    features = protocol("deletionVectors") if vector else protocol()
    commit(folder, features, metadata(_FIELDS), {"add": add | ({"deletionVector": vector} if vector else {})})
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside tables with a data file, `f.parquet`, of three rows."""
    add_file(tmp_path / "out side", pa.table({"a": [1, 2, 3]}))
    return tmp_path / "out side"


def _delta_rows(folder: Path, **settings: Any) -> list[int]:
    return read_columns(open_table_format(TableConfig(name="t", uri=str(folder), **settings)).snapshot())["a"]


def test_delta_on_disk(tmp_path: Path, outside: Path) -> None:
    """Every way to name a file outside is followed, and refused where the table is confined."""
    ways = ["../out%20side/f.parquet", "%2e%2e/out%20side/f.parquet", "x/%2E./../out%20side/f.parquet"]
    ways += [
        quote(str(outside / "f.parquet")),
        (outside / "f.parquet").as_uri(),
        f"FILE:{quote(str(outside))}/f.parquet",
    ]
    for number, path in enumerate(ways):
        folder = _delta(tmp_path / f"t{number}", path)
        assert _delta_rows(folder) == [1, 2, 3], path
        with pytest.raises(
            TableFormatError, match=r"its metadata name .*f\.parquet, which is not below .*confine: true"
        ):
            _delta_rows(folder, confine=True)
    once = _delta(tmp_path / "once", "%252e%252e/out%20side/f.parquet")
    with pytest.raises(FragmentError, match="gone"):
        _delta_rows(once)


def test_delta_by_links(tmp_path: Path, outside: Path) -> None:
    """A link that leads out is followed as every reader does, not from a confined table; one within is no way out."""
    for number, (name, target) in enumerate([("f.parquet", outside / "f.parquet"), ("d", outside)]):
        folder = _delta(tmp_path / f"t{number}", name if name == "f.parquet" else "d/f.parquet")
        (folder / name).symlink_to(target)
        assert _delta_rows(folder) == [1, 2, 3]
        with pytest.raises(FragmentError, match="leads out of the table, which `confine: true` refuses"):
            _delta_rows(folder, confine=True)
    inner = _delta(tmp_path / "in", "d/f.parquet")
    shutil.copytree(outside, inner / "real")
    (inner / "d").symlink_to("real")
    (tmp_path / "link").symlink_to(inner)
    for uri in (inner, tmp_path / "link"):
        assert _delta_rows(uri, confine=True) == [1, 2, 3]
    absolute = _delta(tmp_path / "abs", (tmp_path / "abs" / "real" / "f.parquet").as_uri())
    shutil.copytree(outside, absolute / "real")
    (tmp_path / "other").symlink_to(absolute)
    for uri in (absolute, tmp_path / "other"):
        assert _delta_rows(uri, confine=True) == [1, 2, 3]


@pytest.mark.parametrize("storage", ["p", "u"])
def test_deletion_vectors_are_named_too(tmp_path: Path, outside: Path, storage: str) -> None:
    """By absolute paths, and by a prefix that leads out."""
    vector = write_vector(outside, [1], storage)
    if storage == "u":
        encoded = vector["pathOrInlineDv"]
        vector["pathOrInlineDv"] = f"../out side/{encoded[:-20]}{encoded[-20:]}"
    folder = _delta(tmp_path / "t", "f.parquet", vector)
    shutil.copy(outside / "f.parquet", folder)
    assert _delta_rows(folder) == [1, 3]
    with pytest.raises(TableFormatError, match=r"deletion_vector_.*\.bin, which is not below .*confine"):
        _delta_rows(folder, confine=True)
    remote = vector | {"pathOrInlineDv": "s3://b/t/deletion_vector_1.bin", "storageType": "p"}
    other = _delta(tmp_path / "u", "f.parquet", remote)
    shutil.copy(outside / "f.parquet", other)
    with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://b/t/"]')):
        _delta_rows(other)


_COLUMNS = [column(1, "a", "long")]


def _iceberg(folder: Path, part: str, place: str) -> IcebergWriter:
    """A table in format version 2 of which one part is recorded, and lies, elsewhere than below its location."""
    writer = IcebergWriter(folder, _COLUMNS)
    data = writer.data(pa.table({"a": [1, 2, 3]}))
    deletes = writer.position_deletes([(data["file_path"], 1)])
    equality = writer.equality_deletes(pa.table({"a": [3]}), "a")
    entry = {"data file": data, "position deletes": deletes, "equality deletes": equality}.get(part)
    if entry is not None:
        entry["file_path"] = _moved(entry["file_path"], place)
        if part == "data file":
            deletes = writer.position_deletes([(data["file_path"], 1)])
    writer.commit(data)
    writer.commit(deletes, equality)
    return writer


def _moved(path: str, place: str) -> str:
    if not place.startswith("s3:"):
        target = Path(place.removeprefix("file:")) / Path(path).name
        target.parent.mkdir(exist_ok=True)
        shutil.move(path, target)
    return f"{place}/{Path(path).name}"


def _rewritten(folder: Path, part: str, place: str) -> None:
    """Change the newest metadata file so that it names a manifest list, or its only manifest, elsewhere."""
    (path,) = sorted((folder / "metadata").glob("*.metadata.json"))[-1:]
    text = json.loads(path.read_text())
    newest = max(text["snapshots"], key=lambda one: one["sequence-number"])
    newest["manifest-list"] = _moved(newest["manifest-list"], place)
    path.write_text(json.dumps(text))


@pytest.mark.parametrize("part", ["data file", "position deletes", "equality deletes", "manifest list"])
def test_every_file_that_iceberg_names(tmp_path: Path, part: str) -> None:
    """Followed on the same disk; refused in another store, and where the table is confined."""

    def rows(folder: Path, **settings: Any) -> list[Any]:
        return read_rows(open_table_format(TableConfig(name="t", uri=str(folder), **settings)).snapshot())

    places = [str(tmp_path / "far"), f"file:{tmp_path}/far", f"{tmp_path}/t2/../far", "s3://other/far"]
    for number, place in enumerate(places):
        folder = tmp_path / f"t{number}"
        _iceberg(folder, part, place)
        if part == "manifest list":
            _rewritten(folder, part, place)
        if place.startswith("s3:"):
            with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/far/"]')):
                rows(folder)
        else:
            assert rows(folder) == [(1,)]
        with pytest.raises(TableFormatError, match="confine: true"):
            rows(folder, confine=True)
    plain = tmp_path / "plain"
    _iceberg(plain, "", "")
    assert rows(plain, confine=True) == [(1,)]
    shutil.move(plain, tmp_path / "moved")
    assert rows(tmp_path / "moved", confine=True) == [(1,)]


def test_manifests_that_the_metadata_file_names(tmp_path: Path) -> None:
    """As format version 1 allows."""
    for number, place in enumerate((str(tmp_path / "far"), "s3://other/far")):
        writer = IcebergWriter(tmp_path / f"t{number}", _COLUMNS)
        writer.commit(writer.data(pa.table({"a": [1]})))
        (path,) = sorted((writer.folder / "metadata").glob("*.metadata.json"))[-1:]
        (manifest,) = (writer.folder / "metadata").glob("*-m0.avro")
        text = json.loads(path.read_text())
        del text["snapshots"][0]["manifest-list"]
        text["snapshots"][0]["manifests"] = [_moved(str(manifest), place)]
        path.write_text(json.dumps(text))
        table = TableConfig(name="t", uri=str(writer.folder))
        if number == 0:
            assert read_rows(open_table_format(table).snapshot()) == [(1,)]
        else:
            with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/far/"]')):
                open_table_format(table).snapshot()
        with pytest.raises(TableFormatError, match=r"-m0\.avro, which is not below"):
            open_table_format(table.model_copy(update={"confine": True})).snapshot()


def test_a_moved_iceberg_table_is_no_way_out(tmp_path: Path) -> None:
    """What is recorded below the old location by way of `..` is not below the new one."""
    (tmp_path / "secret").mkdir()
    pq.write_table(pa.table({"a": [9]}), tmp_path / "secret" / "x.parquet")
    writer = IcebergWriter(tmp_path / "old", _COLUMNS, location="s3://gone/old")
    data = writer.data(pa.table({"a": [1]}))
    writer.commit(data | {"file_path": "s3://gone/old/data/../../secret/x.parquet"})
    shutil.move(tmp_path / "old", tmp_path / "new")
    table = TableConfig(name="t", uri=str(tmp_path / "new"))
    assert read_rows(open_table_format(table).snapshot()) == [(9,)]
    with pytest.raises(TableFormatError, match=r"data/\.\./\.\./secret/x\.parquet, which is not below"):
        open_table_format(table.model_copy(update={"confine": True})).snapshot()


def test_a_metadata_file_far_from_its_table(tmp_path: Path) -> None:
    """It says where the table is: on the same disk that is followed, elsewhere and when confined it is not."""
    writer = IcebergWriter(tmp_path / "t", _COLUMNS)
    writer.commit(writer.data(pa.table({"a": [1]})))
    (newest,) = sorted((tmp_path / "t" / "metadata").glob("*.metadata.json"))[-1:]
    far = tmp_path / "far" / newest.name
    far.parent.mkdir()
    shutil.copy(newest, far)
    assert read_rows(open_table_format(TableConfig(name="t", uri=str(far))).snapshot()) == [(1,)]
    with pytest.raises(TableFormatError, match="confine: true"):
        open_table_format(TableConfig(name="t", uri=str(far), confine=True)).snapshot()
    far.write_text(far.read_text().replace(str(tmp_path / "t"), "s3://other/t"))
    with pytest.raises(TableFormatError, match=re.escape('allow: ["s3://other/"]')):
        open_table_format(TableConfig(name="t", uri=str(far))).snapshot()


def test_a_catalog_says_where_the_table_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And how far it reaches is counted from there: its metadata file may lie far from what that says."""
    writer = IcebergWriter(tmp_path / "t", _COLUMNS)
    writer.commit(writer.data(pa.table({"a": [1]})))
    (newest,) = sorted((tmp_path / "t" / "metadata").glob("*.metadata.json"))[-1:]
    far = tmp_path / "far" / newest.name
    far.parent.mkdir()
    shutil.copy(newest, far)
    catalog = CatalogConfig(type="sql", name="c", uri=f"sqlite:///{tmp_path}/c.db")
    table = TableConfig(name="t", uri="catalog://c/db.t", catalog=catalog, identifier="db.t", format="iceberg")
    confined = table.model_copy(update={"confine": True})
    recorded = [str(newest)]
    located = "metastore_assets.formats.iceberg.catalog.locate_table"
    monkeypatch.setattr(located, lambda config, identifier: (recorded[0], {}))
    for asked in (table, confined):
        assert read_rows(open_table_format(asked).snapshot()) == [(1,)]
    recorded[0] = f"FILE://{far}"
    assert read_rows(open_table_format(table).snapshot()) == [(1,)]
    with pytest.raises(TableFormatError, match=r"catalog://c/db\.t: its metadata name .*confine: true"):
        open_table_format(confined).snapshot()


def test_a_hudi_table_reaches_what_is_listed_below_it_only(tmp_path: Path) -> None:
    """Its properties and its archive name folders and files; none of them leads out."""
    table = HudiMergeOnRead(tmp_path / "t")
    table.append([(1, "x", "a")])
    secret = HudiMergeOnRead(tmp_path / "secret")
    secret.append([(9, "secret", "a")])
    table.writer.set_properties(**{"hoodie.timeline.path": "../../secret/.hoodie/timeline"})
    with pytest.raises(MetastoreError, match="leads out of its folder"):
        table.snapshot()


def test_links_out_of_a_confined_folder_are_refused_where_it_is_listed(tmp_path: Path) -> None:
    """Of plain files and Hudi tables; leftovers are not looked at."""
    (tmp_path / "out" / "d=2").mkdir(parents=True)
    pq.write_table(pa.table({"a": [2]}), tmp_path / "out" / "d=2" / "x.parquet")
    (tmp_path / "t" / "d=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t" / "d=1" / "x.parquet")
    (tmp_path / "t" / "_old").symlink_to(tmp_path / "out")
    config = TableConfig(name="t", uri=str(tmp_path / "t"), confine=True)
    assert read_columns(open_table_format(config).snapshot())["a"] == [1]
    for link, target in (("d=2", tmp_path / "out" / "d=2"), ("d=1/y.parquet", tmp_path / "out" / "d=2" / "x.parquet")):
        (tmp_path / "t" / link).symlink_to(target)
        with pytest.raises(TableFormatError, match=f"{link} is a link that leads out of the table"):
            open_table_format(config).snapshot()
        assert len(_delta_rows(tmp_path / "t")) == 2
        (tmp_path / "t" / link).unlink()
    hudi = HudiCopyOnWrite(tmp_path / "h")
    hudi.append([(1, "x", "a")])
    shutil.move(tmp_path / "h" / "day=a", tmp_path / "moved")
    (tmp_path / "h" / "day=a").symlink_to(tmp_path / "moved")
    config = TableConfig(name="t", uri=str(tmp_path / "h"))
    assert len(read_rows(open_table_format(config).snapshot())) == 1
    with pytest.raises(TableFormatError, match="leads out of the table"):
        open_table_format(config.model_copy(update={"confine": True})).snapshot()


def test_the_configuration_names_prefixes_for_one_table_and_for_all(tmp_path: Path) -> None:
    """Relative ones are relative to the file; one alone needs no list."""
    (tmp_path / "metastore.yaml").write_text(
        """
        root: r
        allow: s3://everywhere/
        tables:
          - {name: a, uri: a, allow: ["s3://x/y/", ./there], confine: true}
          - {name: b, uri: b}
        """
    )
    first, second = load_config(tmp_path / "metastore.yaml").tables
    assert first.allow == ("s3://everywhere/", "s3://x/y/", str(tmp_path / "there"))
    assert first.confine
    assert second.allow == ("s3://everywhere/",)
    assert not second.confine
    for wrong in ("allow: ['']", "allow: [1]", "allow: {a: b}", "confine: perhaps"):
        (tmp_path / "metastore.yaml").write_text(f"root: r\ntables: [{{name: a, uri: a, {wrong}}}]")
        with pytest.raises(MetastoreError, match=rf"table 'a': {wrong.partition(':')[0]}"):
            load_config(tmp_path / "metastore.yaml")


def test_a_place_is_the_same_however_it_is_spelt() -> None:
    assert Place.of("S3A://b/x/") == Place.of("s3://b/x")
    assert Place.of("file:///a/b") == Place.of("/a//b/./")
    assert Place.of("az://c/x", "acc").store == Place.of("abfss://c@Acc.dfs.core.windows.net/x").store  # type: ignore[union-attr]
    assert Place.of("a/b") is None
    assert Place.of("file:a/b") is None


def test_nothing_but_reach_makes_a_location_of_what_was_recorded() -> None:
    """No other module makes locations of texts, or connects to object stores, or opens files by a path of its own."""
    makers = {"Location", "Location.of", "replace(uri)", "open_object_store", "from_url", "urlopen"}
    makers |= {"open", "OSFile", "open_local", "read_local"}
    allowed = {
        "places/location.py": makers,
        "places/object_store.py": {"from_url"},
        "places/local_files.py": {"open", "OSFile"},
        "places/reach.py": makers,
        "apart/child.py": {"open"},  # of pipes between processes
        "apart/children.py": {"open"},  # likewise
        "hudi/merge.py": {"open"},  # in a temporary folder of its own
        "hudi/transcode.py": {"open", "OSFile"},  # there as well
        "readers/spill.py": {"OSFile"},  # a temporary file
    }
    found = {
        f"{path.relative_to(_FORMATS)}:{node.lineno} {called}"
        for path in sorted(_FORMATS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (called := _called(node)) in makers
        and called not in allowed.get(path.relative_to(_FORMATS).as_posix(), set())
    }
    assert found == set()


def _called(call: ast.Call) -> str:
    """`name`, `Location.name` or `replace(uri)`; empty for methods of other things."""
    function = call.func
    if isinstance(function, ast.Name):
        return "replace(uri)" if function.id == "replace" and "uri" in {k.arg for k in call.keywords} else function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return {"Location": f"Location.{function.attr}", "pa": function.attr}.get(function.value.id, "")
    return ""
