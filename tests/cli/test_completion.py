"""Shell completion, requested with the variables that shells set.

The requests run in this process, a subprocess or a real bash. A root is the folder with all stored state.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from metastore_assets.cli import completion
from metastore_assets.cli.commands import cli
from tests.cli.run_command import execute
from tests.cli.test_startup import LARGE, imported

TABLES = ["orders", "gone", "fresh"]
COLUMNS = ["id", "price", "ratio", "state", "day", "at", "big", "blob", "tags", "tags.element"]
TRIES = 9
"""A completion that takes more than two seconds has no names. On a busy machine, it may take several tries."""


def environment(shell: str, words: list[str]) -> dict[str, str]:
    """Return the environment variables that click's scripts for shells set.

    The cursor is at the last word.
    """
    line = " ".join(["metastore", *words])
    cursor = words[-1] if shell == "fish" else str(len(words))
    return {"_METASTORE_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": cursor}


def offered(*words: str, shell: str = "bash") -> list[str]:
    """Return the completions of the last word, computed in this process and in the working folder."""
    with patch.object(completion, "_TIMEOUT", 60.0):
        done = CliRunner().invoke(cli, env=environment(shell, list(words)), prog_name="metastore")
    assert (done.exit_code, done.stderr) == (0, "")
    return _values(done.stdout, shell)


def _values(output: str, shell: str) -> list[str]:
    lines = output.strip("\n").split("\n") if output.strip() else []
    if shell == "zsh":
        return [value for kind, value, _ in zip(*[iter(lines)] * 3, strict=True) if kind == "plain"]
    return [line.partition(",")[2].partition("\t")[0] for line in lines if line.startswith("plain,")]


@pytest.fixture(autouse=True)
def folder(config_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the test.

    It has a configuration.
    """
    monkeypatch.chdir(config_file.parent)
    return config_file.parent


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sh"], ["show"]),
        (["show", ""], TABLES),
        (["show", "o"], ["orders"]),
        (["refresh", "orders", ""], ["gone", "fresh"]),
        (["--config", "other.yaml", "show", ""], ["elsewhere"]),
        (["show", "--config", "other.yaml", ""], ["elsewhere"]),
        (["top", "orders", ""], COLUMNS),
        (["histogram", "orders", "ta"], ["tags", "tags.element"]),
        (["quantile", "orders", "ta"], ["tags", "tags.element"]),
        (["locate", "orders", "st"], ["state"]),
        (["comp"], ["compact"]),
        (["show", "orders", "--columns", "id,pr"], ["id,price"]),
        (["show", "orders", "--columns", "tags,ta"], ["tags,tags.element"]),
        (["show", "orders", "--partition", ""], ["half=1", "half=2"]),
        (["top", "orders", "id", "--partition", "half=2"], ["half=2"]),
        (["refresh", "orders", "--partition", "h"], ["half=1", "half=2"]),
        (["show", "--partition", "half=1", "orders", "--columns", "st"], ["state"]),
    ],
)
def test_names_are_offered(folder: Path, words: list[str], expected: list[str]) -> None:
    (folder / "other.yaml").write_text("root: r\ntables: [{name: elsewhere, uri: u}]")
    assert offered(*words) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_completions(folder: Path, shell: str) -> None:
    assert offered("show", "", shell=shell) == TABLES
    assert offered("show", "orders", "--columns", "id,st", shell=shell) == ["id,state"]
    words = ["show", "orders", "--partition", "half="]
    assert offered(*words, shell=shell) == ["half=1", "half=2"]
    for _ in range(TRIES):
        done = execute(folder=folder, environment=environment(shell, words))
        assert (done.stderr, done.returncode) == ("", 0)
        if names := _values(done.stdout, shell):
            break
    assert names == ["half=1", "half=2"]
    script = CliRunner().invoke(cli, env={"_METASTORE_COMPLETE": f"{shell}_source"}, prog_name="metastore").stdout
    assert f"_METASTORE_COMPLETE={shell}_complete" in script
    # A list of columns has commas: the shell must not split there.
    assert 'string split ","' not in script


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        ("root: [", ["show", ""]),
        ("tables: 5", ["show", ""]),
        ("tables: [{uri: u}, 7]", ["show", ""]),
        (None, ["show", ""]),
        ("root: /nowhere/at/all\ntables: [{name: orders, uri: u}]", ["show", "orders", "--columns", ""]),
        ("root: root\ntables: [{name: fresh, uri: u}]", ["top", "fresh", ""]),
        ("root: root\ntables: [{name: orders, uri: u}]", ["top", "unknown", ""]),
        ("root: root\ntables: [{name: orders, uri: u}]", ["top", "", "id"]),
    ],
)
def test_completion_prints_no_errors(config_file: Path, configuration: str | None, words: list[str]) -> None:
    if configuration is None:
        config_file.unlink()
    else:
        config_file.write_text(configuration)
    assert offered(*words) == []


def test_a_root_that_does_not_answer_is_not_waited_for(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (folder / "metastore.yaml").write_text(
            "root: s3://bucket/root\n"
            f"storage_options: {{aws_endpoint: 'http://127.0.0.1:{silent.getsockname()[1]}', aws_allow_http: 'true', "
            "aws_region: us-east-1, aws_access_key_id: a, aws_secret_access_key: b}\n"
            "tables: [{name: orders, uri: u}]\n"
        )
        done = execute(folder=folder, environment=environment("bash", ["show", "orders", "--columns", "''"]))
        assert (done.stdout.strip(), done.stderr, done.returncode) == ("", "", 0)
    assert offered("show", "") == ["orders"]


def test_names_of_tables_need_nothing_large(folder: Path) -> None:
    modules = imported(folder=folder, environment=environment("bash", ["show", ""]))
    assert modules & (LARGE | {"numpy", "obstore", "polars", "pyarrow", "pydantic"}) == set()


_BASH = """
eval "$(_METASTORE_COMPLETE=bash_source metastore)"
press_tab() {  # after the line; the words are what bash makes of it
    COMP_LINE=$1 COMP_POINT=${#1}
    shift
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    _metastore_completion metastore
    (IFS='|'; echo "${COMPREPLY[*]}")
}
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_words(published_days: Path) -> None:
    """Bash completes names of tables, and partition keys that need quotes.

    Keys are completed from their start, after an `=`, and after an open quote. Bash loads the completion script, and
    calls it with the variables that bash sets for Tab.
    """
    # For bash, the word starts after the last `=`, and completions are inserted unchanged.
    cases = [
        ("show ", ["show", ""], TABLES),
        ("show orders --partition da", ["show", "orders", "--partition", "da"], ["day=a\\ b%2Fc", "day=日本"]),
        (
            "top orders id --partition=day=",
            ["top", "orders", "id", "--partition", "=", "day", "="],
            ["a\\ b%2Fc", "日本"],
        ),
        (
            "top orders id --partition=day=a",
            ["top", "orders", "id", "--partition", "=", "day", "=", "a"],
            ["a\\ b%2Fc"],
        ),
        (
            "refresh orders --partition day=a\\ b",
            ["refresh", "orders", "--partition", "day", "=", "a\\ b"],
            ["a\\ b%2Fc"],
        ),
        ("show orders --partition 'day=a", ["show", "orders", "--partition", "'day=a"], ["day=a b%2Fc"]),
    ]
    key_presses = {
        line: shlex.join(["press_tab", f"metastore {line}", "metastore", *words]) for line, words, _ in cases
    }
    names = dict.fromkeys(key_presses, "")
    for _ in range(TRIES):
        missing = [line for line in names if not names[line]]
        output = _run_bash(published_days, "\n".join(key_presses[line] for line in missing))
        names |= zip(missing, output.splitlines(), strict=True)
        if all(names.values()):
            break
    assert names == {line: "|".join(expected) for line, _, expected in cases}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize("quote", ["'", '"'])
def test_bash_does_not_execute_names_in_open_quotes(folder: Path, quote: str) -> None:
    """In open quotes, a name with commands is completed to the name itself, and nothing is executed."""
    name = "x$(touch executed)`touch executed`'$(touch executed)'\"\\!;a"
    (folder / "metastore.yaml").write_text(json.dumps({"tables": [{"name": name}]}))
    press_tab = shlex.join(["press_tab", f"metastore show {quote}x", "metastore", "show", f"{quote}x"])
    script = f'{press_tab} >/dev/null\nquote={shlex.quote(quote)}\neval "printf %s $quote${{COMPREPLY[0]}}$quote"'
    assert _run_bash(folder, script) == name
    assert not (folder / "executed").exists()


def _run_bash(folder: Path, script: str) -> str:
    """Return what bash prints for a script that may call `press_tab` of `_BASH`."""
    scripts = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH + script],
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def published_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a configuration and a root.

    The partitions of the table `orders` have names that need quotes in a shell.
    """
    import pyarrow as pa

    from metastore_assets.formats import encode_partition_key
    from metastore_assets.store.objects import ObjectStore
    from tests.lookup.publishing import publish

    folder = tmp_path_factory.mktemp("days")
    rows = pa.table({"id": [1, 2], "price": [0.5, 1.5]})
    days = {encode_partition_key([("day", day)]): rows for day in ("a b/c", "日本")}
    publish(ObjectStore(str(folder / "root")), rows, partitions=days)
    tables = "".join(f"  - {{name: {name}, uri: ./x}}\n" for name in TABLES)
    (folder / "metastore.yaml").write_text(f"root: ./root\ntables:\n{tables}")
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_with_line_breaks_are_not_offered(folder: Path, shell: str) -> None:
    """A table name with a line break is not offered as a completion.

    Shells read completions line by line, so they would take such a name for two.
    """
    (folder / "metastore.yaml").write_text('root: r\ntables: [{name: one}, {name: "a\\nplain,b"}, {name: two}]')
    assert offered("show", "", shell=shell) == ["one", "two"]
