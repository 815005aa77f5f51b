"""Every error the package raises. Messages name the table, the key and the value, and say what to do."""

from __future__ import annotations

from metastore_assets.messages import tidy


class MetastoreError(Exception):
    """Base of every error of this package. The CLI prints it as one line and exits with status 1."""

    without_values: str | None = None
    """The message without what a library, or the content of a file, says in it: that may quote values of rows. None:
    the message quotes neither."""

    def __init__(self, message: str = "") -> None:
        # Most messages quote what a library or the system said, which ends with a full stop or does not.
        super().__init__(tidy(message))


class ConfigError(MetastoreError):
    """Raised when metastore.yaml is missing or invalid: names the file, the key path, the value, what is allowed."""


class MissingPackageError(MetastoreError):
    """Raised when something needs a package that is not installed: names it, and the extra that it comes with."""


class TableNotFoundError(MetastoreError):
    """Raised when a table's location holds no table, or no table of that name is configured."""


class SnapshotNotFoundError(TableNotFoundError):
    """Raised when a table has no state that `at` names: says what may be named."""


class TableFormatError(MetastoreError):
    """Raised when a table exists but cannot be read correctly: a feature without a reader, or conflicting schemas."""


class FragmentError(MetastoreError):
    """Raised when the rows of one fragment cannot be read. `path` is the data file at fault.

    `missing` is true when the file is gone (vacuumed or deleted after planning): re-planning may help.
    `unsupported` is true when the file is sound, and this package cannot read what it holds.
    """

    def __init__(self, message: str, *, path: str, missing: bool = False, unsupported: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.missing = missing
        self.unsupported = unsupported

    def __reduce__(self) -> tuple[object, ...]:
        return _fragment_error, (type(self), str(self), self.path, self.missing, self.unsupported), vars(self)


def _fragment_error(
    kind: type[FragmentError], message: str, path: str, missing: bool, unsupported: bool
) -> FragmentError:
    return kind(message, path=path, missing=missing, unsupported=unsupported)


class FatalFileError(FragmentError):
    """Raised when reading a file ended the process that read it: says how. `path` is the file."""


class PartitionKeyError(MetastoreError):
    """Raised when a string is not a partition key that this package wrote."""


class UnsupportedTypeError(MetastoreError):
    """Raised when a column's type cannot be profiled. The column is then listed with guarantee `absent`."""


class ProfileError(MetastoreError):
    """Raised when fragments could not be profiled: lists each file and cause. Finished profiles are kept."""


class WorkerEndedError(MetastoreError):
    """Raised when a Python worker of Spark ended at its work: it crashed, or was killed for want of memory."""


class StoreError(MetastoreError):
    """Raised when the Metastore's root cannot be read or written (permission, full disk, unreachable)."""


class ObjectNotFoundError(StoreError):
    """Raised when an object asked for is not in the store: expired, removed by hand, or never written."""


class ObjectExistsError(StoreError):
    """Raised when an object that must be created already exists."""


class VersionConflictError(StoreError):
    """Raised when another publisher created the same version first. The loser re-plans."""


class VersionNotFoundError(StoreError):
    """Raised when a table has no published version, or not the one asked for."""


class CorruptionError(StoreError):
    """Raised when stored state contradicts itself, such as a negative frequency. `refresh --full` rebuilds."""


class InvalidPathError(CorruptionError, ValueError):
    """Raised when stored state names a path that leads out of its folder, such as `../x`: names the path."""


class ColumnNotFoundError(MetastoreError):
    """Raised when a column is not in the table: names it and the columns there are."""


class PartitionNotFoundError(MetastoreError):
    """Raised when a partition key is not in a version: names it and says how to list the keys."""


class NotStoredError(MetastoreError):
    """Raised when what is asked of a column is not kept of it: names the column, why, and what would keep it."""


class LiteralError(MetastoreError):
    """Raised when a value that is asked about is none of the column's type, or a quantile is not from 0 to 1."""


class QueryError(MetastoreError):
    """Raised when a text is no query, or none over the views that there are: says what the engine says."""


class PredicateError(MetastoreError):
    """Raised when a predicate on rows does not parse, and says where; or when it asks what no predicate can be of."""


class GraphError(MetastoreError):
    """Raised when stages are declared in a way that cannot run: names the stage and what is wrong."""


class UpdateError(MetastoreError):
    """Raised when an update breaks the rules of updates: names the root and the key. Nothing of it is applied."""


class ProduceError(MetastoreError):
    """Raised when a Produce function raises, or does not return the same twice: `stage` and `key` say where.

    Where a function of whole batches raises, `key` is the first key of the batch, as text.
    """

    def __init__(self, message: str, *, stage: str, key: object) -> None:
        super().__init__(message)
        self.stage = stage
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return _produce_error, (str(self), self.stage, self.key)


def _produce_error(message: str, stage: str, key: object) -> ProduceError:
    return ProduceError(message, stage=stage, key=key)


class StageChangedError(MetastoreError):
    """Raised when a stage is declared otherwise than it was when its state was built: `rebuild` builds it anew."""
