"""The configuration says what is wrong with it: file, key path, value, and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from metastore_assets.config import ColumnPolicy, load_config
from metastore_assets.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "metastore.yaml"
    path.write_text(text)
    return path


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "root: ./root\ntables: [{name: a, uri: lake/a}, {name: b, uri: 's3://bucket/b'}]")
    config = load_config(path)
    assert config.root == str(tmp_path / "root")
    assert [table.uri for table in config.tables] == [str(tmp_path / "lake" / "a"), "s3://bucket/b"]


def test_the_file_is_found_by_variable_and_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no configuration at .*pass --config FILE, or set METASTORE_CONFIG"):
        load_config()
    written(tmp_path, "root: here")
    assert load_config().root == str(tmp_path / "here")
    (tmp_path / "other").mkdir()
    monkeypatch.setenv("METASTORE_CONFIG", str(written(tmp_path / "other", "root: there")))
    assert load_config().root == str(tmp_path / "other" / "there")


def test_states_partitions_and_moved_places_are_read_as_text(tmp_path: Path) -> None:
    """What YAML takes for a number, a date or a truth value is the text that was written."""
    text = """
        root: r
        relocate: {/old: there, /older: s3://bucket/x}
        tables:
          - {name: a, uri: a, at: 17, partitions: {day: 2024-01-31, year: [2023, "202?"], flag: true}}
          - {name: b, uri: b, at: 2024-01-31 10:00:00, relocate: {/old: here}}
    """
    first, second = load_config(written(tmp_path, text)).tables
    assert (first.at, second.at) == ("17", "2024-01-31 10:00:00")
    assert first.partitions == {"day": ("2024-01-31",), "year": ("2023", "202?"), "flag": ("true",)}
    assert first.relocate == {"/old": str(tmp_path / "there"), "/older": "s3://bucket/x"}
    assert second.relocate == {"/old": str(tmp_path / "here"), "/older": "s3://bucket/x"}


def test_a_column_inherits_what_it_does_not_say(tmp_path: Path) -> None:
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
    assert table.policy("a") == ColumnPolicy(frequencies="off", histogram="off", quantiles="off")
    assert table.policy("b") == ColumnPolicy(frequencies="off", histogram=2000, quantiles="off")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tables: []", r"root: Field required"),
        ("root: r\nrot: 1", r"rot = 1: no such key; there are: root, storage_options, spark"),
        ("root: r\ntables: [{name: a, uri: x, foo: 1}]", r"tables\.0\.foo = 1: no such key; there are: name, uri"),
        ("root: r\ntables: [{name: a/b, uri: x}]", r"tables\.0\.name = 'a/b': a letter, then"),
        ("root: r\ntables: [{name: a, uri: x, format: xml}]", r"tables\.0\.format = 'xml': Input should be 'delta'"),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {histogram: 5}}}]",
            r"tables\.0\.columns\.c\.histogram = 5: a number of bins from 1000 to 10000, or off",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {histgram: 5}}}]",
            r"columns\.c\.histgram = 5: no such key; there are: frequencies, histogram, ranks, quantiles",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {frequencies: top(5)}}}]",
            r"columns\.c\.frequencies = 'top\(5\)': .* not built yet; what there is: auto, all, off",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, columns: {c: {ranks: on}}}]",
            r"columns\.c\.ranks = 'on': .*not built yet; what there is: off",
        ),
        (
            "root: r\ntables: [{name: a, uri: x, sensor: {intrval: 1}}]",
            r"sensor\.intrval = 1: no such key; there are: interval",
        ),
        ("root: r\ntables: [{name: a-b, uri: x}, {name: A_b, uri: y}]", r"'a-b', 'A_b' have the same name"),
        ("root: [", r"cannot be read as YAML"),
        ("- a", r"must be a mapping with the keys root, spark, tables; it is list"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as raised:
        load_config(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)
