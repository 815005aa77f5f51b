"""The program of `make demo`, and of `make demo-s3`, which runs it in an S3 bucket.

It builds a lakehouse, commits to it, and shows what each refresh recomputes. All files are in ./demo (./demo-s3), which
is deleted first. The exit status is 1 if a result is not as expected: a refresh recomputed other partitions than its
commit changed, a table without a commit got a run, statistics of the Metastore differ from those of a full scan, or a
file has the secret key of the bucket.

A version is the published statistics of a table at one snapshot. The Metastore is the store of all versions.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from metastore_assets.config import MetastoreConfig, config_path, load_config
from metastore_assets.formats import open_table_format
from metastore_assets.lookup.results import Quantile
from metastore_assets.metastore import Metastore
from metastore_assets.store.objects import ObjectStore
from metastore_assets.store.versions import VersionStore
from scripts.demo.bucket import Bucket, demo_bucket
from scripts.demo.change import Change, change_between
from scripts.demo.commits import COMMITS
from scripts.demo.instance import DemoInstance, demo_instance
from scripts.demo.lakehouse import Lakehouse
from scripts.demo.progress import show_progress
from scripts.demo.report import Reporter
from scripts.demo.verify import scan_lineitem, scan_orders, stored_facts

_SCALE = 0.1
_FACTS = {"lineitem": ("l_partkey", "l_extendedprice"), "orders": ("o_custkey", "o_totalprice")}
"""For each table, the columns whose distinct count and whose sum are compared with a full scan."""

_MEDIANS = {"lineitem": "l_shipdate", "orders": "o_orderdate"}
"""For each table, the column whose median is shown before and after each commit."""


class Demo:
    """The parts of the demo, in the order of `run`."""

    def __init__(self, config: MetastoreConfig, folder: Path, bucket: Bucket | None = None) -> None:
        self._config = config
        self._folder = folder
        self._bucket = bucket
        self._report = Reporter()
        self._lakehouse = Lakehouse(folder)
        self._agree = True

    def run(self, scale: float) -> bool:
        """Run all parts, and return whether all results were as expected.

        Args:
            scale: The scale factor of TPC-H.
        """
        start_time = time.monotonic()
        self._build(scale)
        with ExitStack() as stack:
            with self._working("starting Spark and loading the Dagster definitions"):
                instance = stack.enter_context(demo_instance(self._folder / "dagster_home"))
            self._first_refresh(instance)
            self._commits(instance)
            self._report.line("")
            self._report.line(
                f"{instance.run_count()} runs, one per commit. Each reported the changed partitions to Dagster."
            )
        self._verify()
        self._look()
        if self._bucket is not None:
            self._search(self._bucket)
        view = "" if self._bucket else " To see the result in Dagster's UI:  make ui"
        self._report.heading(f"Done in {time.monotonic() - start_time:.0f} s.{view}")
        return self._agree

    def _build(self, scale: float) -> None:
        location = "a bucket" if self._bucket else "./demo/lake"
        self._report.heading(f"1. Build a lakehouse from TPC-H in {location}")
        with self._working("generating"):
            self._lakehouse.generate(scale)
        with self._working("writing the tables"):
            self._lakehouse.build()
            self._committed()
        for table in self._config.tables:
            snapshot = open_table_format(table).snapshot()
            keys = {fragment.partition_key for fragment in snapshot.fragments}
            size = sum(fragment.bytes for fragment in snapshot.fragments) / 1e6
            kind = {"delta": "Delta table", "files": "Parquet files in folders"}[snapshot.format]
            self._report.line(f"{table.name:<8}  {kind}, {len(keys)} partitions, {size:.0f} MB")

    def _first_refresh(self, instance: DemoInstance) -> None:
        self._report.heading(
            "2. First refresh: the sensors find two new tables, and Dagster executes the requested runs"
        )
        self._report.table_head()
        for table in self._config.tables:
            self._sense(instance, table.name, "first refresh")

    def _commits(self, instance: DemoInstance) -> None:
        """Apply each commit, and evaluate both sensors after it.

        Report whether the refresh recomputed exactly the changed partitions, and whether the other table got no run.
        """
        self._report.heading("3. Commits. After each one, both sensors are evaluated")
        self._report.table_head()
        for commit in COMMITS:
            before = self._median(commit.table)
            with self._working(f"{commit.table}: {commit.title}"):
                commit.apply(self._lakehouse)
                self._committed()
            changes = {table.name: self._sense(instance, table.name, commit.title) for table in self._config.tables}
            self._report.median(commit.table, _MEDIANS[commit.table], before, self._median(commit.table))
            change = changes.pop(commit.table)
            other_names = [name for name, other in changes.items() if other is not None]
            expected = (frozenset(commit.changed), frozenset(commit.removed))
            if change is None or (change.recomputed, change.dropped) != expected:
                self._report.unexpected(commit, change)
                self._agree = False
            if other_names:
                self._report.line(f"error: also a run of {', '.join(other_names)}, which had no commit")
                self._agree = False

    def _committed(self) -> None:
        if self._bucket is not None:
            self._bucket.synchronize()

    def _search(self, bucket: Bucket) -> None:
        """Search all objects of the bucket and all files of the demo for the bucket's secret key."""
        self._report.heading("6. Search all written objects and files for the secret key")
        count, leaks = bucket.find_secret(self._folder)
        self._report.line(f"{count:,} objects and files  {f'the key is in {leaks}' if leaks else '✓ none has the key'}")
        self._agree &= not leaks

    def _median(self, name: str) -> Quantile:
        """Return the median of the column that `_MEDIANS` has for a table, from the newest version."""
        metastore = Metastore(self._config.root, storage_options=self._config.storage_options)
        return metastore.table(name).quantile(_MEDIANS[name], 0.5)

    def _sense(self, instance: DemoInstance, table: str, title: str) -> Change | None:
        """Evaluate the sensor of a table, and execute the requested runs.

        Return and report the difference between the versions before and after the runs; None if there was no run.
        """
        versions = VersionStore(ObjectStore(self._config.root, self._config.storage_options), table)
        before = versions.latest()
        start_time = time.monotonic()
        with self._working(f"{table}: {title}", lambda: self._profiled(table)):
            requests = instance.tick(table)
            for request in requests:
                instance.execute(table, request)
        after = versions.latest()
        if not requests or after is None:
            return None
        change = change_between(versions.objects, before, after)
        self._report.refreshed(table, title, change, time.monotonic() - start_time)
        return change

    def _profiled(self, table: str) -> str:
        if self._bucket is not None:
            return ""
        file_count = sum(1 for _ in (Path(self._config.root) / table / "fragments").glob("*.statistics.parquet"))
        return f"{file_count} fragments profiled"

    def _verify(self) -> None:
        self._report.heading("4. Compare with a full scan by other engines")
        scans = {"lineitem": scan_lineitem, "orders": scan_orders}
        for table, (distinct, total) in _FACTS.items():
            stored_result = stored_facts(self._config, table, distinct, total)
            with self._working(f"scanning {table}"):
                scan_result = scans[table](self._lakehouse, distinct, total)
            rows, values, column_sum = stored_result
            facts = f"{rows:,} rows, {values:,} distinct {distinct}, sum of {total} {column_sum:,}"
            self._report.line(
                f"{table:<8}  {facts}  "
                f"{'✓ equal' if stored_result == scan_result else f'error: a scan has {scan_result}'}"
            )
            self._agree &= stored_result == scan_result

    def _look(self) -> None:
        self._report.heading("5. Look at the statistics from the command line")
        self._report.command(["show", "lineitem"])
        self._report.command(["histogram", "lineitem", "l_extendedprice", "--bins", "20"])
        self._report.command(["top", "lineitem", "l_shipmode", "-n", "7"])
        self._report.command(["quantile", "lineitem", "l_quantity", "0.01", "0.5", "0.99"])
        self._report.command(
            ["top", "orders", "o_orderpriority", "--partition", "o_orderyear=1995/o_orderpriority=5-LOW"]
        )

    def _working(self, text: str, measure: Callable[[], str] = lambda: "") -> AbstractContextManager[None]:
        return show_progress(self._report.console, text, measure)


def main() -> int:
    """Run the demo, and return the exit status."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--scale", type=float, default=_SCALE, help="TPC-H scale; 1 is 6 million line items")
    parser.add_argument("--s3", action="store_true", help="tables and root in a bucket of a server that is started")
    arguments = parser.parse_args()
    if arguments.s3:
        folder = config_path().parent / "demo-s3"
        shutil.rmtree(folder, ignore_errors=True)
        with demo_bucket(folder) as bucket:
            return 0 if Demo(load_config(), folder, bucket).run(arguments.scale) else 1
    config = load_config()
    folder = config_path().parent / "demo"
    if Path(config.root) != folder / "metastore":
        print(
            f"the demo removes and writes {folder}, but the root in {config_path()} is {config.root}", file=sys.stderr
        )
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if Demo(config, folder).run(arguments.scale) else 1


if __name__ == "__main__":
    sys.exit(main())
