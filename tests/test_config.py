"""A configuration file is read as documented, and its errors say what is allowed.

Errors name file, table, key and value. A root is the folder with all stored state.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from metastore_assets.config import CatalogConfig, ColumnPolicy, TableConfig, load_config
from metastore_assets.errors import ConfigError
from metastore_assets.spark.default_settings import normalize_settings
from tests.cli.run_command import BADLY_JOINED

_AZURE_ROOT = "root: az://l\nstorage_options: {azure_storage_account_name: s}"
"""The start of a configuration whose root is the container `l` of the storage account `s`."""


def written(folder: Path, text: str) -> Path:
    path = folder / "metastore.yaml"
    path.write_text(text)
    return path


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "root: ./root\ntables: [{name: a, uri: lake/a}, {name: b, uri: 's3://bucket/b'}]")
    config = load_config(path)
    assert config.root == str(tmp_path / "root")
    assert [table.uri for table in config.tables] == [str(tmp_path / "lake" / "a"), "s3://bucket/b"]
    uris = load_config(written(tmp_path, "root: file:/r\ntables: [{name: a, uri: 'file:/lake/a'}]"))
    assert (uris.root, uris.tables[0].uri) == ("file:/r", "file:/lake/a")


def test_the_path_comes_from_the_variable_or_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--config FILE.*METASTORE_CONFIG"):
        load_config()
    written(tmp_path, "root: here")
    assert load_config().root == str(tmp_path / "here")
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("METASTORE_CONFIG", str(written(tmp_path / "other", "root: there")))
    assert load_config().root == str(tmp_path / "other" / "there")


def test_snapshots_partitions_and_path_mappings_are_read_as_text(tmp_path: Path) -> None:
    """Values that YAML parses as numbers, dates or booleans become the text in the file."""
    text = """
        root: r
        path_mapping: {/old: there, /older: s3://bucket/x}
        tables:
          - {name: a, uri: a, at: 17, partitions: {day: 2024-01-31, year: [2023, "202?"], flag: true}}
          - {name: b, uri: b, at: 2024-01-31 10:00:00, path_mapping: {/old: here}}
    """
    first, second = load_config(written(tmp_path, text)).tables
    assert (first.at, second.at) == ("17", "2024-01-31 10:00:00")
    assert first.partitions == {"day": ("2024-01-31",), "year": ("2023", "202?"), "flag": ("true",)}
    assert first.path_mapping == {"/old": str(tmp_path / "there"), "/older": "s3://bucket/x"}
    assert second.path_mapping == {"/old": str(tmp_path / "here"), "/older": "s3://bucket/x"}


def test_a_column_inherits_unset_keys(tmp_path: Path) -> None:
    text = """
        root: r
        tables:
          - name: t
            uri: t
            columns:
              default: {frequencies: off, histogram: 2000, quantiles: off}
              a: {histogram: off}
    """
    table = load_config(written(tmp_path, text)).table("t")
    assert table.effective_policy("a") == ColumnPolicy(frequencies="off", histogram="off", quantiles="off")
    assert table.effective_policy("b") == ColumnPolicy(frequencies="off", histogram=2000, quantiles="off")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tables: []", r": root\b"),
        (
            "root: r\nrot: 1",
            r": rot = 1: .*\broot, .*'root'",
        ),
        ("root: r\nxyz: 1", r": xyz = 1: .*\broot, storage_options, spark\b"),
        (
            "root: r\nkeep_versions: 0\nspark: x",
            r": spark = 'x': .*keep_versions = 0: .*\b1\b",
        ),
        ("root: r\ntables: {a: {uri: x}}", r": tables = {'a': {'uri': 'x'}}: .*\blist$"),
        ("root: r\ntables: [a]", r"\bnumber 1 = 'a': .*\bname, uri, "),
        ("root: r\ntables: [{name: a, uri: x}, {uri: y}]", r"\bnumber 2\b.*'y'.*\bname\b"),
        (
            "root: r\ntables: [{name: a, uri: x}, {}]",
            r"\bnumber 2: name\b.*\bnumber 2: uri\b",
        ),
        ("root: r\ntables: [{name: [a], uri: x}]", r"\bnumber 1\b.*'x'.*name = \['a'\]: .*\btext$"),
        (
            "root: ''\ntables: [{name: a, uri: ''}]",
            r": root = '': .*'a': uri = '': ",
        ),
        ("root: r\ntables: [{name: a}]", r"'a': uri\b"),
        ("root: r\ntables: [{name: a, uri: x, zzz: 1}]", r"'a': zzz = 1: .*\bname, uri\b"),
        (
            "root: r\ntables: [{name: a, uri: x, colums: {}}]",
            r"'a': colums = {}: .*'columns'",
        ),
        ("root: r\ntables: [{name: a/b, uri: x}]", "'a/b': name = 'a/b': "),
        (
            "root: r\ntables: [{name: a, uri: x, format: xml}]",
            r"'a': format = 'xml': .*'delta', 'files', ",
        ),
        ("root: r\ntables: [{name: a, uri: x, options: 5}]", r"'a': options = 5: .*\bmapping$"),
        (
            "root: r\ntables: [{name: a, uri: x, storage_options: {k: true}}]",
            r"'a': storage_options\.k: .*\btext$",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, partitions: {d: [{a: b}]}}]",
            r"'a': partitions\.d.*\btext$",
        ),
        ("root: r\ntables: [{name: a, table: b}]", r"'a': .*`catalog`.*`table`"),
        (
            "root: r\ntables: [{name: a, table: b, catalog: c}]",
            r"'a'.*'c'.*\bdefault$",
        ),
        (
            "root: r\ntables: [{name: a, table: b, catalog: {type: x}}]",
            r"'a': catalog\.type = 'x': .*'sql'.*'rest'.*'glue'.*'hive'$",
        ),
        ("root: r\ncatalogs: {c: {tpe: sql}}", r": catalogs\.c\.type\b"),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {histogram: 5}}}]",
            r"'a': columns\.c\.histogram = 5: .*\b1000\b.*\b10000\b",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {histogram: many}}}]",
            r"'a': columns\.c\.histogram = 'many': .*'off'",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {histgram: 5}}}]",
            r"'a': columns\.c\.histgram = 5: .*'histogram'",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {sensor: {interval: 5}, histogram: {name: 5}}}]",
            r"columns\.sensor\.interval = 5: .*columns\.histogram\.name = 5: ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: off}}]",
            r"'a': columns\.c = false: .*frequencies, .*values, statistics$",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {7: {}}}]",
            r"columns\.7 = 7: .*\bkey\b.*\btext\b",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {frequencies: top(0)}}}]",
            r"columns\.c\.frequencies = 'top\(0\)': .*\bauto, all, repeated, off\b.*top\(n\).*top\(100\)$",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {frequencies: enumerated}}}]",
            r"columns\.c\.frequencies = 'enumerated': .*\bauto, all, ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {frequencies: 5}}}]",
            r"columns\.c\.frequencies = 5: .*\bauto, all, ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {frequencies: off, ranks: on}}}]",
            r"'a'.*columns\.c: `ranks: on`.*`frequencies: off`.*`ranks: off`$",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {default: {ranks: on}, c: {values: hidden}}}]",
            r"columns\.c: `ranks: on` .*`values: hidden`.*`ranks: off`$",
        ),
        (
            f"root: r\ntables: [{{name: a, uri: x, columns: {{c: {{ranks: {'x' * 99}}}}}}}]",
            r"columns\.c\.ranks = 'x{58}…': ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {ranks: exact}}}]",
            r"columns\.c\.ranks = 'exact': ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {default: {by_partition: on}, c: {frequencies: off}}}]",
            r"columns\.c: `by_partition: on` .*`frequencies: off`.*`by_partition: off`$",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {by_partition: dense}}}]",
            r"columns\.c\.by_partition = 'dense': ",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, sensor: {intrval: 1}}, {name: b, uri: x, sensor: {interval: 0}}]",
            r"'a': sensor\.intrval = 1: .*'interval'.*'b': sensor\.interval = 0: .*\b1\b",
        ),
        ("root: r\ntables: [{name: a-b, uri: x}, {name: A_b, uri: y}]", "'a-b', 'A_b'"),
        ("root: lake\ntables: [{name: a, uri: lake/a/b}]", r"'a'.*/lake/a, .*'a'.*`root`"),
        ("root: s3://l\ntables: [{name: a, uri: 's3a://l/b/'}, {name: b, uri: x}]", "'a' is in s3://l/b, .*'b'"),
        ("root: gs://l\ntables: [{name: a, uri: 'gcs://l/b/'}, {name: b, uri: x}]", "'a' is in gs://l/b, .*'b'"),
        ("root: file:///a%20b\ntables: [{name: a, uri: /a b/a}]", "'a' is in /a b/a, .*'a'"),
        (
            f"{_AZURE_ROOT}\ntables: [{{name: a, uri: 'abfss://l@s.dfs.core.windows.net/b'}}, {{name: b, uri: x}}]",
            "'a' is in az://l/b, .*'b'",
        ),
        (
            f"{_AZURE_ROOT}\ntables: [{{name: a, uri: 'https://S.blob.core.windows.net/l/a/x'}}]",
            "'a' is in az://l/a, .*'a'",
        ),
        ("root: lake/m\ntables: [{name: a, uri: lake}]", r"root \S+/lake/m\b.*/lake, .*'a'.*`root`.*`_`"),
        ("root: lake\ntables: [{name: a, uri: lake}]", r"root \S+/lake\b.*/lake, .*'a'"),
        ("root: s3a://l/m\ntables: [{name: a, uri: s3://l}]", r"root s3a://l/m\b.*s3://l, .*'a'"),
        (
            "root: lake/m\ntables: [{name: a, uri: lake/metadata/v3.metadata.json}]",
            r"root \S+/lake/m\b.*/lake, .*'a'",
        ),
        ("root: [", "YAML: line 1, column 8: "),
        ("root: r\nroot: s", r"YAML: line 2, column 1: .*'root'"),
        ("root: r\ntables:\n- name: a\n  uri: b\n  uri: c\n", r"line 5, column 3: .*'uri'"),
        ("", r"\broot\b.*\btables\b.*\bempty$"),
        ("- a", r"\broot\b.*\btables\b.*\['a'\]$"),
    ],
)
def test_an_invalid_file_is_explained(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as error_info:
        load_config(path)
    assert str(path) in str(error_info.value)
    assert "\n" not in str(error_info.value)
    assert "tables.0" not in str(error_info.value)
    assert not BADLY_JOINED.search(str(error_info.value))


@pytest.mark.parametrize(
    ("root", "table"),
    [
        ("lake/_m", "lake"),
        ("lake/.m/x", "lake"),
        ("lake", "lake/b"),
        ("lake/m", "lake/m2"),
        ("az://l/m", "abfss://l@other.dfs.core.windows.net"),
    ],
)
def test_a_root_may_be_beside_tables(tmp_path: Path, root: str, table: str) -> None:
    """A root may be beside a table, contain it, or be in its folder if readers of the table ignore it.

    Readers ignore folders whose names begin with `_` or `.`.
    """
    config = load_config(written(tmp_path, f"root: '{root}'\ntables: [{{name: a, uri: '{table}'}}]"))
    assert config.tables[0].name == "a"


@pytest.mark.parametrize("key", ["ranks", "by_partition"])
def test_settings_that_need_all_values(key: str) -> None:
    columns = {"default": {key: True}, "a": {}, "b": {"frequencies": "top(5)"}, "c": {key: "off"}}
    table = TableConfig.model_validate({"name": "t", "uri": "x", "columns": columns})
    assert {name: table.effective_policy(name).frequencies for name in ("z", "a", "b", "c")} == {
        "z": "all",
        "a": "all",
        "b": "top(5)",
        "c": "auto",
    }


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Is a directory$"):
        load_config(tmp_path)


def test_keys_without_a_value_are_absent(tmp_path: Path) -> None:
    """A key without a value gets its default.

    A key loses its value if everything below it is commented out.
    """
    path = written(tmp_path, "root: r\nspark:\ntables:\n- name: a\n  uri: b\n  columns:\n    # c: {}\n")
    assert load_config(path).table("a").columns == {}
    assert load_config(written(tmp_path, "root: r\ntables:\n")).tables == []


def test_settings_without_a_value_are_absent(tmp_path: Path) -> None:
    text = """
    root: r
    spark: {spark.jars: , spark.ui.enabled: no}
    catalogs: {p: {type: rest, uri: 'http://x', token: }}
    tables: [{catalog: p, table: a.b}]
    databases: [{catalog: p, database: b, checks: , columns: }]
    """
    config = load_config(written(tmp_path, text))
    catalog = config.table("a_b").catalog
    assert isinstance(catalog, CatalogConfig)
    assert catalog.properties == {"uri": "http://x"}
    assert normalize_settings(config.spark) == {"spark.ui.enabled": "false"}
    assert (config.databases[0].checks, config.databases[0].columns) == ((), {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root: r\ntables:\n- {name: a, uri: b, at: 2024-02-30}", "line 3, column 25: '2024-02-30' is invalid: day"),
        ("root: !!int x", "line 1, column 7: 'x' is invalid"),
        (f"root: {'[' * 5000}", "nested"),
        ("root: !!timestamp x", "'x'"),
        ("root: !!bool x", "'x'"),
        ("root: r\ntables: &x [*x]", "line 2, column 9"),
    ],
)
def test_values_that_yaml_cannot_construct_are_explained(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=f"{re.escape(str(path))}.*YAML.*{re.escape(message)}"):
        load_config(path)


def test_databases_that_are_no_list_are_explained(tmp_path: Path) -> None:
    text = "root: r\ndatabases: 5\ntables: [{catalog: default, database: b}]"
    with pytest.raises(ConfigError, match=r"databases = 5\b"):
        load_config(written(tmp_path, text))


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    written(tmp_path, "root: ~/r\ntables: [{name: a, uri: ~no such user/a}]")
    monkeypatch.setenv("METASTORE_CONFIG", "~/metastore.yaml")
    config = load_config()
    assert (config.root, config.table("a").uri) == (str(tmp_path / "r"), str(tmp_path / "~no such user" / "a"))


def test_mappings_may_be_merged(tmp_path: Path) -> None:
    """With YAML's merge key `<<`, a table takes over the keys of another table, and may override them."""
    text = """
        root: r
        tables:
          - &first {name: a, uri: 's3://x', at: 1}
          - &second {<<: *first, name: b, at: 2}
          - {<<: *second, name: c}
    """
    assert [(table.name, table.uri, table.at) for table in load_config(written(tmp_path, text)).tables] == [
        ("a", "s3://x", "1"),
        ("b", "s3://x", "2"),
        ("c", "s3://x", "2"),
    ]


def test_an_unknown_table_is_an_error(tmp_path: Path) -> None:
    config = load_config(written(tmp_path, "root: r\ntables: [{name: orders, uri: x}, {name: people, uri: y}]"))
    with pytest.raises(ConfigError, match=r"'ordres'.*'orders'"):
        config.table("ordres")
    with pytest.raises(ConfigError, match=r"'x'.*orders, people$"):
        config.table("x")
    with pytest.raises(ConfigError, match="'x'"):
        load_config(written(tmp_path, "root: r")).table("x")


_POLICIES = "columns: {default: {histogram: 2000}, b: {frequencies: off}, a: {frequencies: all}}"


@pytest.mark.parametrize(
    ("keys", "is_equal"),
    [
        (_POLICIES, True),
        (_POLICIES.replace("2000", "2001"), False),
        (_POLICIES.replace("default: {histogram: 2000}, ", ""), False),
        (f"{_POLICIES}, partitions: {{day: '1'}}", False),
    ],
)
def test_policies_have_an_id(keys: str, *, is_equal: bool) -> None:
    """`policies_id` changes with each policy and with the selected partitions.

    A policy says which statistics a column gets. `policies_id` does not change with the location of the table.
    """

    def policies_id(uri: str, keys: str) -> str | None:
        return TableConfig.model_validate({"name": "t", "uri": uri, **yaml.safe_load(f"{{{keys}}}")}).policies_id

    first = policies_id("/a", _POLICIES)
    assert first is not None
    assert (policies_id("/b", keys) == first) == is_equal


@pytest.mark.parametrize(
    "keys",
    [
        "columns: {a: {statistics: ['module:Class']}}",
        "columns: {a: {values: hidden}}",
        "exports: [spark]",
        "partitions: day >= current_date - 3",
    ],
)
def test_policies_that_depend_on_more_than_their_text_have_no_id(keys: str) -> None:
    assert TableConfig.model_validate({"name": "t", "uri": "/a", **yaml.safe_load(f"{{{keys}}}")}).policies_id is None
