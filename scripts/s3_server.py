"""An S3 server on the loopback address, in a process of its own, whose buckets live as long as it does."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def s3_server(module: str = "scripts.s3_server", *arguments: str) -> Iterator[str]:
    """The endpoint of a new server, which ends with the block. `module` is one that prints its port, and ends with its
    standard input."""
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
        server.wait(timeout=30)


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    application, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        # S3 decides a conditional put at one moment; moto looks first and stores then.
        with turn:
            return list(application(environ, start_response))

    server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve()
