"""A program that runs, races and kills publisher processes, and prints one JSON report.

    python publisher_processes.py kill ROOT OPTIONS            kill a publisher at every step, then read the root
    python publisher_processes.py race ROOT OPTIONS            several publishers publish the same version numbers
    python publisher_processes.py expire ROOT OPTIONS SECONDS  a publisher and a reader beside expiring processes

A publisher writes the next version of a table: its statistics at one snapshot. An expiring process deletes old versions
and unreferenced files. ROOT is the folder with all stored state. Publishers, readers and expiring processes are forks
of this process, which has imported all modules and opened no files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import obstore
import pyarrow as pa

from metastore_assets.errors import ObjectNotFoundError, VersionConflictError
from metastore_assets.store import local
from metastore_assets.store import remote as _remote
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.version_document import stored_entries
from metastore_assets.store.versions import VersionStore
from tests.store.sample_versions import files, files_of, fragment, version

assert _remote, "imported before the first fork"
os.fsync = lambda descriptor: None  # SIGKILL loses no written data, so the tests need no fsync
pa.array(["text"])  # makes pyarrow import pandas, once instead of in every child


def forked(work: Callable[[], Any]) -> tuple[int, Callable[[], Any]]:
    """Run `work` in a child.

    Returns its process id and a function that waits for its result.

    The result is what `work` returned, the traceback of its error, or the name of the signal that ended the child:
    `killed` for SIGKILL, otherwise `signal` and the number.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            answer = {"result": work()}
        except BaseException:  # noqa: BLE001 (reported to the parent)
            answer = {"error": traceback.format_exc()}
        with os.fdopen(write_end, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(write_end)

    def wait() -> Any:
        with os.fdopen(read_end) as pipe:
            text = pipe.read()
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            return "killed" if os.WTERMSIG(status) == signal.SIGKILL else f"signal {os.WTERMSIG(status)}"
        answer = json.loads(text)
        return answer["result"] if "result" in answer else answer["error"]

    return child, wait


def run(work: Callable[[], Any]) -> Any:
    """Run `work` in a child and wait for its result."""
    return forked(work)[1]()


class KillSwitch:
    """Kills this process with SIGKILL at step n, counted from 0.

    There is a step before each call that changes stored data, and one after the first write into a local file. Steps
    after the calls are not needed: until the next call, the stored data stay the same.
    """

    def __init__(self, step: int) -> None:
        self._left = step

    def step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that takes a step and then calls `call`."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return call(*args, **kwargs)

        return wrapped

    def arm(self) -> None:
        """Wrap every system call and request that writes, so that it takes a step first."""
        for name in ("mkdir", "fsync", "link", "replace", "unlink"):
            setattr(os, name, self.around(getattr(os, name)))
        output: Any = local._LocalOutput
        for name in ("__init__", "sync"):
            setattr(output, name, self.around(getattr(output, name)))
        write = output.write

        def first_write(file: Any, data: Any) -> int:
            has_begun = file.tell() > 0
            byte_count = write(file, data)
            if not has_begun:
                file._file.flush()  # a part of the file is written
                self.step()
            return byte_count

        output.write = first_write
        module: Any = obstore
        module.put = self.around(obstore.put)
        module.delete = self.around(obstore.delete)
        open_writer, switch = obstore.open_writer, self

        class Writer:
            def __init__(self, *args: Any) -> None:
                writer = open_writer(*args)
                self.write, self.close = writer.write, switch.around(writer.close)

        module.open_writer = Writer


def read_all_versions(versions: VersionStore) -> list[int]:
    """Read all data of every version, and return the version numbers.

    Fails on incomplete data.
    """
    numbers = versions.numbers()
    for number in numbers:
        stored_version = versions.read(number)
        expected = version(number, stored_version.content_id.removeprefix(str(number)))
        assert stored_version == expected, (stored_version, expected)
        entries = {path for entries in stored_entries(stored_version) for path in entries.files.paths()}
        assert entries <= {info.path for info in versions.objects.list("entries")}
    return numbers


def kill(store: ObjectStore) -> list[dict[str, Any]]:
    """Kill a process at each step of publishing version 2 and dropping version 1.

    Steps are numbered from 0, and each is tried with a new table. After each kill, another process reads the versions
    and publishes the next one. The last number is greater than that of any step, so its process is not killed. Return a
    report for each number.
    """
    report = []
    for step in count():
        versions = VersionStore(store, f"table-{step}")

        def publish(versions: VersionStore = versions, step: int = step) -> str:
            versions.publish(version(1))
            base = versions.latest()
            KillSwitch(step).arm()
            versions.publish(version(2, "first"), base)
            versions.drop_outdated(2, 1, timedelta(days=-1))
            return "published"

        def recover(versions: VersionStore = versions) -> dict[str, Any]:
            before = read_all_versions(versions)
            number = before[-1] + 1
            versions.publish(version(number, "next"), versions.latest())
            after = read_all_versions(versions)
            versions.drop_outdated(number, 1, timedelta(days=-1))
            dropped_numbers = read_all_versions(versions)
            versions.expire(keep=1, grace=timedelta(days=-1))
            paths = [info.path for info in versions.objects.list()]
            latest = versions.latest()
            assert latest is not None
            paths = [path for path in paths if path != "versions/oldest"]
            hidden_paths = [path for path in _tree(versions) if os.path.basename(path).startswith(".")]
            return {
                "before": before,
                "after": after,
                "dropped": dropped_numbers,
                "stray": sorted(set(paths) - set(files_of(latest))) + hidden_paths,
            }

        outcome = run(publish)
        report.append({"outcome": outcome, "recovered": run(recover)})
        if outcome != "killed":
            return report
    raise AssertionError


def _tree(versions: VersionStore) -> Iterator[str]:
    root = versions.objects.uri()
    if "://" not in root:
        for folder, _, names in os.walk(root):
            yield from (os.path.join(folder, name) for name in names)


def race(store: ObjectStore, publishers: int = 6, rounds: int = 5) -> list[dict[str, Any]]:
    """In each round, let all publishers publish the same version number at the same time.

    Return a report of each round: what each publisher returned, and the content of the published version. The last
    report has the numbers of all versions, whose data were read completely.
    """
    versions = VersionStore(store, "orders")
    report = []
    for number in range(1, rounds + 1):
        start = time.monotonic() + 0.1

        def publish(tag: str, number: int = number, start: float = start) -> str:
            versions.numbers()  # connections are opened before the start
            time.sleep(max(0.0, start - time.monotonic()))
            try:
                versions.publish(version(number, tag))
            except VersionConflictError:
                return "conflict"
            return f"{number}{tag}"

        waits = [forked(lambda tag=tag, publish=publish: publish(tag))[1] for tag in "abcdefgh"[:publishers]]
        outcomes = [wait() for wait in waits]
        report.append({"outcomes": outcomes, "published": run(lambda n=number: versions.read(n).content_id)})
    report.append({"whole": run(lambda: read_all_versions(versions))})
    return report


def expire(store: ObjectStore, seconds: float) -> dict[str, Any]:
    """Publish versions for `seconds`, while other processes read and expire them.

    Each version reuses files of earlier ones. Replaced versions stay readable only for a short time, the grace. Return
    what each process reported, and whether publishing was fast enough (`in_time`). Each call uses a new table, so a
    call can be repeated if the machine was too slow.
    """
    versions = VersionStore(store, f"orders-{time.time_ns()}")
    grace = timedelta(seconds=2.5 if versions.objects.is_remote else 0.5)
    # S3 truncates times to seconds.
    patience = grace.total_seconds() - versions.objects.is_remote
    # The S3 server would otherwise work without a break, and delay the other processes.
    pause = 0.1 if versions.objects.is_remote else 0.02
    end = time.monotonic() + seconds

    def save(name: str) -> None:
        for path in files(name).paths():
            versions.objects.write(path, name.encode())

    def publisher() -> tuple[int | str, float]:
        """Publish versions.

        Return the number of the last version, or an error, and the seconds that the slowest version took.
        """
        durations = [0.0]
        start_time = time.monotonic()
        try:
            return publish_all(durations), max(durations)
        except Exception:  # noqa: BLE001 (judged by who started it: publishing may have taken longer than the grace)
            return traceback.format_exc(), max(*durations, time.monotonic() - start_time - sum(durations))

    def publish_all(durations: list[float]) -> int:
        """Publish versions until the time is over, and return how many were published.

        The seconds that each version took are appended to `durations`.
        """
        retained_names: list[str] = ["always"]
        start_time = time.monotonic()
        save("always")
        for number in count(1):
            if number > 1:
                durations.append(time.monotonic() - start_time)
                start_time = time.monotonic()
            if time.monotonic() > end:
                return number - 1
            new_names = [f"{number}-{i}" for i in range(2)]
            for name in (*new_names, f"table-{number}", f"day-{number}", f"node-{number}"):
                save(name)
            if number % 3 == 0:
                versions.save_pending([fragment(f"{number}-0")])
                reused_names = [entry.id for entry in versions.pending()]
            else:
                reused_names = []
            retained_names = list(dict.fromkeys(["always", *retained_names[-4:], *reused_names, *new_names]))
            time.sleep(pause)
            versions.publish(replace(version(number), fragments=[fragment(name) for name in retained_names]))
            versions.clear_pending()
        raise AssertionError

    def reader() -> int:
        """Read the files of the newest version again and again.

        A missing file is an error only if the version was opened less than the grace ago.

        Returns how many times all files of a version were read.
        """
        reads = 0
        while time.monotonic() < end:
            start_time = time.monotonic()
            latest = versions.latest()
            if latest is None:
                continue
            try:
                for path in latest.paths():
                    versions.objects.read(path)
                reads += 1
            except ObjectNotFoundError:
                if time.monotonic() - start_time < patience:
                    raise
            time.sleep(pause)
        return reads

    def expirer() -> list[int]:
        removed_counts = [0, 0]
        while time.monotonic() < end:
            counts = versions.expire(keep=2, grace=grace)
            removed_counts[0] += counts.versions
            removed_counts[1] += counts.files
            time.sleep(2.5 * pause)
        return removed_counts

    waits = [forked(work)[1] for work in (publisher, reader, expirer, expirer)]
    (last_number, slowest), reads, *removed_counts = [wait() for wait in waits]

    def finish() -> dict[str, Any]:
        versions.expire(keep=1, grace=timedelta(days=-1))
        latest = versions.latest()
        assert latest is not None
        referenced_paths = set(files_of(latest))
        return {
            "numbers": versions.numbers(),
            "exactly": {info.path for info in versions.objects.list()} == referenced_paths,
        }

    report = {"published": last_number, "reads": reads, "removed": removed_counts, "finally": run(finish)}
    return {**report, "in_time": slowest < patience}


if __name__ == "__main__":
    action, root, options, *rest = sys.argv[1:]
    target = ObjectStore(root, json.loads(options))
    actions: dict[str, Callable[..., Any]] = {"kill": kill, "race": race, "expire": expire}
    json.dump(actions[action](target, *map(float, rest)), sys.stdout)
