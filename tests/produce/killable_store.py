"""An object store that raises, or ends its process, at a chosen write or deletion.

Every later call raises.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from metastore_assets.produce import Dataflow
from metastore_assets.store.objects import ObjectStore
from tests.produce.commit_plans import Commit, Plan


class KilledError(BaseException):
    """Stands for the end of a killed process: no handler of the code under test may catch it."""


def raise_killed() -> None:
    raise KilledError


def exit_at_once() -> None:
    """End the process with status 9, without handlers, `finally` blocks or flushing."""
    os._exit(9)


class KillableStore(ObjectStore):
    """A store that dies at one of its changes.

    A change is an object written, or an object deleted.

    Args:
        uri: The location of the store.
        fuse: The number of the change, from 0.
        after: Whether the store dies after the change instead of before it.
        only: A prefix of paths. Changes of other paths are not counted.
        die: A function that raises or ends the process.
    """

    def __init__(
        self, uri: str, fuse: int, *, after: bool = False, only: str = "", die: Callable[[], None] = raise_killed
    ) -> None:
        super().__init__(uri)
        self._fuse, self._after, self._only, self._die = fuse, after, only, die
        self.changes = 0
        self.dead = False

    @contextmanager
    def _change(self, path: str) -> Iterator[None]:
        self._alive()
        mine = self.changes == self._fuse and path.startswith(self._only)
        self.changes += path.startswith(self._only)
        if mine and not self._after:
            self._end()
        yield
        if mine:
            self._end()

    def _end(self) -> None:
        self.dead = True
        self._die()

    def _alive(self) -> None:
        if self.dead:
            raise KilledError

    def write(self, path: str, data: bytes, *, create: bool = False) -> None:
        with self._change(path):
            super().write(path, data, create=create)

    @contextmanager
    def parquet_writer(self, path: str, schema: pa.Schema, *options: Any) -> Iterator[Any]:
        with self._change(path), super().parquet_writer(path, schema, *options) as writer:
            yield writer
            self._alive()

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with self._change(path):
                super().delete([path])

    def read(self, path: str) -> bytes:
        self._alive()
        return super().read(path)

    def info(self, path: str) -> Any:
        self._alive()
        return super().info(path)

    def list(self, prefix: str = "") -> Any:
        self._alive()
        return super().list(prefix)

    def open_parquet(self, path: str, metadata: Any = None, footer_bytes: int = 0, **options: Any) -> Any:
        self._alive()
        return super().open_parquet(path, metadata, footer_bytes, **options)


def run_until_killed(
    commit_plan: Plan,
    folder: Path,
    fuse: int,
    work: Callable[[Dataflow], object],
    *,
    after: bool = False,
    only: str = "",
) -> bool:
    """Call `work` with a dataflow on a `KillableStore` in the folder.

    Return whether the store died.

    The dataflow has the graph and the settings of `commit_plan`. `fuse`, `after` and `only` are arguments of the store.
    """
    store = KillableStore(str(folder), fuse, after=after, only=only)
    flow = Dataflow(store, commit_plan.case.graph.declaration(), settings=commit_plan.case.settings)
    try:
        work(flow)
    except KilledError:
        assert store.dead
        return True
    assert not store.dead, "a kill was swallowed"
    return False


def publish_commit(commit: Commit) -> Callable[[Dataflow], object]:
    """Return work for `run_until_killed` that publishes a commit."""
    return lambda flow: flow.advance(dict(commit.tables), versions=commit.versions)
