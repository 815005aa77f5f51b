"""Reading a small file that decompresses to gigabytes does not exceed the limit of memory."""

from __future__ import annotations

import base64
import os
import subprocess
import zlib
from pathlib import Path

import pytest

from metastore_assets.errors import ConfigError
from metastore_assets.startup import python_command
from metastore_assets.storage import process_memory
from metastore_assets.storage.process_memory import configured_limit
from metastore_assets.tasks.isolation import IsolatedRunner

BOMB = (
    "eNrtlc9PE0EUx1+nS11iA0qczW5twh7oJiYFLaFNQyAwi5QWQUsTCxgT00DTKkJ/UdB4YMUD3PRk4g0TDx49m3iSaKIc+Af0gBdO"
    "/jgYiD86zkxpG38kxsSDMfsOs7Mz730/35fd5MVJIoABb1iWJeMXmh8j9ubCLi8AvKR0AB44JOt9SF51F+8da1mP936s5NoppXAH"
    "1p+i7Sf0DaXt0AaFKXi8t/KFUucg0lsOD+5VblO6AlHYTDl2X9MPlLZCsxX2w6vPAxVKHbrjyFrTxg36nDM6YOcRLL6j+5QesqRB"
    "r2K9/WpDbIgNsSE25L+E7DiAMeSjFhs3Ou74bu4cbwU2dpDkMuRbD9vW7reDPaFsiA2xITbEhvyjE0rSLgZBdZVmsun5FEYQRKoz"
    "VSyyKjTmZyVBSW2eS1+/tJS6Wk5jCbDbB6qTnfhgjEti5ENqk7gFRdL8mt8AL3ZrPhdoYa7UqOZVWFaQss1novJJM+SYF/MhiaBP"
    "sfihZiDQQgCIKXMd9CudKk0oRZRRY9XTUDnB6yNQFVDu3uQcZMjKpgf+yNiW5284e9bzO2dbHmHNq7pJInFusrf6GdR9dJLHNWIS"
    "QiZINc4QskzMDIkQkiFDGXFmsoRxvhkiJCYOGk8Ww/WlEGd6y2yTGD7P30fE/UQ9VSQJKTM7sxAjSZ7fc4UtYX5xduQAUk/l/KjY"
    "zQkRrj2SLM9GR/MXpsZJNi78c7PMzzS/Hz8orvVjkmxd6cCviAhfZucjpdlJYTXG+x4StEwtx6w1Gan1+7M+MRPiMf2D/mm+pLqT"
    "QZ5q1voR0d8Pqp5PFQvl9GLnTD7fyb5ubllfShdLl3MLeneo61RXQPOz/57/+n1OgDhJBL4BGy5e7Q=="
)
"""A Parquet file of 4 kB, compressed and in base 64. Its two maps have a key of 1 GiB, which Brotli compressed."""
LIMIT = 1 << 30
MEASURED = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A program that prints the peak memory of a command.

It is small, because the peak of a process includes the memory of the process that started it.
"""


def refresh(folder: Path, engine: str) -> tuple[str, int]:
    """Refresh a table with the file `BOMB`.

    The refresh must fail. Return the error output of the command, and the highest peak memory of the command's
    processes in bytes.
    """
    (folder / "bomb").mkdir()
    (folder / "bomb" / "1.parquet").write_bytes(zlib.decompress(base64.b64decode(BOMB)))
    (folder / "metastore.yaml").write_text(
        f"root: ./root\nengine: {engine}\nspark: {{spark.master: 'local[1]', spark.driver.memory: 512m}}\n"
        "tables: [{name: bomb, uri: ./bomb}]\n"
    )
    process = subprocess.run(
        python_command("-c", MEASURED, *python_command("-m", "metastore_assets", "refresh", "bomb")),
        cwd=folder,
        env={**os.environ, process_memory.VARIABLE: "1g"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 3
    return process.stderr, int(process.stdout.splitlines()[-1]) << 10


@pytest.mark.parametrize("engine", ["auto", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_file_that_unpacks_to_gigabytes_is_named(tmp_path: Path, engine: str) -> None:
    message, most = refresh(tmp_path, engine)
    assert all(part in message for part in ("bomb/1.parquet", "'arr'", "1.0 GiB", "$METASTORE_READER_MEMORY"))
    assert most < 1.3 * LIMIT


def fail_to_allocate(task: None) -> None:
    """End this process as Rust does when an allocation fails."""
    os.write(2, b"memory allocation of 2147483648 bytes failed\nnote: some details\n")
    os.abort()


def test_a_failed_allocation_that_ends_the_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(process_memory.VARIABLE, "700m")
    [outcome] = IsolatedRunner().outcomes(fail_to_allocate, [None], paths=["/t/x"])
    message = (
        "reading /t/x ended the process that read it (signal 6, aborted): it takes more than the 700 MiB of memory"
    )
    assert str(outcome).startswith(message)


@pytest.mark.parametrize(
    ("files", "machine", "limit"),
    [
        ({}, 100, 8),
        ({}, 10, 5),
        ({}, 1, 1),
        ({"memory.max": "max\n", "above/memory.max": f"{6 << 30}\n"}, 100, 3),
        ({"memory.limit_in_bytes": f"{2**63 - 4096}\n"}, 10, 5),
        ({"memory.limit_in_bytes": f"{4 << 30}\n", "missing": None}, 10, 2),
    ],
)
def test_default_limit_depends_on_machine_and_cgroup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str | None], machine: int, limit: int
) -> None:
    monkeypatch.delenv(process_memory.VARIABLE, raising=False)
    (tmp_path / "above").mkdir()
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text)
    monkeypatch.setattr(process_memory, "_cgroup_files", lambda: [tmp_path / name for name in files])
    page = os.sysconf("SC_PAGE_SIZE")
    sizes = {"SC_PAGE_SIZE": page, "SC_PHYS_PAGES": (machine << 30) // page}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert configured_limit() == limit << 30


@pytest.mark.parametrize(("text", "limit"), [("6g", 6 << 30), ("512M", 512 << 20), ("2GB", 2 << 30), ("none", None)])
def test_the_limit_is_configured(monkeypatch: pytest.MonkeyPatch, text: str, limit: int | None) -> None:
    monkeypatch.setenv(process_memory.VARIABLE, text)
    assert configured_limit() == limit


def test_invalid_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("lots", "0g", "12", "-1g", "8388608t", "9" * 5000 + "k"):
        monkeypatch.setenv(process_memory.VARIABLE, text)
        with pytest.raises(ConfigError, match=r"\$METASTORE_READER_MEMORY.*'.*'"):
            configured_limit()
