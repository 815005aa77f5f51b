"""Isolated tasks return the results of calls, and a crash is attributed to the file at fault.

Isolated tasks run in a child process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastore_assets.errors import FatalFileError, MetastoreError, TableFormatError
from metastore_assets.tasks import child_process, isolation
from metastore_assets.tasks.isolation import IsolatedRunner, run_isolated
from metastore_assets.tasks.runner import with_arguments
from metastore_assets.tasks.streams import stream_isolated
from tests.tasks import child_tasks as tasks
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
_SECONDS = 60


def double_all(numbers: list[int], threads: int = 1, chunk_size: int = 1) -> list[Any]:
    paths = [f"/t/{number}" for number in numbers]
    return IsolatedRunner(threads, chunk_size).outcomes(tasks.double, numbers, paths=paths)


def is_running(process: int) -> bool:
    """Return whether a process runs.

    A zombie does not.
    """
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The second one: it ended between the opening and the reading.
        return False


@pytest.fixture
def no_idle_children() -> Iterator[None]:
    """End the children of earlier tests before and after a test."""
    child_process._end_all()
    child_process._idle.clear()
    yield
    child_process._end_all()
    child_process._idle.clear()


@settings(max_examples=max(4, settings().max_examples // 10))
@given(
    st.lists(st.sampled_from([1, 2, 3, 4, tasks.KILL, tasks.ABORT]), max_size=12).filter(
        lambda numbers: sum(number < 0 for number in numbers) < 3
    ),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_task_has_its_outcome_and_only_crashing_ones_fail(
    numbers: list[int], threads: int, chunk_size: int
) -> None:
    outcomes = double_all(numbers, threads=threads, chunk_size=chunk_size)
    for number, outcome in zip(numbers, outcomes, strict=True):
        if number > 0:
            assert outcome == 2 * number
        else:
            assert isinstance(outcome, FatalFileError)
            assert outcome.path == f"/t/{number}"
            assert re.match(rf"reading /t/{number} ended the process that read it \(signal {-number}, ", str(outcome))


def test_two_crashing_files_among_thousands(no_idle_children: None) -> None:
    """Two of 5,000 files crash their child processes and are named.

    All other tasks have results.
    """
    numbers = list(range(5000))
    numbers[1234], numbers[4321] = tasks.SEGV, tasks.KILL
    outcomes = double_all(numbers, threads=4, chunk_size=100)
    fatal = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, FatalFileError)]
    assert fatal == [1234, 4321]
    assert re.search(r"\bsignal 11\b", str(outcomes[1234]))
    assert re.search(r"\bsignal 9\b.*\bmemory\b", str(outcomes[4321]))
    assert all(outcome == 2 * number for number, outcome in zip(numbers, outcomes, strict=True) if number >= 0)


def test_a_crash_while_all_tasks_run_fails_only_its_task(no_idle_children: None, tmp_path: Path) -> None:
    task_arguments = [(str(tmp_path), 3, number) for number in (1, tasks.SEGV, 2)]
    runner = IsolatedRunner(threads=3)
    outcomes = runner.outcomes(
        with_arguments(tasks.double_while_others_run), task_arguments, paths=["/t/a", "/t/b", "/t/c"]
    )
    assert [outcomes[0], outcomes[2]] == [2, 4]
    assert isinstance(outcomes[1], FatalFileError)
    assert outcomes[1].path == "/t/b"


def test_a_segmentation_fault_names_the_part_of_the_file() -> None:
    with pytest.raises(TableFormatError, match=r"/t/x .*'x'.*signal 11\b"):
        run_isolated(tasks.segfault, "/t/x", "/t/x")


def test_the_error_names_the_file_when_a_library_exits_the_process() -> None:
    with pytest.raises(TableFormatError, match=r"/t/x .*status 3\b"):
        run_isolated(tasks.leave, "/t/x", 3)


def test_tasks_are_abandoned_after_many_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """After four crashes, the remaining tasks are not run, and their errors say so.

    A reader crashes with each of 50 files. It is tried twice with each of the first two files, which makes four
    crashes.
    """
    monkeypatch.setattr(isolation, "_MAX_CRASHES", 4)
    outcomes = double_all([1, *[tasks.KILL] * 50], threads=1, chunk_size=1)
    assert outcomes[0] == 2
    assert all(isinstance(outcome, FatalFileError) for outcome in outcomes[1:])
    assert [" was not read: " in str(outcome) for outcome in outcomes[1:]] == [False] * 2 + [True] * 48


def test_an_exception_arrives_with_its_attributes() -> None:
    """An exception of an isolated task arrives with its type, attributes and traceback.

    If it can be pickled but not unpickled, a ValueError with its text arrives.
    """
    with pytest.raises(FileNotFoundError) as error_info:
        run_isolated(tasks.raise_missing, "/t/x", "/t/gone")
    assert error_info.value.filename == "/t/gone"
    assert "in raise_missing" in str(error_info.value.__cause__)
    with pytest.raises(ValueError, match="Stubborn: code 7"):
        run_isolated(tasks.raise_stubborn, "/t/x")


def test_output_of_libraries_is_not_passed_to_the_parent(capfd: pytest.CaptureFixture[str]) -> None:
    assert IsolatedRunner().outcomes(tasks.noise, [1, 2], paths=["a", "b"]) == [1, 2]
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_child_is_reused(no_idle_children: None) -> None:
    assert run_isolated(tasks.process_id, "a") == run_isolated(tasks.process_id, "b") != os.getpid()
    assert not run_isolated(tasks.loaded, "a", "pandas"), "a child starts fast"


def test_a_killed_idle_child_is_replaced(no_idle_children: None) -> None:
    """An idle child is killed.

    The next task or stream starts another child and succeeds.
    """
    child = run_isolated(tasks.process_id, "a")
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: not is_running(child))
    assert double_all([1, 2]) == [2, 4]
    os.kill(run_isolated(tasks.process_id, "a"), signal.SIGKILL)
    assert list(stream_isolated(tasks.count_to, "a", 3)) == [0, 1, 2]


def test_a_task_whose_child_is_killed_from_outside_runs_again(no_idle_children: None, tmp_path: Path) -> None:
    """A child is killed while it runs a task.

    The task runs again in another child and succeeds.
    """
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run_isolated, tasks.wait_for, "a", str(tmp_path / "go"))
        wait_until(lambda: any(child._in_flight.entries() for child in list(child_process._running)))
        (child,) = child_process._running
        killed_pid = child._process.pid
        os.kill(killed_pid, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert answer.result(_SECONDS) != killed_pid


def test_a_child_that_cannot_start_has_a_message(no_idle_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(MetastoreError, match="/nowhere/python"):
        run_isolated(tasks.process_id, "a")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MetastoreError, match="No module named"):
        run_isolated(tasks.process_id, "a")


def test_a_child_has_the_current_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reused child has the caller's current environment variables, such as changed credentials."""
    for value in ("one", "two"):
        monkeypatch.setenv("METASTORE_TEST", value)
        assert run_isolated(tasks.variable, "a", "METASTORE_TEST") == value
    monkeypatch.delenv("METASTORE_TEST")
    assert run_isolated(tasks.variable, "a", "METASTORE_TEST") is None


def test_large_requests_and_answers_do_not_deadlock() -> None:
    """Requests and answers that are large enough to fill both pipes to a child arrive completely."""
    outcomes = IsolatedRunner(3, 2).outcomes(tasks.blob, [100_000] * 300, paths=["x" * 1000] * 300)
    assert [len(outcome) for outcome in outcomes] == [100_000] * 300


def test_callers_in_several_threads(no_idle_children: None) -> None:
    """Callers in several threads never use a child at the same time, and at most two children stay idle."""
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda start: double_all(list(range(start, start + 100)), threads=2), range(8)))
    assert results == [[2 * number for number in range(start, start + 100)] for start in range(8)]
    assert len(child_process._idle) <= 2


def test_a_stream_waits_for_its_reader(no_idle_children: None, tmp_path: Path) -> None:
    """A child that yields items waits until the caller reads them.

    Closing the stream ends the child.
    """
    parts = stream_isolated(tasks.endless, "a", str(tmp_path / "sink"))
    assert [next(parts) for _ in range(3)] == [0, 1, 2]
    (child,) = child_process._running
    process = child._process.pid
    wait_until(lambda: "S" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0])
    assert (tmp_path / "sink").stat().st_size < 100_000
    parts.close()  # type: ignore[attr-defined]
    assert not is_running(process)
    assert double_all([1]) == [2]


def test_a_stream_that_ends_with_an_error_or_a_crash() -> None:
    parts = stream_isolated(tasks.count_to, "/t/x", 2, "no more")
    assert [next(parts), next(parts)] == [0, 1]
    with pytest.raises(ValueError, match="no more"):
        next(parts)
    for number in (0, 2):
        parts = stream_isolated(tasks.count_to, "/t/x", number, int(signal.SIGABRT))
        assert [next(parts) for _ in range(number)] == list(range(number))
        with pytest.raises(TableFormatError, match=r"/t/x .*signal 6\b"):
            next(parts)


def test_an_interrupt_ends_the_child(no_idle_children: None, tmp_path: Path) -> None:
    """SIGINT ends the child that runs a task, so that no other caller gets the answer of this task.

    The test imports Polars, which makes the system restart reads after a signal.
    """
    import polars  # noqa: F401

    end_event = threading.Event()

    def interrupt() -> None:
        wait_until(lambda: any(child._in_flight.entries() for child in list(child_process._running)))
        os.kill(os.getpid(), signal.SIGINT)
        # On a busy machine, a signal just before the main thread waits does not interrupt the wait: send it again.
        while not end_event.wait(5):
            os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        run_isolated(tasks.wait_for, "a", str(tmp_path / "never"))
    end_event.set()
    other.join()
    assert child_process._idle == []
    assert double_all([1]) == [2]


def run(program: str, *arguments: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
        **how,
    )


_ASK = """
import os, signal, sys
from metastore_assets.tasks.isolation import run_isolated
from tests.tasks import child_tasks as tasks
print(run_isolated(tasks.process_id, "a"), flush=True)
"""


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit('bye')"])
def test_a_child_ends_with_its_parent(end: str) -> None:
    process = run(f"{_ASK}\n{end}")
    child = int(process.stdout)
    wait_until(lambda: not is_running(child))


def test_a_child_at_work_ends_with_its_parent(tmp_path: Path) -> None:
    program = f"""{_ASK}
import threading, time
threading.Timer(0.2, os._exit, (0,)).start()
run_isolated(tasks.wait_for, "a", sys.argv[1])
"""
    process = run(program, str(tmp_path / "never"))
    wait_until(lambda: not is_running(int(process.stdout)))


def test_a_fork_of_the_parent_starts_other_children() -> None:
    """Parent and fork do not share children, and neither keeps the children of the other alive."""
    program = f"""{_ASK}
fork = os.fork()
if not fork:
    print(run_isolated(tasks.process_id, "a"), flush=True)
    sys.exit()
os.waitpid(fork, 0)
print(run_isolated(tasks.process_id, "a"))
"""
    process = run(program)
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""
    first_pid, forked_pid, last_pid = map(int, process.stdout.split())
    assert first_pid == last_pid != forked_pid
    wait_until(lambda: not is_running(first_pid) and not is_running(forked_pid))


def test_a_child_imports_packages_from_archives_on_the_import_path(tmp_path: Path) -> None:
    """The parent adds an archive to `sys.path`, as on a cluster.

    The child imports the package from this archive.
    """
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in [*REPOSITORY.glob("metastore_assets/**/*.py"), *REPOSITORY.glob("tests/**/*.py")]:
            file.write(path, path.relative_to(REPOSITORY))
    program = f"""
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path.insert(0, {str(archive)!r})
from metastore_assets.tasks import isolation
from tests.tasks import child_tasks as tasks
assert ".zip" in isolation.__file__, isolation.__file__
print(isolation.run_isolated(tasks.double, "a", 21))
"""
    process = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (process.stdout, process.stderr) == ("42\n", "")


def test_a_parent_may_have_no_standard_streams(tmp_path: Path) -> None:
    """A process with closed descriptors 0 to 2 runs an isolated task.

    The pipes to its child then get these numbers.
    """
    program = (
        "from metastore_assets.tasks.isolation import run_isolated; from tests.tasks import child_tasks as tasks;"
        f"open({str(tmp_path / 'answer')!r}, 'w').write(str(run_isolated(tasks.double, 'a', 21)))"
    )
    subprocess.run(["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, program], cwd=REPOSITORY, check=False)
    assert (tmp_path / "answer").read_text() == "42"
