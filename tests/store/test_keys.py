"""Selections of rows by key return the same rows as a comparison of each key."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from metastore_assets.store.keys import KeyPrefixes, KeySelection, KeySet, SegmentKeyRange

_KEYS = st.text("\0ab/", max_size=4)


@given(st.sets(_KEYS, max_size=40), st.sets(_KEYS, min_size=1, max_size=30), st.sampled_from([1, 3, 100]))
def test_a_filter_returns_the_selected_rows(keys: set[str], selected_keys: set[str], chunk: int) -> None:
    sorted_keys = sorted(keys)
    chunks = [sorted_keys[start : start + chunk] for start in range(0, len(sorted_keys), chunk)]
    rows = pa.table({"key": pa.chunked_array(chunks, pa.string()), "row": list(range(len(sorted_keys)))})
    low, high = min(selected_keys), max(selected_keys)
    selections: list[tuple[KeySelection, list[str]]] = [
        (KeySet(selected_keys), [key for key in sorted_keys if key in selected_keys]),
        (KeyPrefixes(selected_keys), [key for key in sorted_keys if key.startswith(tuple(selected_keys))]),
        (SegmentKeyRange(low, high), [key for key in sorted_keys if low <= key < high]),
    ]
    for selection, expected in selections:
        result = selection.filter(rows)
        assert result.schema == rows.schema
        assert result.to_pydict() == {"key": expected, "row": [sorted_keys.index(key) for key in expected]}
