"""Dynamic partition keys of a table: those of the published version."""

from collections.abc import Sequence

from dagster import DagsterInstance

_CHUNK = 1000


def register_partitions(
    instance: DagsterInstance, name: str, keys: Sequence[str], *, remove: bool = True
) -> tuple[list[str], list[str]]:
    """Register the partition keys of a table, and unregister all others.

    New keys are registered sorted, because a range in Dagster follows the order of registration.

    Args:
        instance: The Dagster instance.
        name: Name of the dynamic partitions definition.
        keys: The keys to register.
        remove: Whether to unregister other keys. Dagster cannot read a range of a backfill if one of its ends is
            missing.

    Returns:
        The added keys, sorted, and the removed keys, sorted.
    """
    registered = set(instance.get_dynamic_partitions(name))
    added = sorted(set(keys) - registered)
    removed = sorted(registered - set(keys)) if remove else []
    for start in range(0, len(added), _CHUNK):
        instance.add_dynamic_partitions(name, added[start : start + _CHUNK])
    for key in removed:  # Dagster removes one key per call.
        instance.delete_dynamic_partition(name, key)
    return added, removed
