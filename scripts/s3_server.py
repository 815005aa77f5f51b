"""An S3 server on the loopback address, in a separate process.

Its buckets are in memory.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any


@contextmanager
def s3_server(module: str = "scripts.s3_server", *arguments: str) -> Iterator[str]:
    """Start a server in a new process, yield its endpoint URL, and stop it after the block.

    Args:
        module: The module to run. It prints its port on the first line, and ends when its standard input is closed.
        arguments: Arguments of the module.
    """
    command = [sys.executable, "-W", "ignore", "-m", module, *arguments]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        port = int(server.stdout.readline())
        yield f"http://127.0.0.1:{port}"
        server.stdin.close()
        server.wait(timeout=120)


def cache_moto_lookups() -> None:
    """Cache what moto looks up again for each request in this process.

    This halves the CPU time of a request. Otherwise, moto lists the folder of its package for each request, and parses
    the time of each object that it lists.
    """
    import botocore.utils
    from moto import backends

    modules = frozenset(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: modules
    botocore.utils.parse_timestamp = lru_cache(10_000)(botocore.utils.parse_timestamp)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    cache_moto_lookups()
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        # A conditional put is atomic in S3. In moto, checking and storing are two steps, so requests run one at a time.
        with lock:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
