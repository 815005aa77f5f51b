"""A proxy before an S3 server that drops the response to the first put of each manifest.

Manifests are the objects `versions/…`, each of which names the files of a version.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def dropped_responses(endpoint: str, lost_paths: list[str]) -> Iterator[str]:
    """Run a proxy before the server at `endpoint`, and yield the proxy's endpoint.

    The proxy passes the first put of each manifest on, but closes the connection instead of answering. It adds the path
    of the manifest to `lost_paths`.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            """Send a request to the server, and return its answer, but drop the first answer for each manifest."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behind = http.client.HTTPConnection(endpoint.removeprefix("http://"))
            behind.request(self.command, self.path, body, dict(self.headers))
            answer = behind.getresponse()
            data = answer.read()
            behind.close()
            if self.command == "PUT" and "/versions/" in self.path and self.path not in lost_paths:
                lost_paths.append(self.path)
                self.close_connection = True
                return
            self.send_response_only(answer.status, answer.reason)
            for key, value in answer.getheaders():
                if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(key, value)
            size = answer.getheader("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = forward

        def log_message(self, *arguments: Any) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
