"""The most that is read, unpacked, or believed of a table's files.

Each limit is far beyond what writers make and real tables hold, and far below what ends a process: a file that goes
beyond one is damaged or was made to do harm. docs/how-to/operations.md lists them.
"""

from __future__ import annotations

METADATA_BYTES = 1 << 30
"""Of a file of metadata that is read as a whole, packed and unpacked, and of a block of an Avro file. Parsed it takes
up to ten times as much memory. A metadata file of Iceberg with 500,000 snapshots has half of it."""
HEADER_BYTES = 64 << 20
"""Of the header of an Avro file, with the schema in it. A schema of 100,000 fields has a tenth of it."""
DECOMPRESSED_BYTES = 64 << 20
"""What is packed may unpack to so much whatever its own size: constant data packs without end."""
DECOMPRESSION_RATIO = 100
"""Beyond UNPACKED_BYTES, to so many times its own size. Metadata pack 5 to 40 times, and no more because of the unique
names in them."""
XZ_MEMORY = 256 << 20
"""That unpacking xz may take. Its highest level needs a quarter; a header may ask for 4 GB."""
DOCUMENT_VALUES = 20_000_000
"""Values in a JSON document: each takes 60 to 230 bytes of memory. A document with 500,000 snapshots has half of it."""
COMPRESSED_VALUES = 2_000_000
"""Values in a packed JSON document whatever its size; beyond that, PACKED_VALUES_PER_BYTE."""
COMPRESSED_VALUES_PER_BYTE = 4
"""Values in a packed JSON document by bytes of the file. Real ones have less than one."""
RECORD_VALUES = 5_000_000
"""Values in one line of JSON, or one record of an Avro file: it becomes Python objects at once."""
LINE_BYTES = 64 << 20
"""Of a line of JSON: a data row, or an action of a Delta log."""
ROW_BYTES = 16 << 20
"""Of a row of CSV: as much as is parsed at a time."""
NESTING = 100
"""Levels of types inside of types, and of values inside of values in JSON data. Arrow reads no deeper Parquet files."""
FIELDS = 100_000
"""Fields of a schema, at all depths together. The widest tables known have some 20,000."""
KEYS = 10_000
"""Different keys of the objects in one place of JSON data. Where they are more, they are values and no names."""
FIXED_BYTES = 1 << 20
"""Of a value of a binary type of fixed width: a null takes as much."""
EMPTY_ROWS = 10_000_000
"""Rows of an Avro file that take no bytes at all, as those of nulls alone."""
FILE_ROWS = 1 << 34
"""Rows of one data file. Runs of equal values take no space, and a file may claim any number of them."""
STRIPE_ROWS = 100_000_000
"""Rows of one stripe of an ORC file, which is held in memory as a whole. Writers end a stripe after 10 million."""
DELETED_ROWS = 1 << 27
"""Rows deleted of one data file: sixteen bytes of memory each."""
DELETE_FILE_BYTES = 1 << 30
"""Of the rows, in memory, of the equality delete files that apply to one data file."""
DELETES_CACHE_BYTES = 256 << 20
"""Of the rows, in memory, of equality delete files that a process has read, and keeps for other data files."""
MANIFESTS = 1_000_000
"""Manifests of one snapshot of an Iceberg table. Writers merge them at a hundred."""


def max_decompressed_size(stored: int) -> int:
    """Bytes that so many packed bytes may unpack to."""
    return max(DECOMPRESSED_BYTES, min(DECOMPRESSION_RATIO * stored, METADATA_BYTES))
