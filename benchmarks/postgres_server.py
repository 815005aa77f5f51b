"""A temporary PostgreSQL server on the loopback interface, with its data in a temporary folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE = 60.0


def programs() -> Path | None:
    """Return the folder with PostgreSQL's programs, from the PATH or Debian's package.

    The result is None if PostgreSQL is not installed.
    """
    initdb = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return Path(initdb).resolve().parent if initdb else next((folder for folder in reversed(folders)), None)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Start a server, yield the URL of a database on it, and stop the server after the block.

    Raises:
        FileNotFoundError: If PostgreSQL is not installed.
        RuntimeError: If the server does not start.
    """
    folder = programs()
    if folder is None:
        raise FileNotFoundError("no PostgreSQL is installed: apt-get install postgresql")
    # PostgreSQL refuses to run as root. Debian's package has made a user for it.
    owner = "postgres" if os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="metastore-postgres-"))
    password, data = secrets.token_hex(16), home / "data"
    (home / "password").write_text(password)
    if owner:
        for path in (home, home / "password"):
            shutil.chown(path, owner, owner)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        subprocess.run(
            [folder / "initdb", "-D", data, "-U", "metastore", "-A", "scram-sha-256", "--pwfile", home / "password"],
            cwd=home, user=owner, check=True, capture_output=True,
        )  # fmt: skip
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": ""}
        arguments = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [folder / "postgres", "-D", data, *arguments], cwd=home, user=owner, stdout=log, stderr=log
            )
            try:
                _wait_for(server, port, home / "log")
                yield f"postgresql+psycopg2://metastore:{password}@127.0.0.1:{port}/postgres"
            finally:
                server.send_signal(signal.SIGINT)  # its "fast" shutdown: connections are closed
                server.wait(_PATIENCE)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def database_megabytes(url: str) -> float:
    """Return the size of a database on disk, in megabytes."""
    from sqlalchemy import create_engine, text

    engine = create_engine(url)
    with engine.connect() as connection:
        size: int = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    engine.dispose()
    return size / 1e6


def _wait_for(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _PATIENCE
    while "ready to accept connections" not in log.read_text(errors="replace"):
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"PostgreSQL does not start: {log.read_text(errors='replace')[-1000:]}")
        time.sleep(0.1)
