"""If a table cannot be refreshed, the command prints one line, and the last version stays.

The line is the error. `metastore profile` of such a table prints one line, too.

A version is the published statistics of a table at one snapshot. A policy says which statistics and values of a column
are stored.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.run_command import documents, error_of, run, run_json

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """The folder of a table `t` with two partitions, configured and refreshed."""
    for part in ("1", "2"):
        folder = tmp_path / "t" / f"part={part}"
        folder.mkdir(parents=True)
        pq.write_table(
            pa.table({"id": list(range(100)), "name": [f"{part}{n}" for n in range(100)]}), folder / "a.parquet"
        )
    _configure(tmp_path)
    assert run_json("refresh", "t", config=tmp_path / "metastore.yaml")["version"] == 1
    return tmp_path


def _configure(folder: Path, root: str = "./root", columns: str = "{}", uri: str = "./t") -> Path:
    path = folder / "metastore.yaml"
    path.write_text(f"root: {root}\ntables:\n  - {{name: t, uri: {uri}, columns: {columns}}}\n")
    return path


def assert_last_version_is_readable(config: Path) -> None:
    """Assert that version 1 with 200 rows is still the newest, and is readable."""
    answer = json.loads(run("show", "t", "--json", config=config).stdout)
    assert (answer["version"], answer["row_count"]) == (1, 200)


def test_a_corrupt_parquet_file(lake: Path) -> None:
    """A refresh fails at a corrupt Parquet file, and the error names the file's partition and path.

    The refresh has also read a new file without errors. After the corrupt file is removed, the next refresh publishes a
    version without reading this new file again.
    """
    config = lake / "metastore.yaml"
    pq.write_table(pa.table({"id": [1], "name": ["x"]}), lake / "t" / "part=1" / "new.parquet")
    broken_file = lake / "t" / "part=2" / "broken.parquet"
    data = bytearray((lake / "t" / "part=1" / "a.parquet").read_bytes())
    data[4:300] = b"\xff" * 296
    broken_file.write_bytes(data)
    message = error_of(run("refresh", "t", config=config))
    assert "1 of 2 fragments" in message
    assert "'part=2'" in message
    assert str(broken_file) in message
    assert_last_version_is_readable(config)
    broken_file.unlink()
    assert run_json("refresh", "t", config=config)["fragments"] == {
        "added": 1,
        "removed": 0,
        "unchanged": 2,
        "profiled": 0,
    }


def test_a_file_that_is_no_parquet(lake: Path) -> None:
    config = lake / "metastore.yaml"
    broken_file = lake / "t" / "part=2" / "broken.parquet"
    broken_file.write_bytes(b"PAR1")
    assert str(broken_file) in error_of(run("refresh", "t", config=config))
    assert_last_version_is_readable(config)


@pytest.mark.parametrize("text", ["a,b\n1,2\n3\n", 'a,b\n1,2\n"3,4\n', "a,b\n1,\xff\n"])
def test_a_corrupt_csv_row(tmp_path: Path, text: str) -> None:
    """The errors of `refresh` and `profile` name a CSV file that has a corrupt row.

    The row has too few fields, an unclosed quote, or bytes that are not text.
    """
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "good.csv").write_text("a,b\n1,2\n")
    (tmp_path / "t" / "bad.csv").write_bytes(text.encode("latin-1"))
    config = _configure(tmp_path)
    assert str(tmp_path / "t" / "bad.csv") in error_of(run("refresh", "t", config=config))
    assert "`metastore refresh t`" in error_of(run("show", "t", config=config))
    assert str(tmp_path / "t" / "bad.csv") in error_of(run("profile", str(tmp_path / "t" / "bad.csv")))


def test_a_path_that_does_not_exist(tmp_path: Path) -> None:
    """The error of `profile` for a missing path says that there is no such file or folder."""
    message = error_of(run("profile", str(tmp_path / "salse")))
    assert message.endswith(f"{tmp_path}/salse holds no table: there is no such file or folder")


def test_a_missing_configuration_can_be_written(tmp_path: Path) -> None:
    message = error_of(run("tables", config=tmp_path / "none.yaml"))
    assert message.startswith(f"no configuration at {tmp_path}/none.yaml: write one with `metastore init URI...`")


def test_a_folder_without_files(lake: Path) -> None:
    for path in (lake / "t").rglob("*.parquet"):
        path.unlink()
    config = lake / "metastore.yaml"
    assert str(lake / "t") in error_of(run("refresh", "t", config=config))
    assert str(lake / "t") in error_of(run("refresh", "t", "--dry-run", config=config))
    assert_last_version_is_readable(config)


def test_a_removed_table(lake: Path) -> None:
    config = _configure(lake, uri="./nowhere")
    assert str(lake / "nowhere") in error_of(run("refresh", "t", config=config))
    assert_last_version_is_readable(config)


def test_a_policy_that_names_an_unknown_column(lake: Path) -> None:
    """A policy for an unknown column is an error that names the key and the existing columns.

    Otherwise, a misspelled column would be ignored.
    """
    config = _configure(lake, columns="{nmae: {frequencies: all}}")
    message = error_of(run("refresh", "t", config=config))
    assert all(part in message for part in ["columns.nmae", "id, name, part"]), message
    assert_last_version_is_readable(config)


def test_an_unknown_partition(lake: Path) -> None:
    config = lake / "metastore.yaml"
    for arguments in ([], ["--dry-run"]):
        message = error_of(run("refresh", "t", "--partition", "part=3", *arguments, config=config))
        assert all(part in message for part in ["'part=3'", "--partitions"])
    done = run_json("refresh", "t", "--partition", "part=1", "--partition", "part=2", config=config)
    assert (done["version"], done["fragments"]["profiled"]) == (2, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that even root cannot write to")
def test_a_root_without_permission(lake: Path) -> None:
    message = error_of(run("refresh", "t", config=_configure(lake, root="/sys/metastore")))
    assert "/sys/metastore" in message
    # The kernel's error for root differs from that for other users.
    assert re.search(r"\b(not permitted|no permission)\b", message)


def test_a_root_that_is_a_file(lake: Path) -> None:
    (lake / "file").write_text("")
    for command in (["refresh", "t"], ["show", "t"], ["tables"]):
        assert str(lake / "file") in error_of(run(*command, config=_configure(lake, root="./file")))


def test_one_table_of_several_fails(lake: Path) -> None:
    """If the refresh of one table fails, `refresh --all` still refreshes the other table.

    With `--json`, each table has a line: the error or the result. The exit status is 3.
    """
    config = lake / "metastore.yaml"
    config.write_text(
        "root: ./root\ntables:\n"
        "  - {name: first, uri: ./nowhere}\n"
        "  - {name: second, uri: ./t, columns: {id: {ranks: off}}}\n"
    )
    done = run("refresh", "--all", "--json", config=config)
    first, second = documents(done)
    assert done.exit_code == 3
    assert first.keys() == {"table", "error"}
    assert done.stderr == f"error: {first['error']}\n"
    assert (second["table"], second["version"]) == ("second", 1)


def test_one_version_of_several_is_damaged(lake: Path) -> None:
    """If the version document of one table is damaged, `tables` still lists all tables.

    The table with this document is listed as unreadable, and the exit status is 3. If no other table is configured,
    only the error is printed.
    """
    config = lake / "metastore.yaml"
    config.write_text(
        "root: ./root\nengine: auto\ntables:\n"
        "  - {name: first, uri: ./t}\n  - {name: second, uri: ./t}\n  - {name: third, uri: ./t}\n"
    )
    for name in ("first", "second"):
        assert run("refresh", name, config=config).exit_code == 0
    (lake / "root" / "first" / "versions" / "1.json").write_text("{")
    listed = run("tables", "--json", config=config)
    first, second, third = json.loads(listed.stdout)
    assert listed.exit_code == 3
    assert listed.stderr == f"error: table 'first': {first['error']}\n"
    assert "first/versions/1.json is damaged" in first["error"]
    assert (first["version"], second["version"], third["version"]) == (None, 1, None)
    assert (second["error"], third["error"]) == (None, None)
    lines = run("tables", config=config).stdout.splitlines()
    assert ["unreadable" in line for line in lines] == [False, True, False, False]
    assert ["never refreshed" in line for line in lines] == [False, False, False, True]
    config.write_text("root: ./root\ntables: [{name: first, uri: ./t}]\n")
    assert "first/versions/1.json is damaged" in error_of(run("tables", config=config))


def test_profile_options(tmp_path: Path) -> None:
    """`--option` sets the header, the delimiter and the null values of a CSV file.

    An unknown option is an error.
    """
    path = tmp_path / "it's.csv"
    path.write_text("1|a\n2|NA\n")
    options = [
        word for option in ("header=false", "delimiter=|", 'null_values=["NA"]') for word in ("--option", option)
    ]
    done = run("profile", str(path), *options, "--json")
    [profile] = documents(done)
    assert [(row["column"], row["minimum"], row["null_count"]) for row in profile["columns"]] == [
        ("f0", 1, 0),
        ("f1", "a", 1),
    ]
    assert "options.heder" in error_of(run("profile", str(path), "--option", "heder=false"))


def test_profile_prints_text(lake: Path) -> None:
    done = run("profile", str(lake / "t"), str(lake / "nowhere"))
    assert done.exit_code == 3
    assert done.stdout.splitlines()[0].startswith(f"{lake / 't'}  200 rows, snapshot ")
    assert done.stderr.startswith(f"error: {lake / 'nowhere'}: ")
    assert len(done.stderr.splitlines()) == 1
