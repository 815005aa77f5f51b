"""Object stores through obstore: connections from a table's storage options, and objects as files."""

from __future__ import annotations

import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from metastore_assets.startup import lazy_module
from metastore_assets.storage.io_counters import read_recorder

if TYPE_CHECKING:
    from obstore import exceptions
else:
    exceptions = lazy_module("obstore.exceptions")


_PAGE = 1000
"""Objects that one request lists."""
_PASSES = 2
"""Times that a listing goes around a large subfolder before it leaves all of them out."""
_LAST = "\U0010ffff"


class OverwrittenError(OSError):
    """Raised when a file is no longer the one that was opened."""


def open_object_store(root: str, options: Iterable[tuple[str, str]]) -> Any:
    """The store at `scheme://bucket`. Options are those that deltalake takes: `aws_region`, `allow_http`, …"""
    from obstore.store import from_url  # tables on disk do without

    return from_url(root, **obstore_arguments(root.partition("://")[0], options, reads_only=True))


@contextmanager
def object_errors(uri: str) -> Iterator[None]:
    """Turn what obstore raises into the OSError that a local disk would raise, naming the URI."""
    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError) as error:
        raise FileNotFoundError(f"{uri} does not exist") from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(f"{uri}: access denied; check storage_options and the bucket's policy") from error
    except exceptions.PreconditionError as error:
        raise OverwrittenError(f"{uri} has been overwritten since it was opened") from error
    except ValueError as error:
        raise OSError(f"{uri} cannot be a name in an object store: {str(error).strip()}") from error
    except exceptions.BaseError as error:
        if "404 Not Found" in str(error):
            # Of a missing bucket obstore knows no more than the status.
            raise FileNotFoundError(f"{uri} does not exist: there is no such bucket") from error
        raise OSError(f"{uri}: {str(error).partition(chr(10))[0].strip()}; check storage_options") from error


def objects_in(store: Any, folder: str, after: str = "", before: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Names of the objects directly in a folder, ascending, and what else the listing says of each.

    Of those that sort between the two names where these are given. Takes a request per 1,000 names between the two, as
    they are asked for. Subfolders cost a few requests at most, whatever is in them: one that is large is passed over,
    and where there are more of those the rest is listed without what is below.
    """
    position = f"{folder}/{after}" if after else ""
    for _ in range(_PASSES):
        passed = 0
        for info in chain.from_iterable(store.list(folder, offset=position or None, chunk_size=_PAGE)):
            name, slash, _ = info["path"][len(folder) + 1 :].partition("/")
            if before and name >= before:
                return
            if not slash:
                if name:  # else the marker that some console made for the folder itself
                    yield name, info
            elif (passed := passed + 1) > _PAGE:
                position = f"{folder}/{name}/{_LAST}"
                break
        else:
            return
    for info in store.list_with_delimiter(folder)["objects"]:
        name = info["path"][len(folder) + 1 :]
        if info["path"] > position and name and not (before and name >= before):
            yield name, info


def is_e_tag(version: str) -> bool:
    """Whether a version can be asked for: a store without ETags has a time in its place."""
    return version.startswith(('"', "W/"))


_VARIABLES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""What variables of the environment begin with, by the scheme of a URI."""
_PREFIX = re.compile(r"^(aws|google|azure)_")
_FLAGS = {"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"}
_CLIENT = _FLAGS | {
    "connect_timeout",
    "pool_idle_timeout",
    "proxy_url",
    "proxy_excludes",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
_WRITER = {"s3_allow_unsafe_rename", "s3_locking_provider", "conditional_put", "copy_if_not_exists"}
_S3 = {"s3", "s3a", "s3n"}
_IDENTITY = {"access_key_id", "secret_access_key", "session_token", "token", "skip_signature"}
_HOST = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""The variable that says where the host of a container gives out access."""
_BEFORE_HOST = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
"""Those of ways that come first, or that obstore knows."""
_FRESH = timedelta(minutes=5)
_MAX_RETRIES = 6
_RETRY_SECONDS = 60
"""obstore's own 10 retries over 3 minutes make a mistyped endpoint look like a hang; this gives up in some seconds."""


def obstore_arguments(scheme: str, options: Iterable[tuple[str, str]], *, reads_only: bool = False) -> dict[str, Any]:
    """What obstore's `from_url` is to be given beside the URL. Raises ValueError when a number is none.

    Options are obstore's, as text: `aws_endpoint`, `aws_region`, …; of its HTTP client, such as `allow_http` (also
    `aws_allow_http`); and `max_retries`, `retry_timeout` (seconds). What is absent comes from the environment. With
    `reads_only`, those that other libraries take and that only matter to who writes are left out.
    """
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    for key, value in options:
        bare = _PREFIX.sub("", key.lower())
        if bare in _CLIENT:
            client[bare] = _client_value(bare, value)
        elif bare == "max_retries":
            retry[bare] = int(value)
        elif bare == "retry_timeout":
            retry[bare] = timedelta(seconds=float(value))
        elif not (reads_only and bare in _WRITER):
            config[key] = value
    if client and scheme in _VARIABLES:
        # Given any, obstore ignores all of the client's variables in the environment.
        for key in _CLIENT - set(client):
            if (inherited := os.environ.get(f"{_VARIABLES[scheme]}_{key.upper()}")) is not None:
                client[key] = _client_value(key, inherited)
    found = {"config": config, "client_options": client or None, "retry_config": retry}
    if scheme in _S3 and _is_given_out(config):
        found["credential_provider"] = _given_out()
    return found


def _is_given_out(config: Mapping[str, Any]) -> bool:
    """Whether access is what the host of a container gives out, in a way that obstore does not ask for itself: without
    a token, or with one that is no file."""
    own = {_PREFIX.sub("", key.lower()) for key in config} & _IDENTITY
    environment = {name for name, value in os.environ.items() if value}
    return not own and _HOST in environment and not environment & _BEFORE_HOST


def _given_out() -> Any:
    """Asks for that, by boto3, whenever what there is gets old. Raises ValueError without it."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError as error:
        raise ValueError(f"${_HOST} says who gives out access, and asking takes the package {error.name}") from error
    return Boto3CredentialProvider(ttl=_FRESH)


def _client_value(key: str, value: str) -> bool | str:
    return value.strip().lower() in ("true", "1", "yes", "on") if key in _FLAGS else value


class RangedFile(io.RawIOBase, ABC):
    """An object of `size` bytes. Each read asks for exactly the bytes that are read, none at or beyond the end."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    @abstractmethod
    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from `start` up to but without `end`, of which there is one at least."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self.size if size < 0 else min(self.size, start + size)
        if end <= start:
            return b""
        data = self.fetch(start, end)
        self._position = end
        return data


class ObjectFile(RangedFile):
    """An object as a file whose content cannot change under its reader: it is asked for by the given ETag only."""

    def __init__(self, store: Any, path: str, size: int, e_tag: str, uri: str) -> None:
        super().__init__(size)
        self._store = store
        self._path = path
        self._uri = uri
        self._e_tag = e_tag if is_e_tag(e_tag) else None
        self._note = read_recorder(uri)

    def fetch(self, start: int, end: int) -> bytes:
        options: dict[str, Any] = {"range": (start, end)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag
        with object_errors(self._uri):
            data = bytes(self._store.get(self._path, options=options).bytes())
        if len(data) != end - start:
            raise OSError(f"{self._uri}: {len(data)} bytes arrived of the {end - start} at {start}")
        self._note(len(data))
        return data
