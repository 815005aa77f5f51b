"""Each error is one line on stderr, with exit status 3, or 2 for wrong usage.

A version is the published statistics of a table at one snapshot.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from metastore_assets.cli import failures
from metastore_assets.cli.commands import cli
from metastore_assets.config import TableConfig
from metastore_assets.errors import ConfigError
from metastore_assets.metastore import Metastore
from tests.cli.run_command import error_of, run


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["show", "nope"], ["'nope'", "orders, gone, fresh"]),
        (["show", "fresh"], ["'fresh'", "metastore refresh fresh"]),
        (["versions", "fresh"], ["'fresh'", "metastore refresh fresh"]),
        (["top", "fresh", "id"], ["'fresh'", "metastore refresh fresh"]),
        (["show", "orders", "--columns", "stat"], ["'stat'", "'state'"]),
        (["show", "orders", "--columns", "nope"], ["'nope'", ": id, price"]),
        (["top", "orders", "nope"], ["'nope'", "columns"]),
        (["histogram", "orders", "nope"], ["'nope'", "columns"]),
        (["show", "orders", "--partition", "half=3"], ["'half=3'", "half=1", "--partitions"]),
        (["top", "orders", "id", "--partition", "x"], ["'x'", "half=1"]),
        (["histogram", "orders", "id", "--partition", "x"], ["'x'", "half=1"]),
        (["show", "orders", "--version", "9"], ["version 9", "1-2"]),
        (["top", "orders", "id"], ["'id'", "frequencies: off"]),
        (["histogram", "orders", "state"], ["'state'", "string"]),
        (["refresh", "nope"], ["'nope'"]),
        (["refresh", "ordres"], ["'ordres'", "'orders'"]),
        (["expire", "nope"], ["'nope'"]),
    ],
)
def test_missing_names_are_reported_with_existing_ones(
    config_file: Path, arguments: list[str], explanation: list[str]
) -> None:
    """The error has the name that was not found or cannot be used, and says what exists or what to do."""
    for as_json in ([], ["--json"]):
        message = error_of(run(*arguments, *as_json, config=config_file))
        assert all(part in message for part in explanation), message


@pytest.mark.parametrize(
    ("arguments", "explanation"),
    [
        (["bogus"], "'bogus'"),
        (["refreshh", "orders"], "'refreshh'; did you mean 'refresh'?"),
        (["--bogus"], "'--bogus'"),
        (["show"], "'NAME'"),
        (["top", "orders"], "'COLUMN'"),
        (["top", "orders", "id", "-n", "0"], "0 is not in the range"),
        (["top", "orders", "id", "-n", "many"], "'many'"),
        (["histogram", "orders", "id", "--bins", "0"], "0 is not in the range"),
        (["show", "orders", "--partitions", "--columns", "id"], "--partitions"),
        (["show", "orders", "--columns", " , "], "--columns"),
        (["show", "orders", "--columns", "a\nb"], "--columns"),
        (["profile", ""], "URI"),
        (["refresh"], "--all"),
        (["refresh", "orders", "--all"], "--all"),
        (["refresh", "orders", "gone", "--partition", "x"], "--partition"),
        (["profile"], "'URI...'"),
        (["profile", "x", "--option", "header"], "`=`"),
        (["profile", "x", "--schema", "zip"], "'zip'"),
        (["expire", "orders", "--keep", "0"], "0 is not in the range"),
        (["expire", "orders", "--grace", "inf"], "inf is not in the range"),
        (["expire", "orders", "--grace", "nan"], "nan"),
    ],
)
def test_wrong_usage_is_status_2(config_file: Path, arguments: list[str], explanation: str) -> None:
    """After wrong usage, the exit status is 2, and the error names the option `--help`."""
    message = error_of(run(*arguments, config=config_file), failures.BAD_USAGE)
    assert explanation in message
    assert "--help`)" in message


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_is_not_reformatted(arguments: list[str]) -> None:
    """Requested help is on stdout, with status 0.

    Without any argument it is on stderr, with status 2, as click has it.
    """
    result = run(*arguments)
    assert result.exit_code == (0 if arguments else failures.BAD_USAGE)
    help_text = result.stdout if arguments else result.stderr
    assert help_text == result.output
    assert "error:" not in help_text
    assert help_text.startswith("Usage: metastore [OPTIONS] COMMAND [ARGS]...\n\n  Rich column statistics")
    assert {"  show ", "  refresh ", "  tables "} <= {line[: line.find(" ", 2) + 1] for line in help_text.splitlines()}
    assert "..." not in help_text.partition("Common commands:")[2]


def test_help_lists_every_command_in_one_section() -> None:
    """Each command is in exactly one section; the five most used ones are first."""
    lines = run("--help").stdout.partition("Common commands:")[2].splitlines()
    names = [line.split()[0] for line in lines if re.match(r"  [a-z]", line)]
    assert names[:5] == ["profile", "refresh", "show", "top", "check"]
    assert sorted(name for name in names if name in cli.commands) == sorted(cli.commands)


@pytest.mark.parametrize("command", ["show", "versions", "top"])
def test_a_table_without_a_version_is_not_taken_for_another(config_file: Path, command: str) -> None:
    """For a configured table without a version, the error suggests a refresh.

    It does not suggest a published table with a similar name.
    """
    config_file.write_text("root: ./root\ntables: [{name: order, uri: ./orders}]")
    message = error_of(run(command, "order", *(["id"] if command == "top" else []), config=config_file))
    assert message.endswith("; run `metastore refresh order`")


def test_a_location_without_a_table_is_named_with_the_table(config_file: Path) -> None:
    message = error_of(run("refresh", "gone", "--dry-run", config=config_file))
    assert message.startswith(f"table 'gone': {config_file.parent}/gone")


def test_a_configuration_without_tables_prints_a_note(config_file: Path) -> None:
    config_file.write_text("root: ./root\ntables:\n")
    result = run("refresh", "--all", config=config_file)
    note = f"note: {config_file} has no tables to refresh: add them under `tables`\n"
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", note)
    assert run("tables", config=config_file).stdout == "no tables are configured\n"


def test_a_missing_configuration_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    message = error_of(run("tables"))
    assert str(tmp_path / "metastore.yaml") in message
    assert "--config" in message
    assert str(tmp_path / "other.yaml") in error_of(run("tables", config=tmp_path / "other.yaml"))


@pytest.mark.parametrize(
    ("text", "explanation"),
    [
        ("root: [", ["YAML"]),
        ("- a", ["['a']"]),
        ("tables: []", ["root"]),
        ("{root: r, tables: [{name: a b, uri: u}]}", ["table 'a b': name = 'a b'", "letters"]),
        ("{root: r, tables: [{name: a, uri: u, format: csv}]}", ["table 'a': format = 'csv'", "'delta'", "'files'"]),
        ("{root: r, tables: [{name: a, uri: u}, {name: A, uri: v}]}", ["'a', 'A'"]),
        (
            "{root: r, tables: [{name: a, uri: u, columns: {x: {histogram: 5}}}]}",
            ["table 'a': columns.x.histogram = 5", "1000 to 10000, or off"],
        ),
        (
            "{root: r, tables: [{name: a, uri: u, columns: {x: {frequencies: repeat}}}]}",
            ["table 'a': columns.x.frequencies", "'repeat'", "auto, all, repeated, off, or top(n)"],
        ),
        (
            "{root: r, tables: [{name: a, uri: u, columns: {x: {frequencies: top(-5)}}}]}",
            ["table 'a': columns.x.frequencies", "'top(-5)'", "such as top(100)"],
        ),
        (
            "{root: r, tables: [{name: a, uri: u, columns: {x: {ranks: on, frequencies: off}}}]}",
            ["table 'a'", "columns.x: `ranks: on`", "`frequencies: off`"],
        ),
        ("{root: r, tables: [{name: a, uri: u, sensor: {interval: 0}}]}", ["table 'a': sensor.interval = 0", "1"]),
        ("{root: r, tables: [{name: a, uri: u, shema: {x: int}}]}", ["table 'a': shema", "'schema'"]),
        ("{root: r, tables: [{name: a, uri: u, declared: {x: int}}]}", ["table 'a': declared"]),
        ("{root: r, tables: [{name: a, uri: u, schema: {x: 5}}]}", ["table 'a': schema.x = 5", "text"]),
        ("{root: r, roof: s}", ["roof"]),
    ],
)
def test_an_invalid_configuration_is_explained(tmp_path: Path, text: str, explanation: list[str]) -> None:
    """The error names the configuration file, the path of the key, the value, and what is allowed."""
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    message = error_of(run("tables", config=path))
    assert all(part in message for part in [str(path), *explanation]), message


@pytest.mark.parametrize(
    ("declared_schema", "explanation", "suggestion"),
    [
        ("zip=sting", "schema.zip = 'sting'", "string"),
        ("zpi=string", "schema.zpi", "zip"),
    ],
)
def test_a_wrong_column_type_is_an_error(
    tmp_path: Path, declared_schema: str, explanation: str, suggestion: str
) -> None:
    """An unknown type in `--schema`, or a column that the table lacks, is an error.

    The error names the type or the column, and suggests the nearest name.
    """
    (tmp_path / "a.csv").write_text("zip,x\n01234,1\n")
    message = error_of(run("profile", str(tmp_path), "--schema", declared_schema))
    assert (explanation in message, suggestion in message) == (True, True)


def test_a_deleted_working_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a working folder that was deleted, the error of a command is about the folder.

    It does not call this a bug.
    """
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    for arguments in (["show", "orders"], ["profile", "lake"]):
        message = error_of(run(*arguments))
        assert ("working folder" in message, "bug" in message) == (True, False)


def test_an_unexpected_error_is_one_line(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected error is printed as one line with its class and text, which names `--debug`.

    With `--debug`, the traceback is printed, too.
    """

    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("one\ntwo \x1b[31m")

    monkeypatch.setattr(Metastore, "table", fail)
    message = error_of(run("show", "orders", config=config_file))
    assert re.search(r"\bZeroDivisionError: one\b.*\bbug\b.*--debug", message)
    for arguments in (["--debug", "show", "orders"], ["show", "orders", "--debug"]):
        debug_run = run(*arguments, config=config_file)
        assert debug_run.exit_code == failures.ERROR
        assert "Traceback" in debug_run.stderr
        assert debug_run.stderr.splitlines()[-1] == f"error: {message}"


def test_an_error_of_a_spark_worker_is_one_line() -> None:
    """An error of a Python worker of Spark is explained in one line, which has only its cause.

    Spark's message also has tracebacks of Python and of the JVM.
    """
    error = RuntimeError(
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "KeyError: 'first'\n"
        " SQLSTATE: 38000\n"
        "\tat org.apache.spark.Some.thing\n"
    )
    error.add_note("more in a file")
    explanation = failures.explain_error(error)
    assert (
        explanation == "unexpected RuntimeError: KeyError: 'first'; more in a file. This is a bug: --debug shows where"
    )


def test_an_error_of_the_package_is_one_printable_line(config_file: Path) -> None:
    message = error_of(run("show", "orders", "--columns", '"a\nb\x1b[31m"', config=config_file))
    assert message.isprintable()


def test_ctrl_c_is_one_line(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Metastore, "table", interrupt)
    result = run("show", "orders", config=config_file)
    assert (result.exit_code, result.stdout, result.stderr) == (failures.INTERRUPTED, "", "interrupted\n")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_errors_caused_by_an_interrupt_are_not_reported(interrupt: type[BaseException]) -> None:
    """After Ctrl-C, Spark cancels its jobs, which then fail.

    The interrupt is raised instead of their errors.
    """
    error = OSError("cancelled")
    error.__context__ = interrupt()
    with pytest.raises(interrupt):
        failures.raise_interrupt(error)
    failures.raise_interrupt(OSError("of its own"))


def test_profile_names_the_option_for_outside_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If files lie outside of the table's folder, the error of `profile` names `--allow`.

    The options `--allow` and `--restrict-to-table-root` have the same effect as the keys `allow` and
    `restrict_to_table_root` of a table in the configuration.
    """
    add = {"path": "s3://other/lake/p=1/x.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    schema = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "format": {}, "schemaString": json.dumps(schema), "partitionColumns": []}},
        {"add": add | {"dataChange": True}},
    ]
    (tmp_path / "t" / "_delta_log").mkdir(parents=True)
    commit = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    commit.write_text("\n".join(map(json.dumps, actions)))
    explanation = error_of(run("profile", str(tmp_path / "t")))
    assert 'allow: ["s3://other/lake/"] (`--allow s3://other/lake/` for metastore profile)' in explanation
    assert "`restrict_to_table_root: true`" in error_of(run("profile", str(tmp_path / "t"), "--restrict-to-table-root"))

    def profiled(table: TableConfig, *rest: object) -> None:
        raise ConfigError(f"{table.allow} {table.restrict_to_table_root}")

    monkeypatch.setattr("metastore_assets.profiling.profile_table", profiled)
    monkeypatch.chdir(tmp_path)
    explanation = error_of(
        run("profile", "t", "--allow", "s3://other/lake/", "--allow", "near", "--restrict-to-table-root")
    )
    assert f"('s3://other/lake/', '{tmp_path}/near') True" in explanation
    assert "() False" in error_of(run("profile", "t"))


def test_profile_of_a_catalog_name_suggests_a_command() -> None:
    """For the name of a table in a catalog, the error of `profile` suggests `metastore init`."""
    assert "`metastore init`" in error_of(run("profile", "catalog://lake/sales.orders"))
