"""Connection check: every S3 action that a sync needs, once, under the prefix that it will use. Starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import uuid4

from destination_s3_spark.chain.files import generation_metadata
from destination_s3_spark.errors import ConfigError, SyncError, TransientError
from destination_s3_spark.storage.object_store import ObjectExists, ObjectNotFound, ObjectStore, OutcomeUnknown, UploadFailed
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER

CHECK_LIMITS = ClientLimits(attempts=2, connect_timeout_s=5, read_timeout_s=15)
"""Client limits of the check. A user is waiting for the answer, so the check gives up sooner than a sync."""

_BODY = b"written by the connection check of destination-s3-spark; safe to delete\n"


def check(settings: S3Settings, template: PathTemplate, limits: ClientLimits = CHECK_LIMITS) -> None:
    """Check that a sync can use the bucket.

    Objects are written under a unique name in `<bucket path>/airbyte_internal/check/` and removed afterwards. Raises ConfigError, which
    says what to change, or TransientError if the store did not answer.
    """
    store = S3Store(settings, limits)
    prefix = f"{template.base}{INTERNAL_FOLDER}/check/{uuid4().hex}/"
    with _removed_afterwards(store, prefix):
        _objects(store, prefix)
        _conditional_create(store, f"{prefix}created")
        _uploads(store, settings, prefix, limits)


def _objects(store: ObjectStore, prefix: str) -> None:
    """Check PutObject, GetObject, HeadObject, ListObjectsV2 and DeleteObjects."""
    key = f"{prefix}object"
    store.put(key, _BODY, generation_metadata(0))
    try:
        if store.get(key) != _BODY:
            raise ConfigError(
                f"The store returned other bytes for '{key}' than were written. Check s3_endpoint and any proxy in front of it."
            )
    except ObjectNotFound as error:
        raise _inconsistent(key) from error
    info = store.head(key)
    if info is None or key not in {found.key for found in store.list(prefix)}:
        raise _inconsistent(key)
    store.delete([key])
    if store.head(key) is not None:
        raise ConfigError(
            f"'{key}' is still there after it was deleted. Tables cannot be merged or replaced in a bucket that keeps objects."
        )


def _conditional_create(store: ObjectStore, key: str) -> None:
    """Check PutObject with If-None-Match. The store must reject the second one, or two syncs could overwrite each other's commits."""
    try:
        # If the first create finds the object, its answer was lost and the client sent it again.
        with _known_outcome(), suppress(ObjectExists):
            store.create(key, _BODY)
        with _known_outcome():
            store.create(key, _BODY)
    except ObjectExists:
        return
    except ConfigError as error:
        # The plain PutObject before this one succeeded, so the store rejects the condition.
        raise _unfenced(error.message) from error
    raise _unfenced(f"The store ignored 'If-None-Match: *' and overwrote '{key}'.")


def _uploads(store: ObjectStore, settings: S3Settings, prefix: str, limits: ClientLimits) -> None:
    """Check CreateMultipartUpload, UploadPart, ListMultipartUploads, CompleteMultipartUpload, UploadPartCopy and AbortMultipartUpload."""
    key, copy = f"{prefix}uploaded", f"{prefix}copied"
    with StagedFileSink(settings, key, limits=limits) as sink:
        sink.write(_BODY)
        upload = sink.stage()
    if store.head(key) is not None:
        raise ConfigError(f"'{key}' is visible before its multipart upload was completed; this store cannot hold tables.")
    if (key, upload.upload_id) not in set(store.list_uploads(prefix)):
        raise _inconsistent(f"{key} (multipart upload)")
    with _known_outcome():
        store.complete_upload(upload)
    info = store.head(key)
    if info is None or info.size != len(_BODY):
        raise _inconsistent(key)
    staged_copy = store.stage_copy(key, copy)
    store.abort_upload(copy, staged_copy.upload_id)


@contextmanager
def _known_outcome() -> Iterator[None]:
    try:
        yield
    except (OutcomeUnknown, UploadFailed) as error:
        raise TransientError(f"The store did not finish a request of the connection check: {error}. Try again.") from error


@contextmanager
def _removed_afterwards(store: ObjectStore, prefix: str) -> Iterator[None]:
    """Remove everything under the prefix at the end. Suppress failures to clean up, which must not hide the check's own error."""
    try:
        yield
    finally:
        with suppress(SyncError):
            store.delete([info.key for info in store.list(prefix)])
        with suppress(SyncError):
            for key, upload_id in list(store.list_uploads(prefix)):
                store.abort_upload(key, upload_id)


def _unfenced(reason: str) -> ConfigError:
    return ConfigError(
        f"{reason} This store does not support conditional puts, so two syncs into one table could overwrite each other's data. "
        "Use a store that does, or set s3.single_writer to true: then you make sure that only one sync at a time writes to this "
        "bucket path, and nothing stops a second one."
    )


def _inconsistent(what: str) -> ConfigError:
    return ConfigError(f"The store does not show '{what}' right after it was written. A strongly consistent S3 service is needed.")
