"""Files are read in a child process: it answers as a call would, and when it dies it is known of what."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
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
from metastore_assets.tasks.isolation import IsolatedRunner, run_isolated, stream_isolated
from tests.tasks import child_tasks as tasks

REPOSITORY = Path(__file__).parents[2]
_SECONDS = 60


def doubled(numbers: list[int], threads: int = 1, chunk_size: int = 1) -> list[Any]:
    paths = [f"/t/{number}" for number in numbers]
    return IsolatedRunner(threads, chunk_size).outcomes(tasks.double, numbers, paths=paths)


def until(condition: Any) -> None:
    end = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def is_running(process: int) -> bool:
    """A process that has ended and waits for its parent to notice does not count."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def no_idle_children() -> Iterator[None]:
    """A test that looks at processes finds none of earlier ones."""
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
def test_every_task_has_its_outcome_and_exactly_the_fatal_ones_are_named(
    numbers: list[int], threads: int, chunk_size: int
) -> None:
    outcomes = doubled(numbers, threads=threads, chunk_size=chunk_size)
    for number, outcome in zip(numbers, outcomes, strict=True):
        if number > 0:
            assert outcome == 2 * number
        else:
            assert isinstance(outcome, FatalFileError)
            assert outcome.path == f"/t/{number}"
            assert re.match(rf"reading /t/{number} ended the process that read it \(signal {-number}, ", str(outcome))


def test_one_of_many_kills(no_idle_children: None) -> None:
    """Two files among thousands: all others have their results, for two deaths and two restarts each."""
    numbers = list(range(5000))
    numbers[1234], numbers[4321] = tasks.SEGV, tasks.KILL
    outcomes = doubled(numbers, threads=4, chunk_size=100)
    fatal = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, FatalFileError)]
    assert fatal == [1234, 4321]
    assert "signal 11, segmentation fault" in str(outcomes[1234])
    assert "more memory than there is" in str(outcomes[4321])
    assert all(outcome == 2 * number for number, outcome in zip(numbers, outcomes, strict=True) if number >= 0)


def test_a_real_fault_and_the_part_of_the_file_that_was_read() -> None:
    with pytest.raises(TableFormatError, match=r"/t/x \(column 'x'\) ended .*\(signal 11, segmentation fault\)"):
        run_isolated(tasks.segfault, "/t/x", "/t/x")


def test_a_library_that_ends_the_process_itself() -> None:
    with pytest.raises(TableFormatError, match=r"reading /t/x ended the process that read it \(exit status 3\)"):
        run_isolated(tasks.leave, "/t/x", 3)


def test_where_each_file_kills_the_rest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not work at all ends soon."""
    monkeypatch.setattr(isolation, "_MAX_CRASHES", 4)
    outcomes = doubled([1, *[tasks.KILL] * 50], threads=1, chunk_size=1)
    assert outcomes[0] == 2
    assert all(isinstance(outcome, FatalFileError) for outcome in outcomes[1:])
    assert [" was not read: " in str(outcome) for outcome in outcomes[1:]] == [False] * 2 + [True] * 48


def test_an_error_is_the_one_that_was_raised() -> None:
    """With its type, attributes and traceback; one that does not reach another process says the same."""
    with pytest.raises(FileNotFoundError) as caught:
        run_isolated(tasks.raise_missing, "/t/x", "/t/gone")
    assert caught.value.filename == "/t/gone"
    assert "in raise_missing" in str(caught.value.__cause__)
    with pytest.raises(ValueError, match="Stubborn: code 7"):
        run_isolated(tasks.raise_stubborn, "/t/x")


def test_what_libraries_write_disturbs_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    assert IsolatedRunner().outcomes(tasks.noise, [1, 2], paths=["a", "b"]) == [1, 2]
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_child_is_kept(no_idle_children: None) -> None:
    assert run_isolated(tasks.process_id, "a") == run_isolated(tasks.process_id, "b") != os.getpid()
    assert not run_isolated(tasks.loaded, "a", "pandas"), "a child starts fast"


def test_a_child_that_was_killed_while_it_did_nothing_is_no_matter(no_idle_children: None) -> None:
    """As by somebody who needs memory: no file is to blame."""
    child = run_isolated(tasks.process_id, "a")
    os.kill(child, signal.SIGKILL)
    until(lambda: not is_running(child))
    assert doubled([1, 2]) == [2, 4]
    os.kill(run_isolated(tasks.process_id, "a"), signal.SIGKILL)
    assert list(stream_isolated(tasks.count_to, "a", 3)) == [0, 1, 2]


def test_a_file_that_is_read_when_the_child_is_killed_from_outside_is_tried_again(
    no_idle_children: None, tmp_path: Path
) -> None:
    """A file is to blame only when the process ends a second time, and then nothing else was being read."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(run_isolated, tasks.wait_for, "a", str(tmp_path / "go"))
        until(lambda: any(child._in_flight.entries() for child in child_process._running))
        (child,) = child_process._running
        killed = child._process.pid
        os.kill(killed, signal.SIGKILL)
        (tmp_path / "go").touch()
        assert answer.result(_SECONDS) != killed


def test_a_child_that_cannot_start_says_why(no_idle_children: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(MetastoreError, match=r"does not start: .*/nowhere/python"):
        run_isolated(tasks.process_id, "a")
    monkeypatch.undo()
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(MetastoreError, match=r"ended while it read none .*No module named"):
        run_isolated(tasks.process_id, "a")


def test_the_environment_is_the_one_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials may be set, changed and taken away while a child is kept."""
    for value in ("one", "two"):
        monkeypatch.setenv("METASTORE_TEST", value)
        assert run_isolated(tasks.variable, "a", "METASTORE_TEST") == value
    monkeypatch.delenv("METASTORE_TEST")
    assert run_isolated(tasks.variable, "a", "METASTORE_TEST") is None


def test_large_requests_and_answers_do_not_wait_for_each_other() -> None:
    """Both pipes are full at times."""
    outcomes = IsolatedRunner(3, 2).outcomes(tasks.blob, [100_000] * 300, paths=["x" * 1000] * 300)
    assert [len(outcome) for outcome in outcomes] == [100_000] * 300


def test_callers_in_several_threads(no_idle_children: None) -> None:
    """Each has a child for itself; few of them are kept."""
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda start: doubled(list(range(start, start + 100)), threads=2), range(8)))
    assert results == [[2 * number for number in range(start, start + 100)] for start in range(8)]
    assert len(child_process._idle) <= 2


def test_parts_come_as_they_are_asked_for(no_idle_children: None, tmp_path: Path) -> None:
    """The child waits; who asks for no more ends it."""
    parts = stream_isolated(tasks.endless, "a", str(tmp_path / "sink"))
    assert [next(parts) for _ in range(3)] == [0, 1, 2]
    (child,) = child_process._running
    process = child._process.pid
    until(lambda: "S" in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0])
    assert (tmp_path / "sink").stat().st_size < 100_000
    parts.close()  # type: ignore[attr-defined]
    assert not is_running(process)
    assert doubled([1]) == [2]


def test_parts_that_end_in_an_error_or_in_a_death() -> None:
    parts = stream_isolated(tasks.count_to, "/t/x", 2, "no more")
    assert [next(parts), next(parts)] == [0, 1]
    with pytest.raises(ValueError, match="no more"):
        next(parts)
    for number in (0, 2):
        parts = stream_isolated(tasks.count_to, "/t/x", number, int(signal.SIGABRT))
        assert [next(parts) for _ in range(number)] == list(range(number))
        with pytest.raises(TableFormatError, match=r"reading /t/x ended .*\(signal 6, aborted\)"):
            next(parts)


def test_an_interrupt_ends_what_was_going_on(no_idle_children: None, tmp_path: Path) -> None:
    """What the child would answer next belongs to nobody."""

    ended = threading.Event()

    def interrupt() -> None:
        until(lambda: any(child._in_flight.entries() for child in child_process._running))
        os.kill(os.getpid(), signal.SIGINT)
        # One that comes just before the main thread begins to wait does not end the waiting: on a busy machine.
        while not ended.wait(5):
            os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        run_isolated(tasks.wait_for, "a", str(tmp_path / "never"))
    ended.set()
    other.join()
    assert child_process._idle == []
    assert doubled([1]) == [2]


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
    done = run(f"{_ASK}\n{end}")
    child = int(done.stdout)
    until(lambda: not is_running(child))


def test_a_child_at_work_ends_with_its_parent(tmp_path: Path) -> None:
    program = f"""{_ASK}
import threading, time
threading.Timer(0.2, os._exit, (0,)).start()
run_isolated(tasks.wait_for, "a", sys.argv[1])
"""
    done = run(program, str(tmp_path / "never"))
    until(lambda: not is_running(int(done.stdout)))


def test_a_fork_of_the_parent_has_children_of_its_own() -> None:
    """And neither of the two keeps the other's alive."""
    program = f"""{_ASK}
fork = os.fork()
if not fork:
    print(run_isolated(tasks.process_id, "a"), flush=True)
    sys.exit()
os.waitpid(fork, 0)
print(run_isolated(tasks.process_id, "a"))
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    first, forked, again = map(int, done.stdout.split())
    assert first == again != forked
    until(lambda: not is_running(first) and not is_running(forked))


def test_the_package_in_an_archive_that_only_the_program_knows(tmp_path: Path) -> None:
    """As on a cluster: `sys.path` was changed after the start."""
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
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("42\n", "")


def test_a_parent_without_standard_streams(tmp_path: Path) -> None:
    """Then descriptors of small numbers are free, and pipes get them."""
    program = (
        "from metastore_assets.tasks.isolation import run_isolated; from tests.tasks import child_tasks as tasks;"
        f"open({str(tmp_path / 'answer')!r}, 'w').write(str(run_isolated(tasks.double, 'a', 21)))"
    )
    subprocess.run(["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, program], cwd=REPOSITORY, check=False)
    assert (tmp_path / "answer").read_text() == "42"
