"""The partition keys that Dagster knows of a table: those of the published version."""

from collections.abc import Sequence

from dagster import DagsterInstance

_CHUNK = 1000


def register_partitions(
    instance: DagsterInstance, name: str, keys: Sequence[str], *, remove: bool = True
) -> tuple[list[str], list[str]]:
    """Make the keys registered under `name` those given. Returns the keys added, sorted, and those removed.

    Ranges in Dagster follow the order of registration, so new keys are registered sorted. Without `remove` keys that
    are gone stay: Dagster tells ranges by their ends, and cannot read a range of which one is gone.
    """
    registered = set(instance.get_dynamic_partitions(name))
    added = sorted(set(keys) - registered)
    removed = sorted(registered - set(keys)) if remove else []
    for start in range(0, len(added), _CHUNK):
        instance.add_dynamic_partitions(name, added[start : start + _CHUNK])
    for key in removed:  # Dagster removes one at a time.
        instance.delete_dynamic_partition(name, key)
    return added, removed
