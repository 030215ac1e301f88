"""S3 settings and path templates built from the user's configuration."""

from __future__ import annotations

from datetime import datetime

from destination_s3_spark.config.config import Config
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.settings import USUAL_LIMITS, AccessKey, ClientLimits, S3Settings
from destination_s3_spark.storage.table_paths import require_folders


def s3_settings(config: Config, limits: ClientLimits = USUAL_LIMITS) -> S3Settings:
    s3, key_id, secret = config.s3, config.access_key_id, config.secret_access_key
    return S3Settings(
        bucket=config.s3_bucket_name,
        region=config.s3_bucket_region,
        endpoint=config.s3_endpoint,
        credentials=None if key_id is None or secret is None else AccessKey(key_id.get_secret_value(), secret.get_secret_value()),
        role_arn=config.role_arn,
        endpoint_region=s3.region,
        addressing=s3.addressing,
        sse=s3.sse,
        kms_key_id=s3.kms_key_id,
        expected_bucket_owner=s3.expected_bucket_owner,
        checksums=s3.checksums,
        single_writer=s3.single_writer,
        ca_certificate=s3.ca_certificate,
        limits=limits,
    )


def path_template(config: Config, started_at: datetime, sync_id: int) -> PathTemplate:
    """Make the template of the keys of tables. Raises ConfigError for one by which no table can have its files."""
    template = PathTemplate(config.s3_bucket_path, config.s3_path_format, config.file_name_pattern, started_at, sync_id)
    require_folders(template)
    return template
