"""Rows in temporary files do not outlive the process that wrote them, even if it is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from metastore_assets.startup import python_command
from metastore_assets.storage.temporary_folders import TemporaryFolder, remove_abandoned_folders
from metastore_assets.tasks.isolation import IsolatedRunner

TOKEN = "row-of-a-person"
SPILLS = f"""
import os, signal, sys
import pyarrow as pa
from metastore_assets.formats.readers.spill import write_temporary_parquet

batch = pa.record_batch({{"name": ["{TOKEN}"] * 100_000}})

def batches():
    for number in range(30):
        if number == 20 and sys.argv[1] == "written":
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch

file = write_temporary_parquet(batch.schema, batches())
os.kill(os.getpid(), signal.SIGKILL)
"""
PROFILES = f"""
import os, signal
import pyarrow as pa
from metastore_assets import profile

schema = pa.schema({{"name": pa.string()}})

def batches():
    for number in range(2_000):
        yield pa.record_batch({{"name": ["{TOKEN}"] * 1_000}})
    os.kill(os.getpid(), signal.SIGKILL)

profile(pa.RecordBatchReader.from_batches(schema, batches()))
"""
ENDS_LATE = """
import signal, time
from metastore_assets.cli.interrupt import install_signal_handlers
from metastore_assets.storage.temporary_folders import TemporaryFolder

folder = TemporaryFolder("test")
install_signal_handlers()
signal.signal(signal.SIGTERM, lambda number, frame: None)  # as native code that does not come back
print(flush=True)
while True:
    time.sleep(100)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of this process and its children."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def kill_itself(program: str, *arguments: str) -> None:
    done = subprocess.run(python_command("-c", program, *arguments), stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("moment", ["written", "read"])
def test_rows_that_were_spilled_have_no_name(folder: Path, moment: str) -> None:
    kill_itself(SPILLS, moment)
    assert list(folder.iterdir()) == []


def test_rows_of_a_data_frame_are_removed_by_the_next_process(folder: Path) -> None:
    kill_itself(PROFILES)
    assert [path for path in folder.rglob("*.parquet") if path.stat().st_size]
    remove_abandoned_folders()
    assert list(folder.iterdir()) == []


def test_folders_in_use_stay(folder: Path) -> None:
    """`remove_abandoned_folders` removes only temporary folders of processes that have ended.

    Folders of running processes stay. So do other folders, and links and files with similar names.
    """
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "file").touch()
    (folder / "metastore-link.scratch").symlink_to(folder / "elsewhere")
    (folder / "metastore-file.scratch").touch()
    temporary = TemporaryFolder("test")
    command = python_command("-c", ENDS_LATE)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = sorted(folder.iterdir())
        assert len(before) == 5
        remove_abandoned_folders()
        assert sorted(folder.iterdir()) == before
        process.kill()
    remove_abandoned_folders()
    temporary.remove()
    remaining = ["elsewhere", "metastore-file.scratch", "metastore-link.scratch"]
    assert sorted(path.name for path in folder.iterdir()) == remaining
    assert (folder / "elsewhere" / "file").exists()


def test_a_command_that_must_be_ended_removes_temporary_files(folder: Path) -> None:
    """Temporary files are removed even if a command cannot react to SIGTERM.

    A command cannot react while it runs native code. The command is then ended some seconds after the
    signal.
    """
    with subprocess.Popen(python_command("-c", ENDS_LATE), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert len(list(folder.iterdir())) == 1
        process.terminate()
        try:
            assert process.wait(30) == 128 + signal.SIGTERM
        finally:
            process.kill()
    assert list(folder.iterdir()) == []


def end_with_folder(path: str) -> None:
    """Write a row to a new temporary folder, and kill this process.

    A child process runs this function as if it read the file `path`, which is not used.
    """
    used_folder = TemporaryFolder("test")
    (Path(used_folder.path) / "rows").write_text(TOKEN)
    signal.raise_signal(signal.SIGKILL)


def test_temporary_files_of_a_child_are_removed_when_it_ends(folder: Path) -> None:
    [outcome] = IsolatedRunner().outcomes(end_with_folder, ["some.parquet"], paths=["some.parquet"])
    assert re.search(r"\bsignal 9\b", str(outcome))
    assert list(folder.iterdir()) == []
