"""The footers of Parquet, ORC and Avro files: row counts and schemas, cached for blocks of files.

A block is a run of about 256 files in the order of their paths. It is one value in the metadata cache. If files
are added or removed, only the values of few blocks change. The id of a file is the id of its fragment: a digest of
everything that determines the file's rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TypeAlias

import pyarrow as pa

from metastore_assets.digests import digest_bytes
from metastore_assets.errors import FragmentError
from metastore_assets.formats.files.listed_files import DataFile
from metastore_assets.formats.files.schemas import describe_file
from metastore_assets.formats.metadata_cache import MetadataCache, cache_key
from metastore_assets.storage.location import Location
from metastore_assets.tasks.isolation import IsolatedRunner
from metastore_assets.tasks.runner import TaskRunner, with_arguments

_REMOTE_THREADS = 32
"""Concurrent reads of footers in an object store, where nearly all of the time is waiting."""
_LOCAL_THREADS = 2
"""Concurrent reads of footers on local disk. More threads would wait for each other."""
_FILES_PER_TASK = 256
"""Number of local files that one task reads, because a footer takes less time than starting a task."""
_BLOCK_START: str | tuple[str, ...] = "00"
"""Prefix of the ids of the files that begin a block. One id in 256 has it."""
_FILES_AT_ONCE = 4096
"""Blocks are read together as soon as they have this number of files."""

Footer: TypeAlias = tuple[int | None, str]
"""Row count of a file (None for Avro), and the digest of its serialized schema."""
ListedFile: TypeAlias = tuple[DataFile, str]
"""A data file, and the id of its fragment."""


@dataclass
class FooterReader:
    """A reader of the footers of data files.

    Footers in the cache are not read again.
    """

    location: Location
    """The folder of the table, or its only file."""
    cache: MetadataCache
    schemas: dict[str, pa.Schema] = field(default_factory=dict)
    """The schemas of the files that `read` has yielded, by their digests."""

    def read(self, files: Iterable[ListedFile]) -> Iterator[tuple[ListedFile, Footer | FragmentError]]:
        """Yield each file with its footer, or with the error of reading it.

        Few files are in memory at a time.

        Args:
            files: the data files, ordered by path.
        """
        blocks: list[_Block] = []
        unread = 0
        for block in self._blocks(files):
            blocks.append(block)
            unread += len(block.files)
            if unread >= _FILES_AT_ONCE:
                yield from self._read_blocks(blocks)
                blocks, unread = [], 0
        yield from self._read_blocks(blocks)

    def _blocks(self, files: Iterable[ListedFile]) -> Iterator[_Block]:
        """Divide the files into blocks.

        Yield each block with the footers that the cache has of it.
        """
        block: _Block | None = None
        for file, id_ in files:
            if block is None or id_.startswith(_BLOCK_START):
                if block is not None:
                    yield block
                key = cache_key("footers", self.location.uri, id_ if id_.startswith(_BLOCK_START) else "")
                cached_footers: Mapping[str, Footer] | None = self.cache.get(key, self._decode)
                if cached_footers is None and block is not None:
                    cached_footers = block.cached  # A new file may have split a block.
                block = _Block(key, cached_footers or {})
            block.files.append((file, id_))
        if block is not None:
            yield block

    def _read_blocks(self, blocks: list[_Block]) -> Iterator[tuple[ListedFile, Footer | FragmentError]]:
        """Yield all files of the blocks with their footers or errors.

        Read and cache footers that were not cached.
        """
        unread = [file for block in blocks for file, id_ in block.files if id_ not in block.cached]
        outcomes = iter(
            self._runner().outcomes(
                with_arguments(partial(describe_file, self.location)),
                [(file, None) for file in unread],
                paths=[self.location.full_path(file.stored.path) for file in unread],
                costs=[float(file.stored.size) for file in unread],
            )
            if unread
            else []
        )
        for block in blocks:
            footers: dict[str, Footer] = {}
            for listed_file in block.files:
                footer = block.cached.get(listed_file[1]) or self._store(next(outcomes))
                if not isinstance(footer, FragmentError):
                    footers[listed_file[1]] = footer
                yield listed_file, footer
            if footers != block.cached:
                self.cache.put(block.key, _encode(footers), shared=True)

    def _runner(self) -> TaskRunner:
        if self.location.is_local:
            return IsolatedRunner(_LOCAL_THREADS, _FILES_PER_TASK)
        return IsolatedRunner(_REMOTE_THREADS)

    def _store(self, outcome: tuple[int | None, bytes] | Exception) -> Footer | FragmentError:
        """Return the footer from the outcome of reading one file, and cache the schema of the file.

        Args:
            outcome: (row count, encoded schema), or the error of reading the file. A FragmentError is returned; any
                other error is raised.
        """
        if isinstance(outcome, FragmentError):
            return outcome
        if isinstance(outcome, Exception):
            raise outcome
        row_count, schema = outcome
        digest = digest_bytes(schema)
        if digest not in self.schemas:
            self.schemas[digest] = _parse_schema(schema)
            self.cache.put(_schema_key(digest), schema, shared=True)
        return row_count, digest

    def _decode(self, data: bytes) -> dict[str, Footer]:
        """Return the cached footers of a block as a dict whose keys are file ids.

        Raises LookupError if the schema of a footer is not cached.
        """
        digests, ids, row_counts, numbers = json.loads(zlib.decompress(data))
        for digest in digests:
            if digest not in self.schemas:
                schema = self.cache.get(_schema_key(digest), _parse_schema)
                if schema is None:
                    raise LookupError(digest)
                self.schemas[digest] = schema
        return {
            id_: (None if row_count is None else int(row_count), digests[number])
            for id_, row_count, number in zip(ids, row_counts, numbers, strict=True)
        }


@dataclass
class _Block:
    """Files that follow each other in the listing.

    The metadata cache has the footers of a block as one value.
    """

    key: bytes
    cached: Mapping[str, Footer]
    """The cached footers by the ids of their files, including files that may no longer exist."""
    files: list[ListedFile] = field(default_factory=list)


def _encode(footers: Mapping[str, Footer]) -> bytes:
    """Return footers as compressed JSON, which `FooterReader._decode` reads."""
    digests = list(dict.fromkeys(digest for _, digest in footers.values()))
    numbers = {digest: number for number, digest in enumerate(digests)}
    columns = [
        digests,
        list(footers),
        [row_count for row_count, _ in footers.values()],
        [numbers[digest] for _, digest in footers.values()],
    ]
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), 1)


@lru_cache(maxsize=4096)
def _schema_key(digest: str) -> bytes:
    return cache_key("schema", digest)


@lru_cache(maxsize=4096)
def _parse_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))
