"""Convert storage properties of a catalog to storage options of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OPTIONS = {
    "s3.access-key-id": "aws_access_key_id",
    "s3.secret-access-key": "aws_secret_access_key",
    "s3.session-token": "aws_session_token",
    "s3.region": "aws_region",
    "s3.endpoint": "aws_endpoint",
    "adls.account-name": "azure_storage_account_name",
    "adls.account-key": "azure_storage_account_key",
    "adls.sas-token": "azure_storage_sas_key",
}
"""Storage options by pyiceberg's property names."""
_SHARED = {
    "client.access-key-id": "aws_access_key_id",
    "client.secret-access-key": "aws_secret_access_key",
    "client.session-token": "aws_session_token",
    "client.region": "aws_region",
}
"""Properties that apply to both the catalog and its tables."""


def storage_options(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the storage options of some properties. Properties for files take precedence over general ones."""
    options = {
        ours: str(properties[theirs])
        for names in (_SHARED, _OPTIONS)
        for theirs, ours in names.items()
        if properties.get(theirs)
    }
    if options.get("aws_endpoint", "").startswith("http://"):
        options["aws_allow_http"] = "true"
    return options
