"""A table's metadata may refer to files in other stores than that of the table.

Such files are read only if the configuration allows it.
"""

from __future__ import annotations

import ast
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.config import TableConfig, load_config
from metastore_assets.errors import MetastoreError, TableFormatError
from metastore_assets.storage.location import Location
from metastore_assets.storage.location_policy import LocationPolicy, StorageAddress

_FORMATS = Path(__file__).parents[3] / "metastore_assets" / "formats"


def _location_policy(uri: str, **settings: Any) -> LocationPolicy:
    table = TableConfig(name="t", uri=uri, **settings)
    return LocationPolicy.of(table, Location.of(uri, table.storage_options, confined=table.restrict_to_table_root))


def _uri(result: tuple[Location, str]) -> str:
    location, path = result
    return location.full_path(path)


@pytest.mark.parametrize(
    ("table", "recorded_path", "opened_path"),
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
def test_locations_within_the_tables_store_are_read(table: str, recorded_path: str, opened_path: str) -> None:
    """A location in the table's store may have any spelling, and is opened with the table's options."""
    location, path = _location_policy(table, storage_options={"aws_region": "x"}).resolve(recorded_path)
    assert location.full_path(path) == opened_path
    assert location.options == (("aws_region", "x"),)


@pytest.mark.parametrize(
    ("table", "recorded_path", "line"),
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
def test_the_error_for_a_forbidden_file_names_the_line_to_add(table: str, recorded_path: str, line: str | None) -> None:
    """The error for a file outside of the table's store suggests a line of configuration.

    With this line, the file is allowed, unless the table is restricted to its folder. The error suggests no line if the
    file's store is not supported. It always mentions `path_mapping`.
    """
    with pytest.raises(TableFormatError) as error_info:
        _location_policy(table).resolve(recorded_path)
    message = str(error_info.value)
    assert message.startswith(f"{table}: its metadata name {recorded_path}, which is ")
    assert "path_mapping" in message
    if line is None:
        return
    assert f"{line} (`--allow" in message
    allow = yaml.safe_load(line)["allow"]
    assert _location_policy(table, allow=allow).resolve(recorded_path)
    with pytest.raises(TableFormatError, match=rf"{re.escape(recorded_path)}, .*`restrict_to_table_root: true`"):
        _location_policy(table, allow=allow, restrict_to_table_root=True).resolve(recorded_path)


def test_prefixes_match_complete_path_segments() -> None:
    """A folder is not allowed just because its name begins with the name of an allowed folder.

    A path that leads out of an allowed folder by `..` is not allowed, either.
    """
    location_policy = _location_policy(
        "s3://b/t", allow=["s3://other/lake/", "/data", "s3://third"], path_mapping={"/old": "gs://new/t"}
    )
    for recorded_path in (
        "s3://other/lake/x",
        "s3n://other/lake/a/../x",
        "/data/x",
        "s3://third/x",
        "/old/x",
        "gs://new/t/y",
    ):
        assert location_policy.resolve(recorded_path)
    for recorded_path in (
        "s3://other/lake2/x",
        "s3://other/lake/../x",
        "/data2/x",
        "/data/../etc/x",
        "s3://third2/x",
        "/old/../x",
        "/older/x",
        "gs://new/x",
    ):
        with pytest.raises(TableFormatError, match=rf"{re.escape(recorded_path)}, .*\ballow: "):
            location_policy.resolve(recorded_path)


def test_credentials_are_sent_only_to_configured_hosts() -> None:
    """Locations that `allow` permits get the table's credentials only in the table's service and account.

    If a table on disk has options for S3 and for Azure, a location in S3 gets only those for S3, and one in Azure only
    those for Azure. The `repr` of a `LocationPolicy` has no credentials.
    """
    secrets = {"aws_secret_access_key": "s", "aws_endpoint": "http://own"}
    location_policy = _location_policy(
        "s3://b/t", storage_options=secrets, allow=["s3://o", "gs://o", "http://o", "az://o", "/o"]
    )
    assert dict(location_policy.resolve("s3://o/x")[0].options) == secrets
    for recorded_path in ("gs://o/x", "http://o/x", "az://o/x", "/o/x"):
        assert location_policy.resolve(recorded_path)[0].options == ()
    azure = {"azure_storage_account_name": "mine", "azure_storage_sas_key": "s"}
    theirs = "abfss://o@theirs.dfs.core.windows.net"
    location_policy = _location_policy("az://c/t", storage_options=azure, allow=["az://o", theirs])
    assert dict(location_policy.resolve("abfss://c@mine.dfs.core.windows.net/x")[0].options) == azure
    assert dict(location_policy.resolve("az://o/x")[0].options) == azure
    assert location_policy.resolve(f"{theirs}/x")[0].options == ()
    disk = _location_policy("/t", storage_options=secrets | azure, allow=["s3://o", "az://o", "https://o"])
    assert dict(disk.resolve("s3://o/x")[0].options) == secrets
    assert dict(disk.resolve("az://o/x")[0].options) == azure
    assert disk.resolve("https://o/x")[0].options == ()
    assert "'s'" not in repr(pickle.loads(pickle.dumps(location_policy)))


@given(
    st.lists(st.sampled_from(["..", ".", "a", "t", "%2e%2e", "..a", "é"]), max_size=8),
    st.sampled_from(["s3://b/t/", "s3a://b/", "/", "file:///"]),
)
def test_a_confined_location_reads_only_files_below_it(segments: list[str], start: str) -> None:
    """A recorded path resolves to a path below the table's folder, or is refused.

    The oracle computes paths with Python's `os.path`, and shares no code.
    """
    recorded_path = start + "/".join(segments)
    table = "s3://b/t" if start.startswith("s3") else "/nowhere/t"
    place = os.path.normpath("/" + re.sub(r"^[a-z0-9]+:/*b?", "", recorded_path).lstrip("/"))
    root = "/t" if table.startswith("s3") else "/nowhere/t"
    location_policy = _location_policy(table, restrict_to_table_root=True)
    if place == root or place.startswith(f"{root}/"):
        location, path = location_policy.resolve(recorded_path)
        assert location is location_policy.table_root
        assert os.path.normpath(f"{root}/{path}") == place
    else:
        with pytest.raises(TableFormatError, match="restrict_to_table_root"):
            location_policy.resolve(recorded_path)


def test_no_path_leads_out_of_a_location(tmp_path: Path) -> None:
    """A location refuses every path with `..`, which only `LocationPolicy` resolves."""
    (tmp_path / "secret").write_text("x")
    (tmp_path / "t").mkdir()
    for uri in (str(tmp_path / "t"), "s3://bucket/t"):
        location = Location.of(uri)
        for ask in (location.read, location.open, location.stat, location.modified, location.has_any):
            with pytest.raises(OSError, match=r"\.\."):
                ask("../secret")
        with pytest.raises(OSError, match=r"\.\."):
            list(location.names("a/../../t"))


def test_the_configuration_names_prefixes_for_one_table_and_for_all(tmp_path: Path) -> None:
    """The setting `allow` has prefixes of paths that may be read.

    At the top of the file, it is for all tables.

    Relative prefixes are relative to the file of the configuration. A single prefix needs no list. An invalid value of
    `allow` or `restrict_to_table_root` is an error.
    """
    (tmp_path / "metastore.yaml").write_text(
        """
        root: r
        allow: s3://everywhere/
        tables:
          - {name: a, uri: a, allow: ["s3://x/y/", ./there], restrict_to_table_root: true}
          - {name: b, uri: b}
        """
    )
    first, second = load_config(tmp_path / "metastore.yaml").tables
    assert first.allow == ("s3://everywhere/", "s3://x/y/", str(tmp_path / "there"))
    assert first.restrict_to_table_root
    assert second.allow == ("s3://everywhere/",)
    assert not second.restrict_to_table_root
    for wrong in ("allow: ['']", "allow: [1]", "allow: {a: b}", "restrict_to_table_root: perhaps"):
        (tmp_path / "metastore.yaml").write_text(f"root: r\ntables: [{{name: a, uri: a, {wrong}}}]")
        with pytest.raises(MetastoreError, match=f"'a': {wrong.partition(':')[0]} = "):
            load_config(tmp_path / "metastore.yaml")


def test_all_spellings_of_an_address_are_equal() -> None:
    assert StorageAddress.of("S3A://b/x/") == StorageAddress.of("s3://b/x")
    assert StorageAddress.of("file:///a/b") == StorageAddress.of("/a//b/./")
    assert StorageAddress.of("az://c/x", "acc").store == StorageAddress.of("abfss://c@Acc.dfs.core.windows.net/x").store  # type: ignore[union-attr]
    in_azure = StorageAddress.of("abfs://c@acc.dfs.core.windows.net/x")
    assert in_azure is not None
    for host in ("acc.blob.core.windows.net", "ACC.dfs.core.windows.net", "acc.dfs.fabric.microsoft.com"):
        url = StorageAddress.of(f"https://{host}/c/x/")
        assert url is not None
        assert url.contains(in_azure)
        assert in_azure.contains(url)
        assert url.uri == f"https://{host}/c/x"
    assert StorageAddress.of("a/b") is None
    assert StorageAddress.of("file:a/b") is None


def test_only_the_location_policy_creates_locations_from_recorded_paths() -> None:
    """No module of `formats` creates locations from texts, connects to object stores, or opens files.

    Three modules may open temporary files.
    """
    makers = {"Location", "Location.of", "replace(uri)", "open_object_store", "from_url", "urlopen", "open", "OSFile"}
    allowed_makers = {
        "hudi/merge.py": {"open"},  # in its temporary folder
        "hudi/transcode.py": {"open", "OSFile"},  # in the same folder
        "readers/spill.py": {"OSFile"},  # a temporary file
    }
    result = {
        f"{path.relative_to(_FORMATS)}:{node.lineno} {called_name}"
        for path in sorted(_FORMATS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and (called_name := _called(node)) in makers
        and called_name not in allowed_makers.get(path.relative_to(_FORMATS).as_posix(), set())
    }
    assert result == set()


def _called(call: ast.Call) -> str:
    """Return the called function as `name`, `Location.name` or `replace(uri)`.

    For other methods, return an empty text.
    """
    function = call.func
    if isinstance(function, ast.Name):
        return "replace(uri)" if function.id == "replace" and "uri" in {k.arg for k in call.keywords} else function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return {"Location": f"Location.{function.attr}", "pa": function.attr}.get(function.value.id, "")
    return ""
