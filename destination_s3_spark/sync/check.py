"""Connection check: every S3 action that a sync needs, once, under the prefix that it will use; and a task on a Spark cluster.

With Spark in the connector it starts no JVM.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from destination_s3_spark.chain.files import generation_metadata
from destination_s3_spark.config.config import Config
from destination_s3_spark.config.spark_conf import is_local
from destination_s3_spark.engine.engine import Engine
from destination_s3_spark.engine.manager import Trial
from destination_s3_spark.engine.session import manager_of
from destination_s3_spark.errors import Bug, ConfigError, SyncError, TransientError
from destination_s3_spark.storage.configured import s3_settings
from destination_s3_spark.storage.object_store import ObjectExists, ObjectNotFound, ObjectStore, OutcomeUnknown, StagedUpload, UploadFailed
from destination_s3_spark.storage.old_versions import delete_versions, old_versions
from destination_s3_spark.storage.paths import PathTemplate
from destination_s3_spark.storage.probes import UploadProbe, try_upload
from destination_s3_spark.storage.s3 import S3Store
from destination_s3_spark.storage.settings import ClientLimits, S3Settings
from destination_s3_spark.storage.staging import StagedFileSink
from destination_s3_spark.storage.table_paths import INTERNAL_FOLDER
from destination_s3_spark.sync.runtime import engine_of, spark_settings
from destination_s3_spark.sync.scratch import scratch_directory

CHECK_LIMITS = ClientLimits(attempts=2, connect_timeout_s=5, read_timeout_s=15)
"""Client limits of the check. A user is waiting for the answer, so the check gives up sooner than a sync."""
START_LIMIT_S = 120.0
MANAGED_START_LIMIT_S = 300.0
"""Time limit for executors of Kubernetes and YARN, which may have to start machines, and pull an image or unpack an archive there."""
TASK_LIMIT_S = 90.0
"""Time limit of the task, longer than its calls may take together."""

logger = logging.getLogger("airbyte")

_BODY = b"written by the connection check of destination-s3-spark; safe to delete\n"
_CREATED = 8
"""Number of objects that are created twice."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the check. `action`: the permission or ability it needs, for a person. `after`: the steps that must have succeeded."""

    name: str
    action: str
    run: Callable[[], None]
    after: tuple[str, ...] = ()


def check(settings: S3Settings, template: PathTemplate) -> None:
    """Check that a sync can use the bucket.

    Objects are written under a unique name in `<bucket path>/airbyte_internal/check/` and removed afterwards. Raises ConfigError, which
    says what to change, or TransientError if the store did not answer.
    """
    with checking(settings, template) as steps:
        for step in steps:
            step.run()


def check_forget(settings: S3Settings, template: PathTemplate) -> None:
    """Check that `forget` can delete an object for good, with all its versions. Raises as `check`."""
    store = S3Store(settings)
    prefix = f"{template.base}{INTERNAL_FOLDER}/check/{uuid4().hex}/"
    key = f"{prefix}forgotten"
    with _removed_afterwards(store, prefix):
        for _ in range(2):
            store.put(key, _BODY)
        store.delete([key])
        delete_versions(store, old_versions(store, [prefix]))
        left = old_versions(store, [prefix])
    if left.versions or left.markers:
        raise ConfigError(
            f"'{key}' still has old versions after they were deleted, so rows cannot be forgotten. Remove the bucket's default retention "
            "(Object Lock) and MFA delete for this bucket path."
        )


@contextmanager
def checking(settings: S3Settings, template: PathTemplate) -> Iterator[Sequence[Step]]:
    """Provide the steps of the check in their order. What they wrote is removed at the end. Raises ConfigError as they do."""
    store = S3Store(settings)
    prefix = f"{template.base}{INTERNAL_FOLDER}/check/{uuid4().hex}/"
    with _removed_afterwards(store, prefix):
        yield _Probe(store, prefix).steps()


@dataclass(slots=True)
class _Probe:
    """The calls of a check, on objects below its prefix."""

    store: S3Store
    prefix: str
    upload: StagedUpload | None = None
    copied: StagedUpload | None = None

    @property
    def key(self) -> str:
        return f"{self.prefix}object"

    def steps(self) -> Sequence[Step]:
        return (
            Step("write", "write objects (s3:PutObject)", self._write),
            Step("read", "read objects (s3:GetObject)", self._read, ("write",)),
            Step("list", "list objects (s3:ListBucket)", self._list, ("write",)),
            Step("delete", "delete objects (s3:DeleteObject)", self._delete, ("write",)),
            Step("condition", "conditional writes (If-None-Match)", self._conditional_create, ("write",)),
            Step("upload", "multipart uploads (s3:PutObject)", self._stage),
            Step("uploads", "list uploads (s3:ListBucketMultipartUploads)", self._list_uploads, ("upload",)),
            Step("complete", "complete uploads (s3:PutObject)", self._complete, ("upload",)),
            Step("copy", "copy objects (s3:PutObject, s3:GetObject)", self._copy, ("complete",)),
            Step("abort", "abort uploads (s3:AbortMultipartUpload)", self._abort, ("copy",)),
        )

    def _write(self) -> None:
        self.store.put(self.key, _BODY, generation_metadata(0))

    def _read(self) -> None:
        try:
            if self.store.get(self.key) != _BODY:
                raise ConfigError(
                    f"The store returned other bytes for '{self.key}' than were written. Check s3_endpoint and any proxy in front of it."
                )
        except ObjectNotFound as error:
            raise _inconsistent(self.key) from error
        if self.store.head(self.key) is None:
            raise _inconsistent(self.key)

    def _list(self) -> None:
        if self.key not in {found.key for found in self.store.list(self.prefix)}:
            raise _inconsistent(self.key)

    def _delete(self) -> None:
        self.store.delete([self.key])
        if self.store.head(self.key) is not None:
            raise ConfigError(
                f"'{self.key}' is still there after it was deleted. Tables cannot be merged or replaced in a bucket that keeps objects."
            )

    def _conditional_create(self) -> None:
        """Create objects twice. The store must reject each second one, or two syncs could overwrite each other's commits.

        MinIO may put a second object into another of its server pools, where it finds none of that key: one key alone proves little.
        """
        keys = [f"{self.prefix}created-{number}" for number in range(_CREATED)]
        try:
            for key in keys:
                # If the first create finds the object, its answer was lost and the client sent it again.
                with _known_outcome(), suppress(ObjectExists):
                    self.store.create(key, _BODY)
            overwritten = [key for key in keys if self._creates_again(key)]
        except ConfigError as error:
            # The plain PutObject before this one succeeded, so the store rejects the condition.
            raise _unfenced(error.message) from error
        if overwritten:
            raise _unfenced(f"The store ignored 'If-None-Match: *' and overwrote '{overwritten[0]}'.")

    def _creates_again(self, key: str) -> bool:
        try:
            with _known_outcome():
                self.store.create(key, _BODY)
        except ObjectExists:
            return False
        return True

    def _stage(self) -> None:
        """Begin an upload and send a part. Nothing of it may be visible."""
        key = f"{self.prefix}uploaded"
        with StagedFileSink(self.store.settings, key) as sink:
            sink.write(_BODY)
            self.upload = sink.stage()
        if self.store.head(key) is not None:
            raise ConfigError(f"'{key}' is visible before its multipart upload was completed; this store cannot hold tables.")

    def _list_uploads(self) -> None:
        upload = self._staged(self.upload)
        # MinIO lists the uploads of one key alone. It removes what killed syncs leave by itself, after a day.
        found = (one for prefix in (self.prefix, upload.key) for one in self.store.list_uploads(prefix))
        if (upload.key, upload.upload_id) not in found:
            raise _inconsistent(f"{upload.key} (multipart upload)")

    def _complete(self) -> None:
        upload = self._staged(self.upload)
        with _known_outcome():
            self.store.complete_upload(upload)
        info = self.store.head(upload.key)
        if info is None or info.size != len(_BODY):
            raise _inconsistent(upload.key)

    def _copy(self) -> None:
        self.copied = self.store.stage_copy(self._staged(self.upload).key, f"{self.prefix}copied")

    def _abort(self) -> None:
        copied = self._staged(self.copied)
        self.store.abort_upload(copied.key, copied.upload_id)

    def _staged(self, upload: StagedUpload | None) -> StagedUpload:
        if upload is None:
            raise Bug("A step of the check ran before the one that it needs.")
        return upload


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
        "Use a store that does (old releases of Ceph only in a bucket without versioning, MinIO only with one server pool), or set "
        "s3.single_writer to true: then you make sure that only one sync at a time writes to this bucket path, and nothing stops a "
        "second one."
    )


def _inconsistent(what: str) -> ConfigError:
    return ConfigError(f"The store does not show '{what}' right after it was written. A strongly consistent S3 service is needed.")


def check_cluster(config: Config, template: PathTemplate) -> None:
    """Check that tasks can run on the configured cluster. Return at once for local Spark.

    Raises ConfigError, which says what to change, or TransientError for a cluster without a free executor.
    """
    for trial in cluster_trials(config, template):
        trial.run()


def cluster_trials(config: Config, template: PathTemplate) -> Sequence[Trial]:
    """Return what must work for tasks to run on the configured cluster, each after the one before. Local Spark needs nothing.

    Log a warning if executors cannot be tried here.
    """
    master = config.spark.master
    if is_local(master):
        return ()
    start_limit_s = START_LIMIT_S if master.startswith("spark://") else MANAGED_START_LIMIT_S
    settings = spark_settings(config, Path(tempfile.gettempdir()), start_limit_s)
    assert settings.cluster is not None  # noqa: S101 (the master is a cluster)
    manager = manager_of(settings.cluster, settings.conf, settings.local_dir)
    if untried := manager.untried():
        logger.warning(untried)
        return manager.trials()
    return (*manager.trials(), Trial("task on an executor", lambda: _try_session(config, template, start_limit_s)))


def _try_session(config: Config, template: PathTemplate, start_limit_s: float) -> None:
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(config))
        engine = engine_of(config, scratch, start_limit_s)
        stack.callback(engine.stop)
        key = f"{template.base}{INTERNAL_FOLDER}/check/{uuid4().hex}/executor"
        pool = ThreadPoolExecutor(1, "check")
        running = pool.submit(_upload, engine, UploadProbe(key, s3_settings(config, CHECK_LIMITS)), config)
        pool.shutdown(wait=False)
        try:
            running.result(start_limit_s + TASK_LIMIT_S)
        except FutureTimeout:
            raise TransientError(
                f"An executor of {config.spark.master} did not finish a small task within {TASK_LIMIT_S:.0f} seconds. Can it reach S3?"
            ) from None


def _upload(engine: Engine, probe: UploadProbe, config: Config) -> None:
    _ = engine.cores  # waits for the session first, because its errors are not about S3
    try:
        engine.run(try_upload, [[probe]])
    except SyncError as error:
        raise type(error)(f"{error.message} This happened on {config.spark.master}, {_credentials(config)}.") from error


def _credentials(config: Config) -> str:
    if config.spark.executor_credentials == "own":
        return "whose executors use AWS credentials of their own (spark.executor_credentials)"
    return "with the credentials of this connector (spark.executor_credentials)"
