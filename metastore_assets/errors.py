"""The errors that the package raises.

Messages name the object and the value, and say what to do. A dataflow computes stored results in stages, and updates
them when its input data change.

The root is the folder with all stored state. A version is the published statistics of a table at one snapshot. A
fragment is a data file with the deletes that apply to it. A profile is the statistics of a fragment, a partition or the
table.
"""

from __future__ import annotations

from metastore_assets.messages import clean_message


class MetastoreError(Exception):
    """Base of every error of this package.

    The CLI prints it as one line and exits with status 3.
    """

    without_values: str | None = None
    """The message without parts that may contain values of rows, such as quotes of a file's content. None if there are
    no such parts."""

    def __init__(self, message: str = "") -> None:
        # Many messages end with a quoted one, which may end with a full stop.
        super().__init__(clean_message(message))


class ConfigError(MetastoreError):
    """Raised when metastore.yaml is missing or invalid.

    The message names the file, the key, the value, and what is allowed.
    """


class MissingPackageError(MetastoreError):
    """Raised when a package is not installed.

    The message names the package, and the extra that installs it.
    """


class TableNotFoundError(MetastoreError):
    """Raised when there is no table at a table's location or in its catalog."""


class SnapshotNotFoundError(TableNotFoundError):
    """Raised when a table lacks a requested snapshot, such as the one that its setting `at` selects."""


class TableFormatError(MetastoreError):
    """Raised when a table exists, but has an unsupported feature or conflicting schemas."""


class FragmentError(MetastoreError):
    """Raised when the rows of one fragment cannot be read.

    Attributes:
        path: The data file that cannot be read.
        missing: Whether the file does not exist. If it was deleted after planning, planning again helps.
        unsupported: Whether the file is valid, but has a feature that this package cannot read.
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
    """Raised when a file crashed the process that read it.

    The message says how, and `path` is the file.
    """


class PartitionKeyError(MetastoreError):
    """Raised when a string is not a partition key that this package wrote."""


class UnsupportedTypeError(MetastoreError):
    """Raised when a type, or a value of a column, cannot be represented.

    A profile of the column has counts only.
    """


class ProfileError(MetastoreError):
    """Raised when fragments could not be profiled.

    The message has each file with the cause.

    Profiles of other fragments are stored, so the next refresh does not compute them again.
    """


class WorkerEndedError(MetastoreError):
    """Raised when a Python worker of Spark crashed, or was killed because memory ran out."""


class StoreError(MetastoreError):
    """Raised when the Metastore's root cannot be read or written, for example because a disk is full."""


class ObjectNotFoundError(StoreError):
    """Raised when an object is not in the store: it expired, was deleted by hand, or was never written."""


class ObjectExistsError(StoreError):
    """Raised when an object cannot be created because it already exists."""


class VersionConflictError(StoreError):
    """Raised when another process was first to publish a version with the same number.

    The refresh then plans again.
    """


class VersionNotFoundError(StoreError):
    """Raised when a table has no published version, or not the requested one."""


class CorruptionError(StoreError):
    """Raised when stored state is contradictory, such as a negative frequency.

    `refresh --full` rebuilds it.

    Attributes:
        missing: Whether a file does not exist. If another process removed it meanwhile, repeating the command helps.
    """

    def __init__(self, message: str = "", *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class InvalidPathError(CorruptionError, ValueError):
    """Raised when stored state names a path that leads out of its folder, such as `../x`."""


class ColumnNotFoundError(MetastoreError):
    """Raised when a column is not in the table.

    The message names it and the existing columns.
    """


class PartitionNotFoundError(MetastoreError):
    """Raised when a partition key is not in a version.

    The message names it and says how to list the keys.
    """


class NotStoredError(MetastoreError):
    """Raised when a version does not store a requested statistic.

    The message says what is missing and why. For a statistic of a column, it also names the policy that would store it.
    """


class LiteralError(MetastoreError):
    """Raised when a requested value does not fit the column's type, or a quantile is not from 0 to 1."""


class QueryError(MetastoreError):
    """Raised when an SQL query is invalid or not allowed.

    The message quotes the engine.
    """


class ExportError(MetastoreError):
    """Raised when statistics cannot be exported to a target.

    The message names the target and says what to do.
    """


class PredicateError(MetastoreError):
    """Raised when a predicate does not parse or is not supported.

    The message says where and why.
    """


class GraphError(MetastoreError):
    """Raised when the stages of a dataflow are declared wrongly.

    The message names the stage and the reason.
    """


class UpdateError(MetastoreError):
    """Raised when an update of a dataflow's input data is invalid.

    No part of the update is applied.
    """


class ProduceError(MetastoreError):
    """Raised when a function of a dataflow raises an error, or is not deterministic.

    Attributes:
        stage: The name of the function's stage.
        key: The key for which the function was called. For a function of batches: the first key of the batch, as text.
    """

    def __init__(self, message: str, *, stage: str, key: object) -> None:
        super().__init__(message)
        self.stage = stage
        self.key = key

    def __reduce__(self) -> tuple[object, ...]:
        return _produce_error, (str(self), self.stage, self.key), self.__dict__  # with the notes


def _produce_error(message: str, stage: str, key: object) -> ProduceError:
    return ProduceError(message, stage=stage, key=key)


class StageChangedError(MetastoreError):
    """Raised when a stage of a dataflow is declared otherwise than when its results were stored.

    `Dataflow.rebuild` computes these results again. The error is also raised if a stage cannot be rebuilt, because it
    reads a root whose rows are not stored.
    """
