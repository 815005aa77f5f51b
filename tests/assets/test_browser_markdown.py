"""A browser fetches nothing that a table's names and values reference in Markdown.

The references lead to a foreign server.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    MetadataValue,
)

from metastore_assets import fetch_column_statistics
from metastore_assets.config import load_config
from tests.assets.lab import Lab
from tests.assets.test_browser import INSTANCE, answers, page, process, wait_for

__all__ = ["page"]
pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

CONFIG = """
root: ./metastore
engine: auto
tables:
  - name: notes
    uri: ./notes
    format: files
    options: {header: true}
    columns:
      note: {checks: [{accepted_values: [nothing]}]}
"""


@contextmanager
def listening() -> Iterator[tuple[int, list[str]]]:
    """Run a server that answers every request; yield its port and the list of requested paths."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Write nothing to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, paths
        server.shutdown()
        thread.join()


def hostile(port: int) -> list[str]:
    """Return texts that a page could render as an image or a link to the server."""
    address = f"http://127.0.0.1:{port}"
    return [
        f"![p]({address}/value.png)",
        f'<img src="{address}/html.png">',
        f"zz {address}/plain.png",
        f"see ![p][1]\n\n[1]: {address}/reference.png",
    ]


@pytest.fixture
def image_server() -> Iterator[tuple[int, list[str]]]:
    """The port of a server, and the paths that were fetched from it."""
    with listening() as result:
        yield result


@pytest.fixture
def lab(tmp_path: Path, image_server: tuple[int, list[str]]) -> Iterator[Lab]:
    """A test project with a CSV table whose names and values link to the server.

    Dagster's instance has the events of a run for the table, and of the asset that writes the table. The run is created
    before `page`, because the run and Playwright each need an event loop.
    """
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text(INSTANCE, encoding="utf-8")
    (tmp_path / "metastore.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "notes").mkdir()
    values = hostile(image_server[0])
    names = {"note": values, values[0]: values[::-1], "id": ["1", "2", "3", "4"]}
    pa.csv.write_csv(pa.table(names), tmp_path / "notes" / "notes.csv")
    with DagsterInstance.from_config(str(tmp_path / "home")) as instance:
        new_lab = Lab(tmp_path, instance)
        (request,) = new_lab.tick("notes").run_requests or []
        new_lab.run("notes", request)
        writer = AssetMaterialization(AssetKey(["raw", "notes"]))
        attached_values = {"own": MetadataValue.md(f"![p](http://127.0.0.1:{image_server[0]}/own.png)")}
        for event in (
            fetch_column_statistics(writer, "notes", load_config(new_lab.config_file)),
            AssetMaterialization(AssetKey(["raw", "own"]), metadata=attached_values),
        ):
            instance.report_runless_asset_event(event)
        yield new_lab


def test_a_page_fetches_nothing_that_a_table_names(lab: Lab, image_server: tuple[int, list[str]], page: Any) -> None:
    """Pages in Dagster fetch nothing from the addresses in a table's names and values.

    The pages of the statistics, of a check and of the writing asset show the addresses as text. A picture in metadata
    of the project's own asset is fetched.
    """
    port, fetched_paths = image_server
    with socket.create_server(("127.0.0.1", 0)) as server:
        webserver = server.getsockname()[1]
    url = f"http://127.0.0.1:{webserver}/assets"
    with process(lab.folder, "dagster-webserver", "-h", "127.0.0.1", "-p", str(webserver)):
        wait_for("the webserver", 120, lambda: answers(f"http://127.0.0.1:{webserver}/server_info"))
        for path, message in (
            ("notes/notes_statistics", "4 distinct"),
            ("notes/notes_statistics?view=checks&checkDetail=note_accepted_values", "1 is accepted"),
            ("raw/notes?view=events", "4 distinct"),
        ):
            page.goto(f"{url}/{path}")
            page.get_by_text(message).first.wait_for(timeout=60_000)
            page.wait_for_timeout(1_000)
            assert page.locator(f"a[href*='127.0.0.1:{port}'], img[src*='127.0.0.1:{port}']").count() == 0, path
            page_text = page.inner_text("body")
            assert f"127.0.0.1:{port}/value.png" in page_text, path
        page.goto(f"{url}/notes/notes_statistics")
        page.get_by_text("Show Markdown").first.click()
        page.locator("img[alt='summary of statistics']").wait_for(timeout=60_000)
        page.wait_for_timeout(1_000)
        assert page.locator(f"a[href*='127.0.0.1:{port}'], img[src*='127.0.0.1:{port}']").count() == 0
        assert fetched_paths == []

        page.goto(f"{url}/raw/own?view=events")
        wait_for("the picture", 60, lambda: page.wait_for_timeout(500) or bool(fetched_paths))
        assert set(fetched_paths) == {"/own.png"}
