"""What a commit costs at a million fragments: the real plan, tree and publish, on synthetic entries.

Per size, in a process of its own: a base version is published; then a snapshot in which one fragment was replaced is
planned against it and published. Counted are objects and bytes that this reads and writes, what the merges along the
tree read (profiles, which are not there), time and memory. `METASTORE_BENCH_SCALE=1000000x50` is one size alone.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa

from benchmarks.report import Row
from metastore_assets.config import TableConfig
from metastore_assets.formats.base import Fragment, Snapshot
from metastore_assets.pipeline.merging import merges
from metastore_assets.pipeline.merging.tree import Branch, key_position, merge_tree
from metastore_assets.pipeline.plan import Plan, PlanInputs, content_id, make_plan, members_id, partition_content_id
from metastore_assets.pipeline.profile_spec import ProfileSpec, table_profile_spec
from metastore_assets.store import objects
from metastore_assets.store.backend import Backend, Input
from metastore_assets.store.manifest import FragmentEntry, NodeEntry, PartitionEntry, ProfileFiles, Version
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore

SIZES = ((1_000, 10), (1_000, 50), (1_000, 500), (1_000, 5_000), (10_000, 50), (100_000, 50))
PER_PARTITION = 50
_TABLE = "*"


def run() -> list[Row]:
    """Prints a table of the sizes; the only row compares the bytes written at 100,000 fragments with those at 1,000."""
    chosen = os.environ.get("METASTORE_BENCH_SCALE")
    sizes = [tuple(map(int, chosen.split("x")))] if chosen else list(SIZES)
    found = {}
    print("fragments  columns  plan s  publish s   MB in memory  objects read/written     KB read  KB written  "
          "profiles merged in tasks")  # fmt: skip
    for fragments, columns in sizes:
        program = [sys.executable, "-m", "benchmarks.scale", str(fragments), str(columns)]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        own = found[fragments, columns] = json.loads(done.stdout)
        print(f"{fragments:>9,}  {columns:>7,}  {own['plan']:6.2f}  {own['publish']:9.2f}  {own['memory']:>13,.0f}  "
              f"{own['read']:>7,} / {own['written']:<10,}  {own['bytes_read'] / 1e3:>10,.0f}  "
              f"{own['bytes_written'] / 1e3:>10,.0f}  {own['profiles']:>8,} in {own['tasks']}")  # fmt: skip
    if chosen:
        return []
    small, large = (found[count, 50]["bytes_written"] / 1e3 for count in (1_000, 100_000))
    return [Row("kB that a commit writes: 1,000 fragments, against 100,000", [large], [small], 3 * small / large, 1.0)]


def measure(count: int, columns: int) -> dict[str, float]:
    """One size."""
    folder = tempfile.mkdtemp(prefix="metastore-bench-")
    versions = VersionStore(ObjectStore(folder), "table")
    schema = pa.schema([(f"c{at}", pa.int64()) for at in range(columns)])
    spec = table_profile_spec(schema, TableConfig(name="table", uri="none"))
    fragments = [_fragment(number) for number in range(count)]
    versions.publish(_version(_plan(None, fragments, spec, schema), spec))
    fragments[count // 2] = _fragment(count // 2, "replaced")
    with _counted() as counted:
        started = time.process_time()
        base = VersionStore(ObjectStore(folder), "table").latest()
        plan = _plan(base, fragments, spec, schema)
        planned = time.process_time()
        version = _version(plan, spec)
        published_from = time.process_time()
        versions.publish(version, base)
        published = time.process_time()
    shutil.rmtree(folder)
    groups = [(key, own) for key, own in _groups(plan) if key in (_TABLE, *plan.changed_partitions)]
    known = {node.id for node in (base.nodes if base else ())}
    merged = [branch for key, own in groups for branch in _changed(own, key, known)]
    return {
        "plan": planned - started,
        "publish": published - published_from,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        **counted,
        "profiles": sum(len(branch.parts) for branch in merged),
        "tasks": len(groups),
    }


def _fragment(number: int, content: str = "") -> Fragment:
    key = f"day={number // PER_PARTITION:06}"
    source: Any = None
    return Fragment(
        f"{number:032x}{content}", key, f"s3://lake/table/{key}/part-{number:08}.parquet", 1 << 28, 1, source
    )


def _plan(base: Version | None, fragments: list[Fragment], spec: ProfileSpec, schema: pa.Schema) -> Plan:
    ordered = tuple(sorted(fragments, key=lambda own: (own.partition_key, own.id)))
    snapshot = Snapshot("delta", str(len(ordered)), None, schema, ("day",), fragments=ordered)
    stored = base.fragments if base else ()
    specs = {**(base.specs if base else {}), spec.id: spec.column_specs}
    return make_plan(PlanInputs("table", base, snapshot, spec, stored, specs=specs))


def _version(plan: Plan, spec: ProfileSpec) -> Version:
    """What assembling it would come to, with names of files that nobody wrote."""
    read = {
        own.id: FragmentEntry(
            own.id, own.partition_key, own.path, own.bytes, 1, spec.id, (), _files(f"fragments/{own.id}")
        )
        for own in plan.to_profile
    }
    fragments = {**plan.reused, **read}
    partitions = [
        part.reused
        or PartitionEntry(
            part.key,
            partition_content_id(spec.id, part.fragments),
            len(part.fragments),
            1 << 34,
            len(part.fragments),
            _files(f"partitions/{part.key}-{plan.number}"),
            plan.number,
            spec.id,
            members_id(part.fragments),
        )
        for part in plan.partitions
    ]
    nodes = [
        NodeEntry(_node_id(key, branch), _files(f"nodes/{_node_id(key, branch)}"), spec.id)
        for key, root in _groups(plan)
        for branch in _below(root)
    ]
    return Version(
        number=plan.number,
        table="table",
        format="delta",
        snapshot=plan.snapshot.id,
        committed_at=None,
        published_at=datetime.now(UTC),
        schema=plan.snapshot.schema,
        partition_columns=("day",),
        row_count=len(fragments),
        bytes=1,
        content_id=content_id(spec, partitions),
        files=_files(f"table/{plan.number}"),
        code_version="bench",
        spec_id=spec.id,
        specs={spec.id: spec.column_specs},
        fragments=list(fragments.values()),
        partitions=partitions,
        nodes=nodes,
    )


def _files(name: str) -> ProfileFiles:
    return ProfileFiles("", "", (), f"{name}.states.parquet")


def _groups(plan: Plan) -> list[tuple[str, Branch[str]]]:
    """The trees of the partitions over their fragments, and that of the table over the partitions."""
    trees = [(part.key, _tree(part.fragments)) for part in plan.partitions]
    changed = set(plan.changed_partitions) if plan.base else set()
    names = [f"{part.key}-{plan.number if part.key in changed else 0}" for part in plan.partitions]
    return [*trees, (_TABLE, _tree(names))]


def _tree(children: tuple[str, ...] | list[str]) -> Branch[str]:
    return merge_tree([(key_position(child.partition("-")[0]), child) for child in children], merges.FAN_IN)


def _below(branch: Branch[str]) -> list[Branch[str]]:
    return [one for part in branch.parts if isinstance(part, Branch) for one in (part, *_below(part))]


def _node_id(key: str, branch: Branch[str]) -> str:
    return f"{key}:{abs(hash(branch)):016x}"


def _changed(root: Branch[str], key: str, known: set[str]) -> list[Branch[str]]:
    return [root, *(branch for branch in _below(root) if _node_id(key, branch) not in known)]


class _Counting:
    """A backend that notes what goes through it."""

    def __init__(self, backend: Backend, counted: Counter[str]) -> None:
        self._backend = backend
        self._counted = counted

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def read(self, path: str) -> bytes:
        data = self._backend.read(path)
        self._counted.update(read=1, bytes_read=len(data))
        return data

    def write(self, path: str, data: bytes, *, create: bool, private: bool) -> None:
        self._counted.update(written=1, bytes_written=len(data))
        self._backend.write(path, data, create=create, private=private)

    def open_input(self, path: str, *, use_cached_tail: bool = False) -> Input:
        opened: Input = self._backend.open_input(path, use_cached_tail=use_cached_tail)
        self._counted.update(read=1, bytes_read=opened.file.size())
        return opened

    @contextmanager
    def create_output(self, path: str) -> Any:
        with self._backend.create_output(path) as sink:
            yield sink
            size = sink.tell()
        self._counted.update(written=1, bytes_written=size)


@contextmanager
def _counted() -> Any:
    """Objects and bytes read and written meanwhile."""
    counted: Counter[str] = Counter(read=0, written=0, bytes_read=0, bytes_written=0)
    plain = objects._backend
    objects._backend = partial(_wrapped, plain, counted)  # type: ignore[assignment]
    try:
        yield counted
    finally:
        objects._backend = plain


def _wrapped(plain: Any, counted: Counter[str], *arguments: Any) -> _Counting:
    return _Counting(plain(*arguments), counted)


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
