"""Settings for access to S3, copied from the S3 resource of dagster-aws into a configuration.

They apply to the configuration's root (the folder with all stored state), tables, databases and catalogs.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dagster import DagsterError

from metastore_assets.config import CatalogConfig, MetastoreConfig, SharedTableConfigT
from metastore_assets.errors import ConfigError
from metastore_assets.messages import remember_secret
from metastore_assets.storage.object_store import IDENTITY_OPTIONS

if TYPE_CHECKING:
    from dagster_aws.s3 import S3Resource

_S3 = ("s3://", "s3a://", "s3n://")
_CATALOG_NAMES = {
    "aws_access_key_id": "access-key-id",
    "aws_secret_access_key": "secret-access-key",
    "aws_session_token": "session-token",
    "aws_region": "region",
    "aws_endpoint": "endpoint",
}
"""The name of each storage option as a property of a catalog, without the prefix `s3.` or `glue.`."""
_SYNONYMS = {"endpoint_url": "endpoint", "default_region": "region"}


def with_credentials(config: MetastoreConfig, s3: "S3Resource | None") -> MetastoreConfig:
    """Return a copy of a configuration that uses the S3 settings of a resource.

    They apply to the root, tables, databases and catalogs. Settings that the configuration already has, such as
    credentials of a catalog, have priority.

    Args:
        config: The configuration with the values of its variables.
        s3: The resource; None to return the configuration unchanged.
    """
    if s3 is None:
        return config
    options = s3_options(s3)
    root = _merge_options(options, config.storage_options) if config.root.startswith(_S3) else config.storage_options
    tables = [_with_access(table, options) for table in config.tables]
    databases = [_with_access(database, options) for database in config.databases]
    return config.model_copy(update={"storage_options": root, "tables": tables, "databases": databases})


def s3_options(s3: "S3Resource") -> dict[str, str]:
    """Return the settings of a resource as storage options such as `aws_region`.

    Unset ones are left out.

    Each `EnvVar` is replaced by its value. If the resource names an AWS profile and no access key, the credentials of
    the profile are used, and its region unless the resource has one. Credentials are registered as secrets, to keep
    them out of messages.

    Raises ConfigError if a variable or the profile is missing.
    """
    try:
        resource = s3.process_config_and_initialize()
    except DagsterError as error:
        missing_names = re.findall(r'environment variable "([^"]+)"', str(error))
        names = ", ".join(dict.fromkeys(missing_names))
        reason = f"the environment has no variable {names}" if missing_names else _first_line(error)
        raise ConfigError(f"the S3 resource cannot be configured: {reason}") from None
    options = {
        "aws_access_key_id": resource.aws_access_key_id,
        "aws_secret_access_key": resource.aws_secret_access_key,
        "aws_session_token": resource.aws_session_token,
        "aws_region": resource.region_name,
        "aws_endpoint": resource.endpoint_url,
    }
    if resource.profile_name and not resource.aws_access_key_id:
        options.update(_profile_options(resource.profile_name, resource.region_name))
    if resource.use_unsigned_session:
        options["aws_skip_signature"] = "true"
    if (resource.endpoint_url or "").startswith("http://") or not resource.use_ssl:
        options["aws_allow_http"] = "true"
    if resource.verify is False:
        options["aws_allow_invalid_certificates"] = "true"
    options_with_values = {name: value for name, value in options.items() if value}
    for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"):
        remember_secret(options_with_values.get(name, ""), f"({name} of the S3 resource)")
    return options_with_values


def _profile_options(name: str, region: str | None) -> dict[str, str | None]:
    """Return credentials and region of an AWS profile as storage options, such as `aws_region`.

    `aws_session_token` is None for permanent credentials. `aws_region` is None if neither `region` nor the profile has
    a region.

    Raises ConfigError if the profile does not exist or has no credentials.

    Args:
        name: The name of the profile.
        region: The region to use instead of the profile's; None for the profile's.
    """
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session(profile_name=name)
        credentials = session.get_credentials()
    except BotoCoreError as error:
        raise ConfigError(f"the profile {name!r} of the S3 resource: {_first_line(error)}") from None
    if credentials is None:
        raise ConfigError(
            f"the profile {name!r} of the S3 resource has no credentials: add them to the profile, or set "
            "`aws_access_key_id` and `aws_secret_access_key` of the resource"
        )
    frozen_credentials = credentials.get_frozen_credentials()
    return {
        "aws_access_key_id": frozen_credentials.access_key,
        "aws_secret_access_key": frozen_credentials.secret_key,
        "aws_session_token": frozen_credentials.token,
        "aws_region": region or session.region_name,
    }


def _with_access(table: SharedTableConfigT, options: Mapping[str, str]) -> SharedTableConfigT:
    """Return a table or database with access to S3.

    If it has a catalog, the options are added to the catalog. Otherwise, if its URI is on S3, they are added to its
    storage options. Options that are already configured have priority. Anything else is returned unchanged.

    Args:
        table: The entry of the configuration for the table or database.
        options: The storage options of the S3 resource.
    """
    catalog = getattr(table, "catalog", None)
    if isinstance(catalog, CatalogConfig):
        return table.model_copy(update={"catalog": catalog.model_copy(update=_catalog_properties(catalog, options))})
    if getattr(table, "uri", "").startswith(_S3):
        return table.model_copy(update={"storage_options": _merge_options(options, table.storage_options)})
    return table


_IDENTITY_SUFFIXES = ("access-key-id", "secret-access-key", "session-token", "profile-name")


def _catalog_properties(catalog: CatalogConfig, options: Mapping[str, str]) -> dict[str, str]:
    """Convert storage options to properties of a catalog.

    They are `s3.*` for its files, and `glue.*` for requests to Glue. Properties that the catalog already has are left
    out. If the catalog has credentials with one of the prefixes, all properties with that prefix are left out.
    Credentials `client.*` of the catalog count for both prefixes.
    """
    properties: dict[str, str] = {}
    for prefix in ("s3.", "glue.") if catalog.type == "glue" else ("s3.",):
        configured_names = [name for name in catalog.properties if name.startswith((prefix, "client."))]
        if any(name.endswith(_IDENTITY_SUFFIXES) for name in configured_names):
            continue
        renamed_options = {
            f"{prefix}{name}": options[option] for option, name in _CATALOG_NAMES.items() if option in options
        }
        renamed_options.pop("glue.endpoint", None)  # The endpoint of the options is that of S3.
        properties |= {name: value for name, value in renamed_options.items() if name not in catalog.properties}
    return properties


def _merge_options(options: Mapping[str, str], configured_options: Mapping[str, str]) -> dict[str, str]:
    """Merge two mappings of storage options.

    Those in `configured_options` have priority, in any spelling of their names.

    If `configured_options` has a part of the credentials, no other part is taken from `options`.
    """
    configured_names = {_normalize_name(name) for name in configured_options}
    if configured_names & IDENTITY_OPTIONS:
        configured_names |= IDENTITY_OPTIONS
    return {
        **{name: value for name, value in options.items() if _normalize_name(name) not in configured_names},
        **configured_options,
    }


def _normalize_name(name: str) -> str:
    """Normalize the name of a storage option.

    Examples: `AWS_ENDPOINT_URL`, `aws_endpoint` and `endpoint` become `endpoint`.
    """
    without_prefix = re.sub(r"^aws_", "", name.lower())
    return _SYNONYMS.get(without_prefix, without_prefix)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
