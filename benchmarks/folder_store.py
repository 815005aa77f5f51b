"""A read-only S3 server on loopback that serves a folder as a bucket and counts the requests.

It supports listings in pages of 1,000, with prefix, delimiter and start, and GET and HEAD of objects, with `Range` and
`If-Match`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bench"
_PAGE = 1_000


class FolderStore:
    """The served folder, and counters of the requests since the last `take`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.options: dict[str, str] = {}
        """Storage options with which a client reads from this server."""
        self._keys: list[str] = []
        self._listings = self._objects = self._bytes = 0

    def take(self) -> tuple[int, int, int]:
        """Return the counters and reset them.

        List the folder's files, too: later requests for listings are answered from this list.

        Returns:
            The numbers of listings and of other requests, and how many bytes of objects were sent.
        """
        self._keys = sorted(str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())
        counts = self._listings, self._objects, self._bytes
        self._listings = self._objects = self._bytes = 0
        return counts

    def list(self, prefix: str, delimiter: str, after: str) -> tuple[list[str], list[str], str]:
        """Count a listing, and return one page of it.

        Args:
            prefix: The beginning of the listed keys.
            delimiter: Keys that have it after the prefix are listed as common prefixes. Empty means none.
            after: The page starts after this key.

        Returns:
            The keys, the common prefixes, and the `after` of the next page, which is empty on the last page.
        """
        self._listings += 1
        keys: list[str] = []
        prefixes: list[str] = []
        for key in self._keys[bisect_right(self._keys, after) :]:
            if not key.startswith(prefix) or (prefixes and key.startswith(prefixes[-1])):
                continue
            if len(keys) + len(prefixes) == _PAGE:
                return keys, prefixes, after
            head, separator, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if separator:
                prefixes.append(f"{prefix}{head}{delimiter}")
                after = f"{prefixes[-1]}\U0010ffff"
            else:
                keys.append(key)
                after = key
        return keys, prefixes, ""

    def path(self, key: str) -> Path:
        """Count a request for an object, and return the object's file, which may be missing."""
        self._objects += 1
        return self._folder / key

    def sent(self, size: int) -> None:
        """Add the size of an answer, in bytes, to the counter."""
        self._bytes += size

    def entry(self, key: str) -> str:
        """Return the XML element of an object in a listing."""
        stat = (self._folder / key).stat()
        return (
            f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{stat.st_mtime_ns:x}&quot;</ETag><Size>{stat.st_size}</Size></Contents>"
        )


@contextmanager
def folder_store(folder: Path, latency: float = 0.0) -> Iterator[FolderStore]:
    """Serve a folder as the bucket `BUCKET` until the end of the block.

    Yield a `FolderStore`. Its `options` are the storage options to access the bucket.

    Args:
        folder: The served folder.
        latency: The delay before each answer, in seconds.
    """
    store = FolderStore(folder)
    store.take()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer is one write, or the kernel waits for more between head and body.
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            """Answer a request for an object, a range of it, or a list of objects, as S3 does."""
            time.sleep(latency)
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            key = unquote(url.path).removeprefix(f"/{BUCKET}").strip("/")
            if "list-type" in query:
                after = query.get("continuation-token") or query.get("start-after", "")
                keys, prefixes, next_start = store.list(query.get("prefix", ""), query.get("delimiter", ""), after)
                more = f"<NextContinuationToken>{escape(next_start)}</NextContinuationToken>" if next_start else ""
                entries = "".join(map(store.entry, keys))
                common = "".join(
                    f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes
                )
                truncated_text = str(bool(next_start)).lower()
                self._answer(
                    200,
                    f"<ListBucketResult><IsTruncated>{truncated_text}</IsTruncated>{more}{entries}{common}"
                    "</ListBucketResult>".encode(),
                )
                return
            path = store.path(key)
            if not path.is_file():
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
                return
            data, tag = path.read_bytes(), f'"{path.stat().st_mtime_ns:x}"'
            if self.headers.get("If-Match", tag) != tag:
                self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
                return
            headers = {"ETag": tag, "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
            status, size = 200, len(data)
            if requested_range := self.headers.get("Range"):
                first, _, last = requested_range.removeprefix("bytes=").partition("-")
                start = int(first) if first else max(0, size - int(last))
                data = data[start : int(last) + 1 if first and last else size]
                headers["Content-Range"] = f"bytes {start}-{start + len(data) - 1}/{size}"
                status = 206
            self._answer(status, data, headers)

        do_HEAD = do_GET

        def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)
                if headers:
                    store.sent(len(data))

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    store.options = {
        "aws_endpoint": f"http://127.0.0.1:{server.server_port}",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "not-a-secret",
    }
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
