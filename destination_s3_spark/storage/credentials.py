"""Sources of credentials: access keys of the configuration, else an assumed role, else AWS's default chain.

An assumed role is refreshed before it expires, so that a sync may last longer than the role's session. Its base credentials come from the
default chain. The chain's first source is AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, as in Airbyte's S3 destination.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

from destination_s3_spark.storage.ca_bundle import ca_bundle, certificates
from destination_s3_spark.storage.failures import explain
from destination_s3_spark.storage.patience import Patience
from destination_s3_spark.storage.settings import AccessKey, S3Settings

ROLE_SESSION_NAME = "airbyte-sts-session"
EXTERNAL_ID_VARIABLE = "AWS_ASSUME_ROLE_EXTERNAL_ID"
METADATA_ATTEMPTS_VARIABLE = "AWS_METADATA_SERVICE_NUM_ATTEMPTS"


def session(settings: S3Settings) -> boto3.Session:
    core, region = _core(settings), settings.region or None
    keys = settings.credentials
    if keys is not None:
        return boto3.Session(keys.access_key_id, keys.secret_access_key, keys.session_token, region, core)
    if settings.role_arn:
        resolver = core.get_component("credential_provider")
        # The role precedes the environment: the environment's keys are the base of the role, not the identity to write with.
        resolver.insert_before("env", _AssumedRole(settings.role_arn, settings))
    return boto3.Session(botocore_session=core, region_name=region)


def _core(settings: S3Settings) -> botocore.session.Session:
    """Return a botocore session whose clients all trust the authorities of the settings, also those that fetch credentials."""
    core = botocore.session.Session()
    if METADATA_ATTEMPTS_VARIABLE not in os.environ:
        core.set_config_variable("metadata_service_num_attempts", 3)  # one lost answer would look like a machine without credentials
    authorities = ca_bundle(settings)
    if authorities is not None:
        core.set_config_variable("ca_bundle", authorities)
    return core


def forwardable(settings: S3Settings) -> S3Settings:
    """Return the settings with resolved credentials, for tasks that cannot resolve them themselves.

    Credentials of an assumed role expire, so call this for each job. Raises ConfigError if there are no credentials.
    """
    if settings.credentials is not None:
        return settings
    try:
        credentials = session(settings).get_credentials()
        if credentials is None:
            raise NoCredentialsError
        frozen = credentials.get_frozen_credentials()
    except (BotoCoreError, ClientError) as error:
        raise explain(error, "Getting AWS credentials", settings) from error
    keys = AccessKey(str(frozen.access_key), str(frozen.secret_key), frozen.token)
    return replace(settings, credentials=keys, role_arn=None)


def for_executors(settings: S3Settings, *, forward: bool) -> S3Settings:
    """Return the settings for tasks on a cluster, which trust the authorities that the driver trusts.

    `forward`: with the driver's credentials, which may expire: call this for each job. Raises like `forwardable`. Without it, executors use
    AWS's default chain on their machines, and credentials of the configuration never leave the driver.
    """
    settings = replace(settings, ca_certificate=certificates(settings))
    return forwardable(settings) if forward else replace(settings, credentials=None, role_arn=None)


class _AssumedRole(CredentialProvider):
    """STS AssumeRole as a provider in botocore's credential chain."""

    METHOD = "assume-role"
    CANONICAL_NAME = None

    def __init__(self, role_arn: str, settings: S3Settings) -> None:
        super().__init__()
        self._role_arn = role_arn
        self._settings = settings

    def load(self) -> DeferredRefreshableCredentials:
        base = _core(self._settings)
        source = base.get_credentials()
        if source is None:
            raise NoCredentialsError
        external_id = os.environ.get(EXTERNAL_ID_VARIABLE)
        arguments = {"RoleSessionName": ROLE_SESSION_NAME} | ({"ExternalId": external_id} if external_id else {})
        fetcher = AssumeRoleCredentialFetcher(partial(self._client, base), source, self._role_arn, arguments)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, self.METHOD)

    def _client(self, base: botocore.session.Session, service: str, **kwargs: Any) -> Any:
        limits = self._settings.limits
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=limits.connect_timeout_s,
            read_timeout=limits.read_timeout_s,
        )
        region = self._settings.region or base.get_config_variable("region") or "us-east-1"
        client = base.create_client(service, config=config, region_name=region, **kwargs)
        Patience(limits).install(client)
        return client


def arrow_filesystem(settings: S3Settings) -> S3FileSystem:
    """Return a file system over the whole store, with paths `bucket/key`.

    It uses the same credentials as `credentials.session`, and its pickled form contains the access keys.
    """
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415 (slow, and only programs that read tables need it)

    options: dict[str, Any] = {}
    if settings.endpoint:
        endpoint = urlsplit(settings.endpoint)
        options |= {"scheme": endpoint.scheme, "endpoint_override": endpoint.netloc + endpoint.path.rstrip("/")}
        options["force_virtual_addressing"] = settings.is_virtual
    if settings.signing_region:
        options["region"] = settings.signing_region
    if authorities := ca_bundle(settings):
        options["tls_ca_file_path"] = authorities
    if (keys := settings.credentials) is not None:
        options |= {"access_key": keys.access_key_id, "secret_key": keys.secret_access_key, "session_token": keys.session_token}
    elif settings.role_arn:
        options |= {"role_arn": settings.role_arn, "session_name": ROLE_SESSION_NAME, "external_id": os.environ.get(EXTERNAL_ID_VARIABLE)}
    return S3FileSystem(**options)
