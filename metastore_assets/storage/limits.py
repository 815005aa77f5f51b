"""Limits on the content, the declared sizes, and the decompressed size of a table's files.

Each limit is far above what writers produce and real tables contain, and far below what exhausts a process. A file
that exceeds a limit is corrupt or malicious. `make reference` writes the limits into docs/reference/limits.md.
"""

from __future__ import annotations

METADATA_BYTES = 1 << 30
"""Maximum size in bytes of a metadata file (`metadata.json`, manifest, commit, …), compressed or decompressed, and of a
block of an Avro file. An Iceberg metadata file with 500,000 snapshots has half this size."""
HEADER_BYTES = 64 << 20
"""Maximum size in bytes of the header of an Avro file, with its schema. A schema of 100,000 fields has a tenth of this
size."""
DECOMPRESSED_BYTES = 64 << 20
"""Decompressed size in bytes that is always allowed, because constant data compresses without bound."""
DECOMPRESSION_RATIO = 100
"""Maximum ratio of decompressed size to compressed size, beyond DECOMPRESSED_BYTES. Metadata has ratios of 5 to 40,
because its file names are unique."""
XZ_MEMORY = 256 << 20
"""Maximum memory in bytes for decompressing xz. Its highest level needs a quarter; a file header may request 4 GB."""
DOCUMENT_VALUES = 20_000_000
"""Maximum number of values in a JSON document. Each takes 60 to 230 bytes of memory. A document with 500,000 snapshots
has half as many."""
COMPRESSED_VALUES = 2_000_000
"""Number of values that a compressed JSON document may always have. Above it, COMPRESSED_VALUES_PER_BYTE applies."""
COMPRESSED_VALUES_PER_BYTE = 4
"""Maximum number of values in a compressed JSON document per byte of the file. Real documents have less than one."""
RECORD_VALUES = 5_000_000
"""Maximum number of values in one line of JSON or one record of an Avro file, which becomes Python objects at once."""
LINE_BYTES = 64 << 20
"""Maximum size in bytes of a line of JSON: a data row, or an action of a Delta log."""
ROW_BYTES = 16 << 20
"""Maximum size in bytes of a row of CSV, and of the blocks that are parsed at once."""
NESTING = 100
"""Maximum depth of nested types, and of nested values in JSON data. Arrow cannot read deeper Parquet files."""
FIELDS = 100_000
"""Maximum number of fields of a schema, at all depths together, and of columns of CSV. The widest known tables have
about 20,000."""
KEYS = 10_000
"""Maximum number of distinct keys of the objects at one path of JSON data. More keys are data rather than field names.
"""
FIXED_BYTES = 1 << 20
"""Maximum size in bytes of a value of a fixed-width binary type. Even a null takes that size."""
EMPTY_ROWS = 10_000_000
"""Maximum number of rows of an Avro file that take no bytes, such as rows of nulls."""
FILE_ROWS = 1 << 34
"""Maximum number of rows of one data file. Runs of equal values take no space, so a small file can declare any number.
"""
STRIPE_ROWS = 100_000_000
"""Maximum number of rows of one stripe of an ORC file, which is read into memory at once. Writers end a stripe after 10
million."""
DELETED_ROWS = 1 << 27
"""Maximum number of deleted rows of one data file. Each takes sixteen bytes of memory."""
DELETE_FILE_BYTES = 1 << 30
"""Maximum memory in bytes of the equality delete rows that apply to one data file."""
DELETES_CACHE_BYTES = 256 << 20
"""Maximum memory in bytes of the equality delete rows that a process caches."""
MANIFESTS = 1_000_000
"""Maximum number of manifests of one Iceberg snapshot. Writers merge them when there are a hundred."""


def max_decompressed_size(compressed_size: int) -> int:
    """Return the greatest size in bytes to which `compressed_size` bytes may decompress."""
    return max(DECOMPRESSED_BYTES, min(DECOMPRESSION_RATIO * compressed_size, METADATA_BYTES))
