"""A proxy for an S3 server that counts, delays or refuses requests.

It can also limit the objects per listing.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


class Requests:
    """The requests to a proxy since the last `take`, and settings that change how the proxy answers."""

    def __init__(self) -> None:
        self.endpoint = ""
        self.page = 0
        """Objects that the server lists at a time; 0 for as many as it does by itself."""
        self.broken = 0
        """The status that every request is answered with; 0 for the answer of the server."""
        self.answers = threading.Event()
        """While it is cleared, no request is answered."""
        self.answers.set()
        self._seen: list[str] = []
        self.data_bytes = 0
        """Bytes in the responses that the last `take` covered, without listings."""
        self._bytes = 0
        self.objects_read: dict[str, int] = {}
        self.objects_written: dict[str, int] = {}
        """In both, bytes by path, of all objects that were read or written since the caller last cleared it."""

    def take(self) -> list[str]:
        """Return the requests since the last call, each as `list PREFIX` or as method and path.

        Set `data_bytes` to the number of bytes in the responses to these requests, without listings.
        """
        requests, self._seen = self._seen, []
        self.data_bytes, self._bytes = self._bytes, 0
        return requests

    def note_answer(self, target: str, size: int) -> None:
        """Add the size of a response to the bytes of data, unless the request was a listing."""
        if "list-type" not in target:
            self._bytes += size

    def note_object(self, method: str, target: str, status: int, sent_bytes: int, got: int) -> None:
        """Record how many bytes of an object were read or written, if the request succeeded.

        A GET reads `got` bytes, and a PUT writes `sent_bytes`. Other requests and listings are not recorded.
        """
        path = urlsplit(target).path
        if status < 300 and method == "GET" and "list-type" not in target:
            self.objects_read[path] = self.objects_read.get(path, 0) + got
        elif status < 300 and method == "PUT":
            self.objects_written[path] = self.objects_written.get(path, 0) + sent_bytes

    def note(self, method: str, target: str) -> str:
        """Record a request, and return the target to request from the server in place of `target`.

        For a listing, this target limits the answer to `page` objects, if `page` is set. Otherwise, it equals `target`.
        """
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if "list-type" not in query:
            self._seen.append(f"{method} {url.path}")
            return target
        self._seen.append(f"list {query.get('prefix', '')}")
        return f"{target}&max-keys={self.page}" if self.page else target


@contextmanager
def counted(endpoint: str) -> Iterator[Requests]:
    """Run a proxy in front of the server at `endpoint` within the block.

    Yields the object that records the proxy's requests. Its attribute `endpoint` is the URL of the proxy.
    """
    requests = Requests()
    backend = urlsplit(endpoint).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            """Record a request, forward it to the server, and send back its answer.

            If `broken` is not 0, only answer with `broken` as the status.
            """
            length = int(self.headers.get("Content-Length") or 0)
            connection = http.client.HTTPConnection(backend, timeout=30)
            body = self.rfile.read(length) if length else None
            requests.answers.wait()
            if requests.broken:
                self.send_response(requests.broken)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection.request(self.command, requests.note(self.command, self.path), body, dict(self.headers))
            answer = connection.getresponse()
            data = answer.read()
            requests.note_answer(self.path, len(data))
            requests.note_object(self.command, self.path, answer.status, length, len(data))
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            content_length = answer.getheader("Content-Length") if self.command == "HEAD" else None
            self.send_header("Content-Length", content_length or str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            connection.close()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    requests.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
