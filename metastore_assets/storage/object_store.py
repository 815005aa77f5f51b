"""Connections to object stores through obstore, listings of folders, and objects as file objects."""

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
"""Number of objects that one request lists."""
_MAX_SKIPPED_SUBFOLDERS = 2
"""Number of large subfolders that a listing skips one by one. After that, it requests a listing without subfolders."""
_INSTANCE_METADATA = ("/latest/api/token", "/latest/meta-data/", "/computeMetadata/", "/metadata/identity/")
"""Parts of the URLs at which a client on a cloud machine asks for credentials."""
_LAST = "\U0010ffff"


class OverwrittenError(OSError):
    """An error about a file that has changed since it was listed or opened."""


def open_object_store(root: str, options: Iterable[tuple[str, str]]) -> Any:
    """Return obstore's store for a bucket.

    Args:
        root: The URI of the bucket: `scheme://bucket`.
        options: Storage options with the names that deltalake uses, such as `aws_region`.
    """
    from obstore.store import from_url  # not imported for tables on local disk

    return from_url(root, **obstore_arguments(root.partition("://")[0], options, reads_only=True))


@contextmanager
def object_errors(uri: str) -> Iterator[None]:
    """Convert exceptions of obstore in the block to OSErrors that name the URI.

    For example, a missing object becomes FileNotFoundError.
    """
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
            # For a missing bucket, obstore reports only the status.
            raise FileNotFoundError(f"{uri} does not exist: there is no such bucket") from error
        reason = explain_connection_error(error) or f"{first_line(error)}; check storage_options"
        raise OSError(f"{uri}: {reason}") from error


def explain_connection_error(error: Exception) -> str | None:
    """Return why a request never reached an object store, and what to do.

    Return None if the error has another cause.

    Args:
        error: The exception of obstore.
    """
    text = str(error)
    if any(part in text for part in _INSTANCE_METADATA):
        return (
            "no credentials found; set them in storage_options or in the environment (such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY)"
        )
    if "builder error" in text and "http://" in text:
        return 'the endpoint is plain http; add `aws_allow_http: "true"` to storage_options'
    if "error sending request" in text or "dns error" in text:
        return f"the endpoint cannot be reached ({first_line(error)}); check aws_endpoint"
    return None


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return str(error).split("\n", 1)[0].strip()


def objects_in(store: Any, folder: str, after: str = "", before: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the name and the metadata of each object directly in a folder, in ascending order of names.

    A request lists up to 1,000 objects, including objects in subfolders, which are skipped. Once more than 1,000
    objects were skipped, the next request begins after the current subfolder. So a large subfolder costs few requests.

    Args:
        store: The store of obstore.
        folder: Key of the folder, without a slash at the end; empty for the bucket itself.
        after: Exclusive lower bound of the names.
        before: Exclusive upper bound of the names; empty for none.
    """
    prefix = f"{folder}/" if folder else ""
    position = f"{prefix}{after}" if after else ""
    for _ in range(_MAX_SKIPPED_SUBFOLDERS):
        subfolder_objects = 0
        for info in chain.from_iterable(store.list(folder or None, offset=position or None, chunk_size=_PAGE)):
            name, slash, _ = info["path"][len(prefix) :].partition("/")
            if before and name >= before:
                return
            if not slash:
                if name:  # Otherwise it is a marker that a web console created for the folder.
                    yield name, info
            elif (subfolder_objects := subfolder_objects + 1) > _PAGE:
                position = f"{prefix}{name}/{_LAST}"
                break
        else:
            return
    for info in store.list_with_delimiter(folder or None)["objects"]:
        name = info["path"][len(prefix) :]
        if info["path"] > position and name and not (before and name >= before):
            yield name, info


def is_e_tag(version: str) -> bool:
    """Return whether a file's version, which is an ETag or the time of the last change, is an ETag."""
    return version.startswith(('"', "W/"))


_VARIABLES = {"s3": "AWS", "gs": "GOOGLE", "az": "AZURE"}
"""Prefixes of environment variables, by scheme of a URI."""
_PREFIX = re.compile(r"^(aws|google|azure)_")
_FLAGS = {"allow_http", "allow_invalid_certificates", "http1_only", "http2_only", "randomize_addresses"}
_CLIENT_OPTIONS = _FLAGS | {
    "connect_timeout",
    "pool_idle_timeout",
    "proxy_url",
    "proxy_excludes",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
_WRITER_OPTIONS = {"s3_allow_unsafe_rename", "s3_locking_provider", "conditional_put", "copy_if_not_exists"}
_S3 = {"s3", "s3a", "s3n"}
IDENTITY_OPTIONS = {"access_key_id", "secret_access_key", "session_token", "token", "skip_signature"}
_HOST_VARIABLE = "AWS_CONTAINER_CREDENTIALS_FULL_URI"
"""Environment variable with the endpoint at which the host of a container provides credentials."""
_VARIABLES_BEFORE_HOST = {"AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"}
"""Environment variables of credentials that take precedence, or that obstore handles itself."""
_CREDENTIALS_TTL = timedelta(minutes=5)
_MAX_RETRIES = 6
_RETRY_SECONDS = 60
"""Seconds after which a failed request is not repeated any more. With obstore's default of 10 retries in 3 minutes, a
mistyped endpoint would look like a hang."""


def obstore_arguments(scheme: str, options: Iterable[tuple[str, str]], *, reads_only: bool = False) -> dict[str, Any]:
    """Convert storage options to the keyword arguments of obstore's `from_url`.

    Missing options come from environment variables.

    Args:
        scheme: Scheme of the URL, such as `s3`.
        options: Options of obstore, such as `aws_region`; options of its HTTP client, such as `allow_http` or
            `aws_allow_http`; `max_retries`, and `retry_timeout` in seconds.
        reads_only: Whether to drop options that matter only for writing, such as `s3_locking_provider`.

    Raises:
        ValueError: A number is invalid, or credentials need boto3, which is not installed.
    """
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {"max_retries": _MAX_RETRIES, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    for key, value in options:
        option = _PREFIX.sub("", key.lower())
        if option in _CLIENT_OPTIONS:
            client[option] = _client_value(option, value)
        elif option == "max_retries":
            retry[option] = int(value)
        elif option == "retry_timeout":
            retry[option] = timedelta(seconds=float(value))
        elif not (reads_only and option in _WRITER_OPTIONS):
            config[key] = value
    if client and scheme in _VARIABLES:
        # With any client option, obstore ignores all client variables of the environment.
        for key in _CLIENT_OPTIONS - set(client):
            if (inherited_value := os.environ.get(f"{_VARIABLES[scheme]}_{key.upper()}")) is not None:
                client[key] = _client_value(key, inherited_value)
    arguments = {"config": config, "client_options": client or None, "retry_config": retry}
    if scheme in _S3 and _needs_host_credentials(config):
        arguments["credential_provider"] = _host_credentials()
    return arguments


def _needs_host_credentials(config: Mapping[str, Any]) -> bool:
    """Return True if credentials come from a container host's endpoint that obstore cannot use.

    obstore can use only endpoints whose token is in a file.
    """
    configured_keys = {_PREFIX.sub("", key.lower()) for key in config} & IDENTITY_OPTIONS
    environment = {name for name, value in os.environ.items() if value}
    # obstore supports only endpoints whose token is in a file.
    return not configured_keys and _HOST_VARIABLE in environment and not environment & _VARIABLES_BEFORE_HOST


def _host_credentials() -> Any:
    """Return boto3's provider, which requests and renews the host's credentials.

    Raises ValueError without boto3.
    """
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError as error:
        raise ValueError(
            f"${_HOST_VARIABLE} names the endpoint of credentials, which needs the package {error.name}: install it"
        ) from error
    return Boto3CredentialProvider(ttl=_CREDENTIALS_TTL)


def _client_value(key: str, value: str) -> bool | str:
    return value.strip().lower() in ("true", "1", "yes", "on") if key in _FLAGS else value


class RangedFile(io.RawIOBase, ABC):
    """An object of `size` bytes as a seekable file.

    Each read requests exactly the bytes that it returns.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._position = 0

    @abstractmethod
    def fetch(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` (inclusive) to `end` (exclusive).

        Callers pass a `start` less than `end`.
        """

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
    """An object of a store as a seekable file.

    If the object has an ETag, reads raise OverwrittenError once the object has changed.
    """

    def __init__(self, store: Any, path: str, size: int, e_tag: str, uri: str) -> None:
        super().__init__(size)
        self._store = store
        self._path = path
        self._uri = uri
        self._e_tag = e_tag if is_e_tag(e_tag) else None
        self._record = read_recorder(uri)

    def fetch(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` (inclusive) to `end` (exclusive).

        Raises OverwrittenError if the object has another ETag now, and OSError if bytes are missing.
        """
        options: dict[str, Any] = {"range": (start, end)}
        if self._e_tag is not None:
            options["if_match"] = self._e_tag
        with object_errors(self._uri):
            data = bytes(self._store.get(self._path, options=options).bytes())
        if len(data) != end - start:
            raise OSError(f"{self._uri}: {len(data)} bytes arrived of the {end - start} at {start}")
        self._record(len(data))
        return data
