"""The key of the sketches of values that must not be shown: configured, or made once for a root and kept in it."""

from __future__ import annotations

import hashlib
import os
import re
import secrets

from metastore_assets.config import HIDDEN_KEY_MIN_LENGTH, MetastoreConfig, TableConfig
from metastore_assets.errors import ConfigError, CorruptionError, ObjectExistsError, ObjectNotFoundError
from metastore_assets.store.objects import ObjectStore

KEY_VARIABLE = "METASTORE_HIDDEN_KEY"
KEY_FILE = "hidden-values.key"
"""Below the root, unless a key is configured."""
_KEY = re.compile(rb"[0-9a-f]{64}\n")


def with_hidden_key(config: MetastoreConfig, table: TableConfig, *, make: bool = False) -> TableConfig:
    """The table with the key that its hidden columns are hashed with; as it is where it has none.

    The key is `$METASTORE_HIDDEN_KEY`, else `hidden_key` of the configuration, else that in the root, which is made if
    there is none. Without `make` it is not: what is planned then is under a key that nothing was hashed with yet.

    Raises ConfigError for a key that is too short, CorruptionError for a file that holds no key, StoreError.
    """
    if not table.hides_values:
        return table
    text = os.environ.get(KEY_VARIABLE) or (config.hidden_key.get_secret_value() if config.hidden_key else None)
    if text is None:
        return table.with_hidden_key(_own_key(ObjectStore(config.root, config.storage_options), make=make))
    if len(text) < HIDDEN_KEY_MIN_LENGTH:
        raise ConfigError(
            f"{KEY_VARIABLE} has {len(text)} characters: a key has at least {HIDDEN_KEY_MIN_LENGTH}, drawn at random"
        )
    return table.with_hidden_key(hashlib.blake2b(text.encode(), digest_size=32, person=b"metastore-hidden").digest())


def _own_key(root: ObjectStore, *, make: bool) -> bytes:
    for _ in range(2):
        try:
            data = root.read(KEY_FILE)
        except ObjectNotFoundError:
            data = f"{secrets.token_hex(32)}\n".encode()
            if make:
                try:
                    root.write(KEY_FILE, data, create=True, private=True)
                except ObjectExistsError:
                    continue  # Another refresh was first.
        if not _KEY.fullmatch(data):
            break
        return bytes.fromhex(data.decode())
    raise CorruptionError(
        f"{root.uri(KEY_FILE)} holds no key: bring the former file back, or remove it, and the next refresh makes "
        "another one and reads all columns whose values are hidden again"
    )
