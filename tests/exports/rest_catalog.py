"""An Iceberg REST catalog on the loopback interface, in front of an SQL catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableRequest


@contextmanager
def serve_catalog(open_catalog: Callable[[], SqlCatalog]) -> Iterator[str]:
    """Serve the tables of a catalog over HTTP during the block.

    Yield the URI of the server.

    Args:
        open_catalog: Opens the catalog. It is called for each request.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/v1/config"):
                self._answer({"defaults": {}, "overrides": {}})
                return
            with open_catalog() as catalog:
                table = catalog.load_table(self._identifier)
                self._answer_table(table.metadata_location, table.metadata)

        def do_POST(self) -> None:
            request = CommitTableRequest.model_validate_json(self.rfile.read(int(self.headers["Content-Length"])))
            with open_catalog() as catalog:
                table = catalog.load_table(self._identifier)
                response = catalog.commit_table(table, request.requirements, request.updates)
                self._answer_table(response.metadata_location, response.metadata)

        @property
        def _identifier(self) -> str:
            _, _, _, namespace, _, name = self.path.split("/")
            return f"{namespace}.{name}"

        def _answer_table(self, location: str, metadata: Any) -> None:
            self._answer(
                {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json()), "config": {}}
            )

        def _answer(self, document: dict[str, Any]) -> None:
            content = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
