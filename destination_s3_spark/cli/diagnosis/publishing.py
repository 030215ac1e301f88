"""Diagnosis of the catalogs in which tables are published."""

from __future__ import annotations

from collections.abc import Iterator

from destination_s3_spark.cli.diagnosis.finding import Finding, Verdict
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.settings_model import Settings
from destination_s3_spark.errors import SyncError
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.sync.check import CHECK_LIMITS
from destination_s3_spark.tables.publishers.registry import check_publishers

_PART = "publishing"


def look_at_catalogs(config: Config, template: PathTemplate) -> Iterator[Finding]:
    """Yield a finding for each catalog that is configured, such as `publish.glue`. Each is tried without the others."""
    catalogs = [name for name in type(config.publish).model_fields if isinstance(getattr(config.publish, name), Settings)]
    store = S3Store(s3_settings(config), CHECK_LIMITS)
    for name in catalogs:
        others = dict.fromkeys((other for other in catalogs if other != name), None)
        alone = config.model_copy(update={"publish": config.publish.model_copy(update=others)})
        try:
            check_publishers(alone, store, template)
        except SyncError as error:
            yield Finding(_PART, f"publish.{name}", Verdict.BAD, error.message)
        else:
            yield Finding(_PART, f"publish.{name}", Verdict.GOOD, "every call that publishing needs works")
