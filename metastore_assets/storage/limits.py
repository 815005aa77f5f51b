"""Limits for what a table's files may contain, declare, or decompress to.

Each limit is far above what writers produce and real tables contain, and far below what exhausts a process: a file that
exceeds one is corrupt or malicious. docs/reference/limits.md lists the limits.
"""

from __future__ import annotations

METADATA_BYTES = 1 << 30
"""Bytes of a metadata file that is read into memory, compressed or decompressed, and of a block of an Avro file.
Parsed, it takes up to ten times as much memory. An Iceberg metadata file with 500,000 snapshots has half of it."""
HEADER_BYTES = 64 << 20
"""Bytes of the header of an Avro file, which contains its schema. A schema of 100,000 fields has a tenth of it."""
DECOMPRESSED_BYTES = 64 << 20
"""Bytes that compressed data may decompress to whatever its size: constant data compresses without bound."""
DECOMPRESSION_RATIO = 100
"""Beyond DECOMPRESSED_BYTES: decompressed size divided by compressed size. Metadata has ratios of 5 to 40, because of
its unique file names."""
XZ_MEMORY = 256 << 20
"""Bytes of memory that decompressing xz may take. Its highest level needs a quarter; a header may ask for 4 GB."""
DOCUMENT_VALUES = 20_000_000
"""Values in a JSON document: each takes 60 to 230 bytes of memory. A document with 500,000 snapshots has half of it."""
COMPRESSED_VALUES = 2_000_000
"""Values in a compressed JSON document whatever its size; beyond that, COMPRESSED_VALUES_PER_BYTE."""
COMPRESSED_VALUES_PER_BYTE = 4
"""Values in a compressed JSON document per byte of the file. Real documents have less than one."""
RECORD_VALUES = 5_000_000
"""Values in one line of JSON, or one record of an Avro file: it becomes Python objects at once."""
LINE_BYTES = 64 << 20
"""Bytes of a line of JSON: a data row, or an action of a Delta log."""
ROW_BYTES = 16 << 20
"""Bytes of a row of CSV, which is also the block size of parsing."""
NESTING = 100
"""Levels of nested types, and of nested values in JSON data. Arrow reads no deeper Parquet files."""
FIELDS = 100_000
"""Fields of a schema, at all depths together. The widest known tables have some 20,000."""
KEYS = 10_000
"""Distinct keys of the objects at one path of JSON data. More keys are values rather than names."""
FIXED_BYTES = 1 << 20
"""Bytes of a value of a fixed-width binary type: even a null takes as many."""
EMPTY_ROWS = 10_000_000
"""Rows of an Avro file that take no bytes, such as rows of nulls."""
FILE_ROWS = 1 << 34
"""Rows of one data file. Runs of equal values take no space, so that a file may declare any number of rows."""
STRIPE_ROWS = 100_000_000
"""Rows of one stripe of an ORC file, which is read into memory at once. Writers end a stripe after 10 million rows."""
DELETED_ROWS = 1 << 27
"""Deleted rows of one data file: each takes sixteen bytes of memory."""
DELETE_FILE_BYTES = 1 << 30
"""Bytes in memory of the rows of the equality delete files that apply to one data file."""
DELETES_CACHE_BYTES = 256 << 20
"""Bytes in memory of the rows of equality delete files that a process caches for other data files."""
MANIFESTS = 1_000_000
"""Manifests of one snapshot of an Iceberg table. Writers merge them at a hundred."""


def max_decompressed_size(compressed_size: int) -> int:
    """Return the most bytes that `compressed_size` bytes may decompress to."""
    return max(DECOMPRESSED_BYTES, min(DECOMPRESSION_RATIO * compressed_size, METADATA_BYTES))
