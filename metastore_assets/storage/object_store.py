"""Object stores through obstore: connections from a table's storage options, and objects as files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from metastore_assets.startup_lazy import LazyModule
from metastore_assets.storage.options import obstore_arguments
from metastore_assets.storage.ranged_file import RangedFile
from metastore_assets.storage.traffic import reading

if TYPE_CHECKING:
    from obstore import exceptions
else:
    exceptions = LazyModule("obstore.exceptions")

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


class ObjectFile(RangedFile):
    """An object as a file whose content cannot change under its reader: it is asked for by the given ETag only."""

    def __init__(self, store: Any, path: str, size: int, e_tag: str, uri: str) -> None:
        super().__init__(size)
        self._store = store
        self._path = path
        self._uri = uri
        self._e_tag = e_tag if is_e_tag(e_tag) else None
        self._note = reading(uri)

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
