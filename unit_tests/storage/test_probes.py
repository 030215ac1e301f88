from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.probes import UploadProbe, try_upload
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings

ONCE = ClientLimits(attempts=1, connect_timeout_s=2, read_timeout_s=5)


@pytest.fixture
def probe(s3_settings: S3Settings, s3_proxy: Any) -> UploadProbe:
    return UploadProbe("lake/check/executor", replace(s3_settings, endpoint=s3_proxy.endpoint, limits=ONCE))


def test_a_probe_uploads_a_part_and_takes_it_back(probe: UploadProbe, s3_settings: S3Settings, s3_proxy: Any) -> None:
    try_upload(probe)

    assert s3_proxy.actions() == ["CreateMultipartUpload", "UploadPart", "AbortMultipartUpload"]
    store = S3Store(s3_settings)
    assert [*store.list(""), *store.list_uploads("")] == []


@pytest.mark.parametrize(
    ("operation", "action"),
    [("CreateMultipartUpload", "s3:PutObject"), ("UploadPart", "s3:PutObject"), ("AbortMultipartUpload", "s3:AbortMultipartUpload")],
)
def test_a_missing_permission_is_named(probe: UploadProbe, s3_proxy: Any, s3_error: Any, operation: str, action: str) -> None:
    s3_proxy.fail(operation, s3_error(403, "AccessDenied"))

    with pytest.raises(ConfigError, match=action):
        try_upload(probe)
