"""The limit of sizes to which files may decompress."""

from __future__ import annotations

from metastore_assets.storage import limits


def test_decompression_is_limited_by_ratio_and_size() -> None:
    """The limit is 100 times the compressed size, but at least 64 MiB and at most 1 GiB."""
    assert [limits.max_decompressed_size(size) for size in (0, 1 << 10, 1 << 20, 1 << 30)] == [
        64 << 20,
        64 << 20,
        100 << 20,
        1 << 30,
    ]
