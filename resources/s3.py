"""S3 access from dagster-aws's resource, for the root and the tables of a configuration."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dagster import DagsterError

from metastore_assets.config import CatalogConfig, MetastoreConfig, SharedTableConfigT
from metastore_assets.errors import ConfigError
from metastore_assets.messages import remember_secret

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

_S3 = ("s3://", "s3a://", "s3n://")
_OF_CATALOGS = {
    "aws_access_key_id": "access-key-id",
    "aws_secret_access_key": "secret-access-key",
    "aws_session_token": "session-token",
    "aws_region": "region",
    "aws_endpoint": "endpoint",
}
"""The names that pyiceberg uses for these options after `s3.` and `glue.`."""
_IDENTITY = {"access_key_id", "secret_access_key", "session_token", "token", "skip_signature"}
_PLAIN_NAMES = {"endpoint_url": "endpoint", "default_region": "region"}


def with_credentials(config: MetastoreConfig, s3: "S3Resource | None") -> MetastoreConfig:
    """Return the resolved configuration with the resource's S3 access for its root, tables and catalogs.

    Settings of the configuration and credentials that a catalog vends have priority.
    """
    if s3 is None:
        return config
    options = s3_options(s3)
    root = _merged(options, config.storage_options) if config.root.startswith(_S3) else config.storage_options
    tables = [_with_access(table, options) for table in config.tables]
    databases = [_with_access(database, options) for database in config.databases]
    return config.model_copy(update={"storage_options": root, "tables": tables, "databases": databases})


def s3_options(s3: "S3Resource") -> dict[str, str]:
    """Return the storage options of the resource, with `EnvVar`s and profiles resolved now.

    Options that the resource leaves empty come from the environment. Raise ConfigError if a variable or profile is
    missing.
    """
    try:
        found = s3.process_config_and_initialize()
    except DagsterError as error:
        missing = re.findall(r'environment variable "([^"]+)"', str(error))
        told = f"the environment has no variable {', '.join(dict.fromkeys(missing))}" if missing else _first_line(error)
        raise ConfigError(f"the S3 resource cannot be configured: {told}") from None
    options = {
        "aws_access_key_id": found.aws_access_key_id,
        "aws_secret_access_key": found.aws_secret_access_key,
        "aws_session_token": found.aws_session_token,
        "aws_region": found.region_name,
        "aws_endpoint": found.endpoint_url,
    }
    if found.profile_name and not found.aws_access_key_id:
        options.update(_of_profile(found.profile_name, found.region_name))
    if found.use_unsigned_session:
        options["aws_skip_signature"] = "true"
    if (found.endpoint_url or "").startswith("http://") or not found.use_ssl:
        options["aws_allow_http"] = "true"
    if found.verify is False:
        options["aws_allow_invalid_certificates"] = "true"
    options_with_values = {name: value for name, value in options.items() if value}
    for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"):
        remember_secret(options_with_values.get(name, ""), f"({name} of the S3 resource)")
    return options_with_values


def _of_profile(name: str, region: str | None) -> dict[str, str | None]:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session(profile_name=name)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise ConfigError(f"the profile {name!r} of the S3 resource: {_first_line(error)}") from None
    if credentials is None:
        raise ConfigError(f"the profile {name!r} of the S3 resource has no credentials")
    frozen = credentials.get_frozen_credentials()
    return {
        "aws_access_key_id": frozen.access_key,
        "aws_secret_access_key": frozen.secret_key,
        "aws_session_token": frozen.token,
        "aws_region": region or session.region_name,
    }


def _with_access(table: SharedTableConfigT, options: Mapping[str, str]) -> SharedTableConfigT:
    catalog = getattr(table, "catalog", None)
    if isinstance(catalog, CatalogConfig):
        return table.model_copy(update={"catalog": catalog.model_copy(update=_of_catalog(catalog, options))})
    if getattr(table, "uri", "").startswith(_S3):
        return table.model_copy(update={"storage_options": _merged(options, table.storage_options)})
    return table


_IDENTITY_SUFFIXES = ("access-key-id", "secret-access-key", "session-token", "profile-name")


def _of_catalog(catalog: CatalogConfig, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options as catalog properties: for its files, and for the requests of a Glue catalog."""
    found: dict[str, str] = {}
    for prefix, others in (("s3.", ("client.",)), *((("glue.", ("client.",)),) if catalog.type == "glue" else ())):
        named_options = [name for name in catalog.properties if name.startswith((prefix, *others))]
        if any(
            name.endswith(("access-key-id", "secret-access-key", "session-token", "profile-name"))
            for name in named_options
        ):
            continue
        configured = {f"{prefix}{name}": options[ours] for ours, name in _OF_CATALOGS.items() if ours in options}
        # The endpoint is that of S3.
        configured.pop("glue.endpoint", None)
        found |= {name: value for name, value in configured.items() if name not in catalog.properties}
    return found


def _merged(options: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Return `configured` with the options that it does not set in any spelling.

    All parts of an identity come from the same side.
    """
    named_options = {_plain(name) for name in configured}
    if named_options & _IDENTITY:
        named_options |= _IDENTITY
    return {**{name: value for name, value in options.items() if _plain(name) not in named_options}, **configured}


def _plain(name: str) -> str:
    bare = re.sub(r"^aws_", "", name.lower())
    return _PLAIN_NAMES.get(bare, bare)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
