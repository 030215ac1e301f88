from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from destination_s3_spark.config.config import Config
from destination_s3_spark.engine import session
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.storage.settings import AccessKey, S3Settings
from destination_s3_spark.sync import runtime
from destination_s3_spark.sync.runtime import landing_cores, spark_settings, with_credentials
from destination_s3_spark.tables.updates.resources import TaskResources

PLACE = S3Settings("lake", "eu-central-1", "http://127.0.0.1:9000", expected_bucket_owner="111122223333")
KEYED = replace(PLACE, credentials=AccessKey("id", "secret"))
BY_ROLE = replace(PLACE, role_arn="arn:aws:iam::111122223333:role/lake")


@dataclass(frozen=True, slots=True)
class Task:
    number: int
    s3: S3Settings


@dataclass(frozen=True)
class MergeTask:
    resources: TaskResources


@pytest.fixture(autouse=True)
def _usual_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks carry the authorities that the environment names."""
    for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("master", "gib", "tasks"),
    [
        ("local[*]", 4, 13),
        ("local[*]", 2, 5),
        ("local[*]", 0.5, 1),
        ("local[*]", 64, 96),
        ("local[32]", 2, 32),
        ("spark://host:7077", 4, 13),
    ],
)
def test_there_are_as_many_tasks_at_once_as_memory_is_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, gib: float, tasks: int
) -> None:
    monkeypatch.setattr(session, "available_cpus", lambda: 96)
    monkeypatch.setattr(runtime, "container_memory_bytes", lambda: int(gib * 2**30))
    place = {"s3_bucket_name": "lake", "s3_bucket_path": "p", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    config = Config.parse({**place, "spark": {"master": master}})
    assert landing_cores(config) == tasks
    assert spark_settings(config, tmp_path).cores == (tasks if master.startswith("local") else 0)


def test_sparks_processes_show_no_secret_of_the_configuration(tmp_path: Path) -> None:
    place = {"s3_bucket_name": "lake", "s3_bucket_path": "p", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    keys = {"access_key_id": "the-id", "secret_access_key": "the-key"}
    iceberg = {"type": "sql", "database_uri": "postgresql+psycopg2://u:p@h/d"}
    settings = spark_settings(Config.parse({**place, **keys, "publish": {"iceberg": iceberg}}), tmp_path)

    assert settings.secrets == {"the-id", "the-key", iceberg["database_uri"]}
    assert "the-key" not in repr(settings)


@pytest.mark.parametrize("settings", [PLACE, KEYED, BY_ROLE])
def test_executors_with_credentials_of_their_own_learn_nothing_of_ours(settings: S3Settings) -> None:
    groups = with_credentials([[Task(1, settings)], [Task(2, settings), Task(3, PLACE)]], forward=False)

    assert groups == [[Task(1, PLACE)], [Task(2, PLACE), Task(3, PLACE)]]
    assert with_credentials([[MergeTask(TaskResources(settings, 5))]], forward=False) == [[MergeTask(TaskResources(PLACE, 5))]]
    assert "secret" not in str([task.s3.credentials for group in groups for task in group])


def test_forwarded_credentials_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    task = Task(1, PLACE)

    assert with_credentials([[task]], forward=True) == [[Task(1, replace(PLACE, credentials=AccessKey("first", "secret")))]]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert with_credentials([[task]], forward=True) == [[Task(1, replace(PLACE, credentials=AccessKey("second", "secret")))]]
    assert with_credentials([[Task(1, KEYED)]], forward=True) == [[Task(1, KEYED)]]


@pytest.mark.parametrize(
    ("spark", "problem"),
    [
        ({"master": "spark://host.example:7077,169.254.169.254:80"}, r"spark\.master '169\.254\.169\.254' leads to 169\.254\.169\.254"),
        ({"master": "k8s://http://169.254.169.254:80"}, r"spark\.master 'http://169\.254\.169\.254:80' leads to"),
        ({"master": "k8s://169.254.169.254"}, r"spark\.master 'https://169\.254\.169\.254' leads to"),
        ({"master": "k8s://https://u:p@localhost"}, r"spark\.master must not contain a user name or password"),
        (
            {"master": "yarn", "conf": {"spark.hadoop.fs.defaultFS": "hdfs://169.254.169.254:80"}},
            r"spark\.hadoop\.fs\.defaultFS in spark\.conf",
        ),
        ({"master": "yarn", "conf": {"spark.hadoop.yarn.resourcemanager.address": "169.254.169.254:80"}}, "leads to 169"),
    ],
)
def test_a_cluster_at_an_address_of_the_host_itself_is_refused(spark: dict[str, object], problem: str, tmp_path: Path) -> None:
    needed = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    with pytest.raises(ConfigError, match=problem):
        spark_settings(Config.parse({**needed, "spark": spark}), tmp_path)
