"""The `spark` part of the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from destination_s3_spark.config.config import Config, Spark
from destination_s3_spark.config.spark_conf import hosts, is_own_cluster
from destination_s3_spark.config.spark_properties import ALLOWED
from destination_s3_spark.errors import ConfigError
from unit_tests.cases import each


def parse(options: dict[str, Any]) -> Spark:
    needed = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    return Config.parse({**needed, "spark": options}).spark


def refusal(options: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(options)
    return caught.value.message


@each("master", ["local", "local[*]", "local[1]", "local[16]"])
def test_local_masters_are_accepted(master: str) -> None:
    assert parse({"master": master}).master == master


@each("master", ["spark://host:7077", "spark://one:7077,two:7077", "spark://[::1]:7077", "yarn", "k8s://https://host:443"])
def test_clusters_are_accepted_and_their_executors_have_credentials_of_their_own(master: str) -> None:
    assert parse({"master": master}).master == master
    assert parse({"master": master}).executor_credentials == "own"


@each(
    "master",
    ["mesos://host:5050", "k8s://", "spark://host", "spark://:7077", "spark://a:1,", "local[0]", "local[]", "local[2,3]", "local[*]\n"],
)
def test_other_masters_are_refused(master: str) -> None:
    assert "spark.master: must look like" in refusal({"master": master})


ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@each(
    ("master", "conf"),
    [
        ("local[*]", {}),
        ("spark://127.0.0.1:7077", {}),
        ("spark://localhost:7077,[::1]:7078", {}),
        ("spark://host:7077", ENCRYPTED),
        ("yarn", ENCRYPTED),
    ],
)
def test_credentials_are_forwarded_where_nobody_else_can_read_them(master: str, conf: dict[str, str]) -> None:
    chosen = parse({"master": master, "conf": conf, "executor_credentials": "forward"})
    assert chosen.executor_credentials == "forward"


@each(
    ("master", "conf"),
    [
        ("spark://host:7077", {}),
        ("spark://localhost:7077,host:7077", {}),
        ("spark://localhost.example.com:7077", {}),
        ("spark://host:7077", {"spark.authenticate": "true"}),
        ("spark://host:7077", {"spark.network.crypto.enabled": "true"}),
        ("spark://host:7077", {**ENCRYPTED, "spark.authenticate": "false"}),
        ("yarn", {}),
        ("k8s://https://127.0.0.1:443", {}),
    ],
)
def test_credentials_are_not_forwarded_over_an_open_network(master: str, conf: dict[str, str]) -> None:
    message = refusal({"master": master, "conf": conf, "executor_credentials": "forward"})

    assert "spark.executor_credentials: forward would send credentials over the network in the open" in message


def test_the_interpreter_of_executors_is_the_users_on_a_cluster_alone() -> None:
    conf = {"spark.pyspark.python": "/opt/python/bin/python3.11"}

    assert parse({"master": "spark://host:7077", "conf": conf}).conf == conf
    assert "`spark.pyspark.python` is refused" in refusal({"conf": conf})
    assert "`spark.pyspark.driver.python` is refused" in refusal(
        {"master": "spark://host:7077", "conf": {"spark.pyspark.driver.python": "python3"}}
    )


@each("memory", ["1", "1gb", "0m", "-1g", "1 g"])
def test_memory_that_spark_would_misread_is_refused(memory: str) -> None:
    assert "spark.driver_memory: must look like 512m or 1g" in refusal({"driver_memory": memory})


def test_memory_with_which_spark_does_not_start_is_refused() -> None:
    for memory in ("1m", "452m"):
        assert "spark.driver_memory: must be at least 453m, because Spark does not start with less" in refusal({"driver_memory": memory})
    for memory in ("453m", "1g"):
        assert parse({"driver_memory": memory}).driver_memory == memory


@each(
    "key",
    [
        "spark.master",
        "spark.driver.memory",
        "spark.submit.pyFiles",
        "spark.submit.deployMode",
        "spark.remote",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.ivySettings",
        "spark.files",
        "spark.archives",
        "spark.plugins",
        "spark.extraListeners",
        "spark.sql.extensions",
        "spark.driver.extraJavaOptions",
        "spark.executor.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.executor.userClassPathFirst",
        "spark.driver.extraLibraryPath",
        "spark.driver.resource.gpu.discoveryScript",
        "spark.eventLog.enabled",
        "spark.eventLog.dir",
        "spark.metrics.conf",
        "spark.metrics.conf.*.sink.csv.class",
        "spark.pyspark.python",
        "spark.pyspark.driver.python",
        "spark.python.worker.module",
        "spark.authenticate.secret",
        "spark.speculation",
        "spark.speculation.quantile",
        "spark.executorEnv.PYTHONPATH",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.hadoop.security.group.mapping",
        "spark.repl.class.uri",
        "spark.r.command",
        "spark.redaction.regex",
        "spark.redaction.string.regex",
        "spark.log.level",
        "spark.logConf",
        "spark.executor.plugins",
        "spark.executor.uri",
        "spark.driver.libraryPath",
        "spark.driver.log.dfsDir",
        "spark.serializer",
        "spark.closure.serializer",
        "spark.kryo.registrator",
        "spark.io.compression.codec",
        "spark.io.encryption.commons.config.lib.path",
        "spark.network.crypto.config.lib.path",
        "spark.shuffle.manager",
        "spark.shuffle.sort.io.plugin.class",
        "spark.storage.replication.policy",
        "spark.storage.decommission.fallbackStorage.path",
        "spark.scheduler.allocation.file",
        "spark.resources.discoveryPlugin",
        "spark.ui.filters",
        "spark.user.groups.mapping",
        "spark.python.use.daemon",
        "spark.python.profile.dump",
        "spark.kubernetes.executor.pod.featureSteps",
        "spark.kubernetes.driver.pod.excludedFeatureSteps",
        "spark.kubernetes.allocation.pods.allocator",
        "spark.kubernetes.decommission.script",
        "spark.kubernetes.file.upload.path",
        "spark.kubernetes.authenticate.submission.oauthToken",
        "spark.kubernetes.authenticate.oauthToken",
        "spark.kubernetes.authenticate.oauthTokenFile",
        "spark.kubernetes.authenticate.caCertFile",
        "spark.kubernetes.authenticate.clientKeyFile",
        "spark.kubernetes.executor.podTemplateFile",
        "spark.kubernetes.executor.volumes.hostPath.disk.mount.path",
        "spark.kubernetes.context",
        "spark.kubernetes.submitInDriver",
        "spark.kubernetes.trust.certificates",
        "spark.authenticate.secret.file",
        "spark.authenticate.secret.driver.file",
        "spark.kerberos.keytab",
        "spark.kerberos.access.hadoopFileSystems",
        "spark.hadoop.yarn.resourcemanager.keytab",
        "spark.hadoop.yarn.resourcemanager.webapp.spnego-keytab-file",
        "spark.ssl.rpc.trustStore",
        "spark.ssl.keyStore",
        "spark.yarn.jars",
        "spark.yarn.dist.files",
        "spark.yarn.appMasterEnv.PYTHONPATH",
        "spark.yarn.populateHadoopClasspath",
        "spark.local.dir",
        "spark.dynamicAllocation.testing",
        "spark.cleaner.referenceTracking.cleanCheckpoints",
        "spark.kubernetes.executor.disableConfigMap",
        "spark.network.crypto.cipher",
        "spark.hadoop.yarn.resourcemanager.configuration.provider-class",
        "spark.nothing.of.ours",
        "hadoop.fs.something",
        "master",
    ],
)
def test_spark_properties_that_bring_code_or_leak_are_refused_by_name(key: str) -> None:
    assert f"spark.conf: `{key}`" in refusal({"conf": {"spark.task.cpus": "1", key: "x"}})


@each("key", ["spark.jars=http://somewhere/code.jar", "spark.task.cpus=1", "spark.task. cpus", "spark.task.", "spark.task.x\n"])
def test_what_spark_would_read_as_another_key_is_refused(key: str) -> None:
    assert f"spark.conf: `{key}`" in refusal({"conf": {key: "x"}})


@each(
    "key",
    [
        "spark.authenticate",
        "spark.cores.max",
        "spark.driver.blockManager.port",
        "spark.driver.host",
        "spark.driver.maxResultSize",
        "spark.driver.memoryOverheadFactor",
        "spark.dynamicAllocation.maxExecutors",
        "spark.executor.heartbeatInterval",
        "spark.executor.memoryOverhead",
        "spark.io.encryption.keySizeBits",
        "spark.kubernetes.container.image.pullSecrets",
        "spark.kubernetes.executor.container.image",
        "spark.kubernetes.executor.volumes.emptyDir.spark-local-dir-1.mount.path",
        "spark.kubernetes.namespace",
        "spark.kubernetes.executor.label.app.kubernetes.io/name",
        "spark.memory.fraction",
        "spark.network.crypto.enabled",
        "spark.network.timeout",
        "spark.python.worker.memory",
        "spark.rpc.askTimeout",
        "spark.scheduler.minRegisteredResourcesRatio",
        "spark.shuffle.service.enabled",
        "spark.task.maxFailures",
        "spark.ui.enabled",
        "spark.yarn.queue",
    ],
)
def test_properties_of_size_network_and_place_pass(key: str) -> None:
    assert parse({"master": CLUSTER, "conf": {key: "x"}}).conf == {key: "x"}


@each(
    ("master", "own"),
    [
        ("k8s://https://kubernetes.default.svc", True),
        ("k8s://kubernetes.default.svc:443", True),
        ("k8s://https://10.96.0.1:443", True),
        ("k8s://http://kubernetes.default.svc", False),
        ("k8s://https://kubernetes.default.svc.example.com", False),
        ("k8s://https://kubernetes.default.svc@example.com", False),
        ("spark://kubernetes.default.svc:7077", False),
    ],
)
def test_the_own_cluster_is_known_by_its_addresses(master: str, own: bool) -> None:
    assert is_own_cluster(master, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}) is own
    assert not is_own_cluster("k8s://https://10.96.0.1", {})


def test_every_server_of_a_cluster_is_known() -> None:
    conf = {
        "spark.hadoop.fs.defaultFS": "hdfs://name-node:8020",
        "spark.hadoop.yarn.resourcemanager.address": "manager:8032",
        "spark.hadoop.yarn.resourcemanager.hostname.rm1": "other",
        "spark.hadoop.yarn.resourcemanager.ha.enabled": "true",
        "spark.yarn.stagingDir": "file:///staging",
        "spark.driver.host": "here",
    }
    assert [host for _, host in hosts("yarn", conf)] == ["name-node", "manager", "other"]
    assert [host for _, host in hosts("spark://[::1]:7077,two:7077", {})] == ["::1", "two"]
    with pytest.raises(ConfigError, match=r"^spark\.hadoop\.fs\.defaultFS in spark\.conf must be an address"):
        list(hosts("yarn", {"spark.hadoop.fs.defaultFS": "hdfs://[::1"}))


def test_the_token_of_kubernetes_is_a_secret_of_kubernetes_alone() -> None:
    chosen = parse({"master": "k8s://https://host:443", "kubernetes_token": " a-token\n"})

    assert chosen.kubernetes_token is not None
    assert chosen.kubernetes_token.get_secret_value() == "a-token"
    assert "a-token" not in repr(chosen)
    assert "spark.kubernetes_token: needs spark.master to be k8s://" in refusal({"kubernetes_token": "a-token"})
    assert "spark.kubernetes_token: needs spark.master to be k8s://" in refusal({"master": "yarn", "kubernetes_token": "a-token"})
    assert "must be one word" in refusal({"master": "k8s://https://host:443", "kubernetes_token": "a token"})


def test_jars_come_from_the_clusters_own_file_system_alone() -> None:
    assert parse({"master": "yarn", "conf": {"spark.yarn.archive": "hdfs:///spark/jars.zip"}})
    for path in ("/spark/jars.zip", "file:///spark/jars.zip", "s3a://lake/jars.zip", "local:/jars.zip"):
        assert "`spark.yarn.archive` must be a path in the cluster's file system" in refusal({"conf": {"spark.yarn.archive": path}})
    assert [host for _, host in hosts("yarn", {"spark.yarn.archive": "hdfs://name-node:8020/jars.zip"})] == ["name-node"]


CLUSTER = "spark://host:7077"
SUBSTITUTED = "${env:AWS_SECRET_ACCESS_KEY}"


@each("key", [name for _, names in ALLOWED for name in names])
@each("value", [SUBSTITUTED, "x${system:user.home}", "${spark.other}", "${env.NAME:-default}", "${", "$${x}"])
def test_no_value_has_another_one_put_in(key: str, value: str) -> None:
    key = key.replace("*", "x")
    message = refusal({"master": CLUSTER, "conf": {key: value}})

    assert f"spark.conf: `{key}` holds ${{, for which Spark would put in a variable of this machine" in message
    assert value.replace("${", "") == "" or value not in message


@each(
    "options",
    [
        {"master": f"spark://{SUBSTITUTED}:7077"},
        {"master": f"k8s://https://{SUBSTITUTED}"},
        {"master": CLUSTER, "authenticate_secret": SUBSTITUTED},
        {"master": "k8s://https://host", "kubernetes_token": SUBSTITUTED},
    ],
)
def test_no_other_option_has_one_put_in_either(options: dict[str, Any]) -> None:
    message = refusal(options)

    assert f"spark.{list(options)[-1]}: " in message
    assert "AWS_SECRET" not in message


def test_the_directory_of_the_spool_has_none_put_in() -> None:
    needed = {"s3_bucket_name": "lake", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": "Parquet"}}
    with pytest.raises(ConfigError, match=r"batching\.spool_dir: must not hold \$\{"):
        Config.parse({**needed, "batching": {"spool_dir": "/tmp/${env:HOME}"}})


@each(
    "key",
    [
        "spark.authenticate",
        "spark.authenticate.enableSaslEncryption",
        "spark.blockManager.port",
        "spark.driver.bindAddress",
        "spark.driver.blockManager.port",
        "spark.driver.host",
        "spark.driver.port",
        "spark.port.maxRetries",
        "spark.ui.enabled",
        "spark.ui.port",
        "spark.ui.reverseProxy",
    ],
)
@each("master", ["local", "local[*]", "local[2]"])
def test_what_opens_sparks_ports_is_refused_inside_the_connector_alone(master: str, key: str) -> None:
    assert parse({"master": CLUSTER, "conf": {key: "x"}}).conf == {key: "x"}
    message = refusal({"master": master, "conf": {key: "true"}})
    assert f"spark.conf: `{key}` is for clusters: inside the connector, Spark's ports are bound to this machine" in message


def test_beside_a_master_that_is_none_no_property_is_said_to_be_for_clusters() -> None:
    assert "for clusters" not in refusal({"master": "spark://host", "conf": {"spark.driver.host": "x"}})


@each(
    ("key", "value"),
    [
        ("spark.kubernetes.namespace", ".."),
        ("spark.kubernetes.namespace", "a/b"),
        ("spark.kubernetes.namespace", "a%2Fb"),
        ("spark.kubernetes.driver.pod.name", ".."),
        ("spark.kubernetes.driver.pod.name", "a/../b"),
    ],
)
def test_names_towards_the_api_server_are_names(key: str, value: str) -> None:
    assert f"`{key}` must be a name in Kubernetes" in refusal({"master": "k8s://https://host", "conf": {key: value}})
    assert parse({"master": "k8s://https://host", "conf": {key: "shop-1"}})


@each("key", ["spark.hadoop.fs.defaultFS", "spark.yarn.stagingDir", "spark.yarn.archive"])
@each("value", ["file:///tmp", "s3a://lake/x", "local:/x", "http://host/"])
def test_hadoops_files_are_on_the_cluster(key: str, value: str) -> None:
    assert f"`{key}` must be a path in the cluster's file system" in refusal({"master": "yarn", "conf": {key: value}})
    assert parse({"master": "yarn", "conf": {key: "hdfs://name-node:8020/x"}})


def test_properties_are_lines_as_in_spark_defaults() -> None:
    text = "# memory\nspark.executor.memory  4g\n\nspark.app.name = nightly = 1\n  spark.task.cpus=1\n"
    assert parse({"conf": text}).conf == {"spark.executor.memory": "4g", "spark.app.name": "nightly = 1", "spark.task.cpus": "1"}
    assert parse({"conf": ""}).conf == {}
    assert "value on line 2" in refusal({"conf": "spark.app.name x\nspark.task.cpus"})
    for secret in ("TOPSECRET", "TOPSECRET more"):  # the rest of a value that was wrapped
        message = refusal({"conf": f"spark.app.name x\n{secret}"})
        assert "value on line 2" in message
        assert "TOPSECRET" not in message
    assert "`spark.task.cpus` a second time on line 2" in refusal({"conf": "spark.task.cpus 1\nspark.task.cpus 2"})
    assert "`spark.jars` is refused" in refusal({"conf": "spark.jars evil.jar"})
