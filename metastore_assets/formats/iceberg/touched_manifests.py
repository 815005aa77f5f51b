"""Selection of the manifests that may list touched files.

If delete files are given, the data files to which they apply are touched. If data files are given, the delete files
that apply to them are touched. Manifests are selected by their partition summaries and sequence numbers, which are in
the manifest list.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from metastore_assets.formats.iceberg.manifests import DATA, EQUALITY_DELETES, FileEntry, Manifest
from metastore_assets.formats.iceberg.metadata import PartitionField
from metastore_assets.formats.iceberg.partitions import Partitions

_NUMBER_FORMATS = {4: "<i", 8: "<q"}
_FLOAT_FORMATS = {4: "<f", 8: "<d"}
_BEFORE_SURROGATES = "\ud7ff"
"""Texts with later characters are ordered differently by Java (UTF-16) and Python (code points)."""


class TouchedManifests:
    """A selector of the manifests that may list files which one of the given files touches.

    Delete files touch the data files to which they apply. Data files touch the delete files that apply to them.
    """

    def __init__(self, partitions: Partitions, files: Iterable[FileEntry]) -> None:
        """Group files by partition.

        Args:
            partitions: the table's partition fields.
            files: delete files, to select manifests of data files; or data files, to select manifests of deletes.
        """
        self._partitions = partitions
        self._by_spec: dict[int, dict[tuple[Any, ...], _Range]] = {}
        self._everywhere: _Range | None = None
        self._all: _Range | None = None
        for file in files:
            groups = self._by_spec.setdefault(file.spec_id, {})
            groups[file.partition] = _widen(groups.get(file.partition), file)
            self._all = _widen(self._all, file)
            if file.content == EQUALITY_DELETES and partitions.is_unpartitioned(file.spec_id):
                self._everywhere = _widen(self._everywhere, file)

    def select(self, manifests: Sequence[Manifest]) -> list[Manifest]:
        """Return the manifests that may list touched files.

        If the constructor got no files, the result is empty. Otherwise, it includes each manifest whose spec id is
        unknown, because nothing rules it out.
        """
        return [manifest for manifest in manifests if self._may_contain_touched_files(manifest)]

    def _may_contain_touched_files(self, manifest: Manifest) -> bool:
        """Return True unless partitions or sequence numbers show that the manifest has no touched file."""
        if self._all is None or manifest.spec_id is None:
            return self._all is not None
        if not _may_apply(manifest, self._all):
            return False
        if _may_apply(manifest, self._everywhere):
            return True
        if manifest.content != DATA and self._partitions.is_unpartitioned(manifest.spec_id):
            return True  # It may have equality deletes, which apply to all partitions.
        groups = self._by_spec.get(manifest.spec_id, {})
        if not groups:
            return False
        bounds = partition_bounds(self._partitions, manifest)
        return any(
            _may_apply(manifest, sequence_numbers) and all(map(may_contain, bounds, values))
            for values, sequence_numbers in groups.items()
        )


_Range = tuple[float, float]
"""The lowest and highest sequence number of some files."""


def _widen(range_: _Range | None, file: FileEntry) -> _Range:
    """Return the smallest range that contains a range and the sequence number of a file.

    Args:
        range_: The range; None if it is empty.
        file: The file. If it has no sequence number, the result is the range of all numbers.
    """
    if file.sequence_number is None:
        return -math.inf, math.inf
    lowest, highest = range_ or (math.inf, -math.inf)
    return min(lowest, file.sequence_number), max(highest, file.sequence_number)


def _may_apply(manifest: Manifest, range_: _Range | None) -> bool:
    """Return whether a file in a manifest and a given file may belong together by sequence numbers.

    They belong together if one is a delete file that applies to the other, a data file. For example, the result is
    False if the manifest's data files have numbers from 6 on, and the given delete files have the numbers 3 to 5.

    Args:
        manifest: A manifest of data files or of delete files.
        range_: The sequence numbers of the given files. They are delete files if the manifest lists data files,
            and data files if it lists delete files. None if no files are given; then the result is False.
    """
    if range_ is None:
        return False
    if manifest.content == DATA:
        return manifest.min_sequence_number <= range_[1]
    # A list without the number has 0.
    return not manifest.sequence_number or manifest.sequence_number >= range_[0]


FieldBounds = tuple[Any, Any, bool] | None
"""Lower bound, upper bound, and whether there may be a null or NaN, for one partition field; None if unknown."""


def partition_bounds(partitions: Partitions, manifest: Manifest) -> list[FieldBounds]:
    """Return the decoded bounds of each partition field of a manifest, in the order of its spec.

    Unknown bounds are None. An assertion fails if `manifest.spec_id` is None.
    """
    assert manifest.spec_id is not None
    spec = partitions.specs.get(manifest.spec_id, ())
    if manifest.partitions is None or len(manifest.partitions) != len(spec):
        return [None] * len(spec)
    return [
        _field_bounds(field, partitions.stored_type(field), *summary)
        for field, summary in zip(spec, manifest.partitions, strict=True)
    ]


def may_contain(bounds: FieldBounds, value: Any) -> bool:
    """Return whether files of a manifest may have a value in a partition field.

    The bounds of the field in the manifest decide.

    Args:
        bounds: the bounds of the field in the manifest.
        value: the stored value, normalized as in `Partitions.normalize`.
    """
    if bounds is None:
        return True
    lower, upper, is_mixed = bounds
    if value is None or value != value:
        return is_mixed
    if type(value) is not type(lower):
        return True
    if isinstance(value, str) and max(value + lower + upper, default="") > _BEFORE_SURROGATES:
        return True
    # An upper bound may be truncated.
    return bool(lower <= value and (value <= upper or (isinstance(value, str | bytes) and value.startswith(upper))))


def _field_bounds(
    field: PartitionField, type_: pa.DataType | None, lower: bytes | None, upper: bytes | None, is_mixed: bool
) -> FieldBounds:
    """Return (lower bound, upper bound, whether there may be a null or NaN) of a field in a manifest.

    Return None if a bound is missing or corrupt, or if values cannot be compared with it.

    Args:
        field: the partition field.
        type_: the type of the field's values; None if unknown.
        lower: the lower bound as the manifest list stores it; None if it is missing.
        upper: the upper bound as the manifest list stores it; None if it is missing.
        is_mixed: whether there may be a null or NaN according to the manifest list.
    """
    if field.transform == "void" or type_ is None or lower is None or upper is None:
        return None
    decoded_bounds = _decode(lower, type_), _decode(upper, type_)
    if None in decoded_bounds or type(decoded_bounds[0]) is not type(decoded_bounds[1]):
        return None
    # Not all writers record whether there is a NaN.
    return (*decoded_bounds, is_mixed or pa.types.is_floating(type_))


def _decode(bound: bytes, type_: pa.DataType) -> Any:
    """Decode a bound; None if it is NaN, or cannot be decoded.

    Decimals become unscaled integers.
    """
    if pa.types.is_integer(type_) or pa.types.is_temporal(type_):
        formats = _NUMBER_FORMATS
    elif pa.types.is_floating(type_):
        formats = _FLOAT_FORMATS
    elif pa.types.is_boolean(type_):
        return bound != b"\0" if len(bound) == 1 else None
    elif pa.types.is_decimal(type_):
        return int.from_bytes(bound, "big", signed=True)
    elif pa.types.is_string(type_):
        try:
            return bound.decode()
        except UnicodeDecodeError:
            return None
    else:
        return bound if pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_) else None
    if len(bound) not in formats:
        return None
    (number,) = struct.unpack(formats[len(bound)], bound)
    return None if number != number else number
