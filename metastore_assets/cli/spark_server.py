"""`metastore spark-server`: the Spark of this machine that stays warm between refreshes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import Invocation, MetastoreGroup
from metastore_assets.cli.opening import configured
from metastore_assets.cli.options import answering
from metastore_assets.cli.outputs import make_output
from metastore_assets.cli.progress import watching
from metastore_assets.extras import extra
from metastore_assets.startup import allow_pandas

if TYPE_CHECKING:
    from metastore_assets.cli.page import Page
    from metastore_assets.spark.local_server import RunningServer


@click.group(name="spark-server", cls=MetastoreGroup, short_help="Keep a Spark warm on this machine.")
def spark_server() -> None:
    """Start, stop, or look at a Spark that stays warm: a Spark Connect server on this machine, for this user.

    Refreshes work on it where the configuration says `spark: {spark.remote: "local[*]"}`, or the environment
    SPARK_REMOTE='local[*]'. The first of them starts it as well, when it does not run.
    """


@spark_server.command()
@answering
@click.pass_obj
def start(invocation: Invocation, as_json: bool) -> None:
    """Start it with the settings under `spark`, unless it runs."""
    with _packages():
        from metastore_assets.spark.connect import local_master
        from metastore_assets.spark.default_settings import normalize_settings
        from metastore_assets.spark.local_server import find_server, start_local_server

    settings = normalize_settings(configured(invocation).spark)
    master = local_master(settings)
    running = find_server()
    with watching() as watcher:
        if running is None:
            watcher.spark_starts()
        server = start_local_server(master, settings)
        watcher.hide()
    make_output(as_json).answer(
        {**_told(server), "started": running is None},
        lambda page: page.line(f"{'runs already' if running else 'started'}: {_line(server)}"),
    )


@spark_server.command()
@answering
def stop(as_json: bool) -> None:
    """Stop it, and what runs on it. What was published stays, and runs that were at work fail."""
    with _packages():
        from metastore_assets.spark.local_server import stop_server

    stopped = stop_server()
    make_output(as_json).answer({"stopped": stopped}, lambda page: page.line("stopped" if stopped else "none runs"))


@spark_server.command()
@answering
def status(as_json: bool) -> int:
    """Tell whether it runs, and where. The exit status is 1 when it does not."""
    with _packages():
        from metastore_assets.spark.local_server import find_server

    server = find_server()

    def draw(page: Page) -> None:
        page.line(f"runs: {_line(server)}" if server else "none runs")

    make_output(as_json).answer({"running": server is not None, **(_told(server) if server else {})}, draw)
    return 0 if server else 1


@contextmanager
def _packages() -> Iterator[None]:
    allow_pandas()
    with extra("spark", "a Spark Connect server"):
        yield


def _told(server: RunningServer) -> dict[str, Any]:
    return {"url": server.url, "process": server.pid, "logs": server.log}


def _line(server: RunningServer) -> str:
    return f"{server.url}, process {server.pid}, logs in {server.log}"
