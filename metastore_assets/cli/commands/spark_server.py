"""`metastore spark-server`: start, stop or inspect a local Spark Connect server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from metastore_assets.cli.failures import CHECK_FAILED, SUCCESS, Invocation, MetastoreGroup
from metastore_assets.cli.opening import load_config
from metastore_assets.cli.options import output_options
from metastore_assets.cli.output import Page, answer
from metastore_assets.cli.progress import show_progress
from metastore_assets.extras import extra
from metastore_assets.startup import allow_pandas

if TYPE_CHECKING:
    from metastore_assets.spark.local_server import RunningServer


@click.group(name="spark-server", cls=MetastoreGroup, short_help="Keep Spark running between refreshes.")
def spark_server() -> None:
    """Start, stop or inspect a Spark Connect server on this machine.

    It keeps Spark running between refreshes. Refreshes use the server if the configuration has `spark: {spark.remote:
    "local[*]"}` or the environment has SPARK_REMOTE='local[*]'. The first such refresh starts the server if it does not
    run.
    """


@spark_server.command()
@output_options
@click.pass_obj
def start(invocation: Invocation, as_json: bool) -> None:
    """Start the server with the settings under `spark`, unless it runs."""
    with _spark_packages():
        from metastore_assets.spark.connect import local_master
        from metastore_assets.spark.default_settings import normalize_settings
        from metastore_assets.spark.local_server import find_server, start_local_server

    settings = normalize_settings(load_config(invocation).spark)
    master = local_master(settings)
    running_server = find_server()
    with show_progress() as watcher:
        if running_server is None:
            watcher.spark_starts()
        server = start_local_server(master, settings)
        watcher.hide()
    result = {**_server_to_json(server), "started": running_server is None}
    word = "already running" if running_server else "started"
    answer(result, lambda page: page.line(f"{word}: {_format_server(server)}"), as_json=as_json)


@spark_server.command()
@output_options
def stop(as_json: bool) -> None:
    """Stop the server.

    Refreshes that run on it fail; published versions stay.
    """
    with _spark_packages():
        from metastore_assets.spark.local_server import stop_server

    has_stopped = stop_server()
    answer(
        {"stopped": has_stopped},
        lambda page: page.line("stopped" if has_stopped else "no server runs"),
        as_json=as_json,
    )


@spark_server.command()
@output_options
def status(as_json: bool) -> int:
    """Show whether the server runs, and where.

    Exits with status 1 when it does not run.
    """
    with _spark_packages():
        from metastore_assets.spark.local_server import find_server

    server = find_server()

    def draw(page: Page) -> None:
        page.line(f"runs: {_format_server(server)}" if server else "no server runs")

    answer({"running": server is not None, **(_server_to_json(server) if server else {})}, draw, as_json=as_json)
    return SUCCESS if server else CHECK_FAILED


@contextmanager
def _spark_packages() -> Iterator[None]:
    allow_pandas()
    with extra("spark", "a Spark Connect server"):
        yield


def _server_to_json(server: RunningServer) -> dict[str, Any]:
    return {"url": server.url, "process": server.pid, "logs": server.log}


def _format_server(server: RunningServer) -> str:
    return f"{server.url}, process {server.pid}, logs in {server.log}"
