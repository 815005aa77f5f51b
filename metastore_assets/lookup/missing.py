"""What is said when a file is gone that a version names: which version, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from metastore_assets.errors import CorruptionError, ObjectNotFoundError, VersionNotFoundError
from metastore_assets.store.manifest import Version

F = TypeVar("F", bound=Callable[..., Any])


def files_there(answer: F) -> F:
    """A method that reads files of `self.version`, and raises an ObjectNotFoundError that says what to do without.

    Who opened a version that has expired since is told so, and not to mend what is not broken.
    """

    @wraps(answer)
    def explained(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return answer(self, *args, **kwargs)
        except (ObjectNotFoundError, VersionNotFoundError, CorruptionError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, ObjectNotFoundError) else error
            if isinstance(cause, CorruptionError):
                raise
            version: Version = self.version
            raise ObjectNotFoundError(
                f"table {version.table!r}, version {version.number}: {cause}: its version may have expired; open the "
                f"table again, or make its files anew with `metastore refresh {version.table} --full`"
            ) from error

    return cast(F, explained)
