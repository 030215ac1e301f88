"""The Spark properties that `spark.conf` may set, and those that are refused for a reason, each with that reason.

The list was read against Spark 4.3 and Hadoop 3.5. Names are written out. A `*` stands only where the rest of a name is the user's own.
"""

from __future__ import annotations

OWN_OPTION = "set {} of this configuration instead"
LOCAL_FILE = "it has a file of the connector's machine read, whose content could be sent to the cluster"

REFUSED: tuple[tuple[str, tuple[str, ...]], ...] = (
    (OWN_OPTION.format("spark.master"), ("spark.master",)),
    (OWN_OPTION.format("spark.driver_memory"), ("spark.driver.memory",)),
    (OWN_OPTION.format("spark.authenticate_secret"), ("spark.authenticate.secret*",)),
    (OWN_OPTION.format("batching.spool_dir"), ("spark.local.dir",)),
    ("the session is started by this connector, not by spark-submit", ("spark.submit.*",)),
    ("Spark Connect is not supported", ("spark.remote", "spark.api.mode", "spark.connect.*")),
    ("it would load code that this connector was not tested with", (
        "spark.jars*", "spark.files", "spark.archives", "spark.*plugin*", "spark.extraListeners", "spark.repl.*", "spark.r.*",
        "spark.ui.filters", "spark.sql.extensions", "*JavaOptions", "*ClassPath*", "*ibraryPath", "*discoveryScript",
        "spark.network.crypto.config.*", "spark.kubernetes.*eatureSteps", "spark.kubernetes.allocation.pods.allocator",
        "spark.kubernetes.decommission.script", "spark.yarn.jars", "spark.yarn.dist.*", "spark.hadoop.*-class",
    )),
    ("Spark's workers must run the interpreter and packages of this connector", (
        "spark.pyspark.*", "spark.python.daemon.module", "spark.python.worker.module", "spark.executorEnv.*",
    )),
    ("a second copy of a task would upload its files a second time", ("spark.speculation*",)),
    ("it writes what runs here to a place outside the sync", (
        "spark.eventLog.*", "spark.metrics.*", "spark.driver.log.*", "spark.kubernetes.file.upload.path",
    )),
    ("it would show secrets", ("spark.log.level", "spark.logConf", "spark.redaction.*")),
    (OWN_OPTION.format("spark.kubernetes_token"), ("spark.kubernetes.*oauthToken",)),
    (LOCAL_FILE, ("spark.kubernetes.*File", "spark.kubernetes.executor.disableConfigMap", "spark.kerberos.*")),
    (f"{LOCAL_FILE}; spark.network.crypto.enabled encrypts without one", ("spark.ssl.*",)),
    (LOCAL_FILE, ("*keytab*",)),
    ("S3 is reached without Hadoop here; credentials in Spark's configuration would show up in its logs", ("spark.hadoop.fs.s3*",)),
)  # fmt: skip
"""(reason, patterns) of keys that users are likely to try, and of keys that ALLOWED would let through. Case-sensitive, as in Spark."""

_RESOURCE_MANAGER = "spark.hadoop.yarn.resourcemanager."

ALLOWED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Sizes and counts: Spark parses a number, a size, a share or a switch, and fails on anything else", (
        "spark.cores.max", "spark.default.parallelism", "spark.driver.maxResultSize", "spark.driver.memoryOverhead",
        "spark.driver.memoryOverheadFactor", "spark.driver.minMemoryOverhead", "spark.executor.cores", "spark.executor.instances",
        "spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.memoryOverheadFactor",
        "spark.executor.minMemoryOverhead", "spark.executor.pyspark.memory", "spark.memory.fraction", "spark.memory.offHeap.enabled",
        "spark.memory.offHeap.size", "spark.memory.storageFraction", "spark.python.worker.memory", "spark.python.worker.reuse",
        "spark.task.cpus", "spark.task.maxDirectResultSize", "spark.task.maxFailures",
    )),
    ("Numbers of executors over time: counts, ratios and times", (
        "spark.dynamicAllocation.cachedExecutorIdleTimeout", "spark.dynamicAllocation.enabled",
        "spark.dynamicAllocation.executorAllocationRatio", "spark.dynamicAllocation.executorIdleTimeout",
        "spark.dynamicAllocation.initialExecutors", "spark.dynamicAllocation.maxExecutors", "spark.dynamicAllocation.minExecutors",
        "spark.dynamicAllocation.schedulerBacklogTimeout", "spark.dynamicAllocation.shuffleTracking.enabled",
        "spark.dynamicAllocation.shuffleTracking.timeout", "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout",
    )),
    ("Addresses at which the driver listens and executors reach it. The driver connects to none of them: for clusters (CLUSTERS_ONLY)", (
        "spark.blockManager.port", "spark.driver.bindAddress", "spark.driver.blockManager.port", "spark.driver.host",
        "spark.driver.port", "spark.port.maxRetries",
    )),
    ("Authentication: switches for a secret that is an option of its own: for clusters (CLUSTERS_ONLY)", (
        "spark.authenticate", "spark.authenticate.enableSaslEncryption",
    )),
    ("Spark's page, of the driver alone. The proxy's address goes into links and is not connected to: for clusters (CLUSTERS_ONLY)", (
        "spark.ui.enabled", "spark.ui.port", "spark.ui.retainedDeadExecutors", "spark.ui.retainedJobs", "spark.ui.retainedStages",
        "spark.ui.retainedTasks", "spark.ui.reverseProxy", "spark.ui.reverseProxyUrl",
    )),
    ("Names of people who may see and end jobs on that page", (
        "spark.acls.enable", "spark.admin.acls", "spark.admin.acls.groups", "spark.modify.acls", "spark.modify.acls.groups",
        "spark.ui.view.acls", "spark.ui.view.acls.groups",
    )),
    ("Encryption: switches, a size of keys, and the name of an algorithm of Java's own. Ciphers and libraries are not among them", (
        "spark.io.encryption.enabled", "spark.io.encryption.keySizeBits", "spark.io.encryption.keygen.algorithm",
        "spark.network.crypto.authEngineVersion", "spark.network.crypto.enabled", "spark.network.crypto.saslFallback",
        "spark.network.sasl.serverAlwaysEncrypt",
    )),
    ("Time limits, retries and threads of connections that Spark makes anyway", (
        "spark.executor.heartbeat.maxFailures", "spark.executor.heartbeatInterval", "spark.network.maxRemoteBlockSizeFetchToMem",
        "spark.network.timeout", "spark.network.timeoutInterval", "spark.python.authenticate.socketTimeout",
        "spark.python.task.killTimeout", "spark.python.worker.idleTimeoutSeconds", "spark.python.worker.killOnIdleTimeout",
        "spark.rpc.askTimeout", "spark.rpc.connect.threads", "spark.rpc.io.numConnectionsPerPeer", "spark.rpc.io.threads",
        "spark.rpc.lookupTimeout", "spark.rpc.message.maxSize", "spark.rpc.netty.dispatcher.numThreads",
        "spark.shuffle.io.backLog", "spark.shuffle.io.clientThreads", "spark.shuffle.io.connectionTimeout", "spark.shuffle.io.maxRetries",
        "spark.shuffle.io.numConnectionsPerPeer", "spark.shuffle.io.preferDirectBufs", "spark.shuffle.io.retryWait",
        "spark.shuffle.io.serverThreads", "spark.shuffle.registration.maxAttempts", "spark.shuffle.registration.timeout",
    )),
    ("The cluster's own shuffle service, which executors reach on their machines, by its port and name there", (
        "spark.shuffle.service.enabled", "spark.shuffle.service.fetch.rdd.enabled", "spark.shuffle.service.name",
        "spark.shuffle.service.port", "spark.shuffle.service.removeShuffle",
    )),
    ("Scheduling, and executors that fail or leave: counts, times and switches. The name of the application is text for people", (
        "spark.app.name", "spark.decommission.enabled", "spark.excludeOnFailure.application.enabled",
        "spark.excludeOnFailure.application.fetchFailure.enabled", "spark.excludeOnFailure.application.maxFailedExecutorsPerNode",
        "spark.excludeOnFailure.application.maxFailedTasksPerExecutor", "spark.excludeOnFailure.enabled",
        "spark.excludeOnFailure.killExcludedExecutors", "spark.excludeOnFailure.killExcludedExecutors.decommission",
        "spark.excludeOnFailure.stage.maxFailedExecutorsPerNode", "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor",
        "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor", "spark.excludeOnFailure.task.maxTaskAttemptsPerNode",
        "spark.excludeOnFailure.taskAndStage.enabled", "spark.excludeOnFailure.timeout", "spark.executor.decommission.forceKillTimeout",
        "spark.executor.decommission.killInterval", "spark.executor.failuresValidityInterval", "spark.executor.maxNumFailures",
        "spark.locality.wait", "spark.locality.wait.node", "spark.locality.wait.process", "spark.locality.wait.rack",
        "spark.scheduler.maxRegisteredResourcesWaitingTime", "spark.scheduler.minRegisteredResourcesRatio", "spark.scheduler.mode",
        "spark.scheduler.revive.interval", "spark.stage.ignoreDecommissionFetchFailure", "spark.stage.maxAttempts",
        "spark.stage.maxConsecutiveAttempts", "spark.task.reaper.enabled", "spark.task.reaper.killTimeout",
        "spark.task.reaper.pollingInterval", "spark.task.reaper.threadDump",
    )),
    ("Housekeeping inside Spark's processes, and of executors' logs on their machines: sizes, times and switches", (
        "spark.broadcast.UDFCompressionThreshold", "spark.broadcast.blockSize", "spark.broadcast.checksum", "spark.broadcast.compress",
        "spark.cleaner.periodicGC.interval", "spark.cleaner.referenceTracking", "spark.cleaner.referenceTracking.blocking",
        "spark.cleaner.referenceTracking.blocking.shuffle", "spark.cleaner.referenceTracking.blocking.timeout",
        "spark.executor.logs.rolling.enableCompression", "spark.executor.logs.rolling.maxRetainedFiles",
        "spark.executor.logs.rolling.maxSize", "spark.executor.logs.rolling.strategy", "spark.executor.logs.rolling.time.interval",
        "spark.scheduler.listenerbus.eventqueue.capacity", "spark.scheduler.listenerbus.exitTimeout",
        "spark.scheduler.listenerbus.logSlowEvent", "spark.scheduler.listenerbus.logSlowEvent.threshold",
        "spark.scheduler.listenerbus.metrics.maxListenerClassesTimed",
    )),
    ("Kubernetes: counts, times and switches for requests to the API server that spark.master names", (
        "spark.kubernetes.allocation.batch.delay", "spark.kubernetes.allocation.batch.size",
        "spark.kubernetes.allocation.driver.readinessTimeout", "spark.kubernetes.allocation.executor.timeout",
        "spark.kubernetes.allocation.maxPendingPods", "spark.kubernetes.driver.connectionTimeout",
        "spark.kubernetes.driver.requestTimeout", "spark.kubernetes.dynamicAllocation.deleteGracePeriod",
        "spark.kubernetes.executor.apiPollingInterval", "spark.kubernetes.executor.checkAllContainers",
        "spark.kubernetes.executor.deleteOnTermination", "spark.kubernetes.executor.missingPodDetectDelta",
        "spark.kubernetes.executor.useDriverPodIP", "spark.kubernetes.local.dirs.tmpfs", "spark.kubernetes.memoryOverheadFactor",
    )),
    ("Names in Kubernetes, which Spark puts into paths of the API server: they are checked (KUBERNETES_NAMES)", (
        "spark.kubernetes.driver.pod.name", "spark.kubernetes.namespace",
    )),
    ("Executors' pods: what the account of the token may make. Volumes are none of a node's own files, and images run there alone", (
        "spark.kubernetes.authenticate.executor.serviceAccountName", "spark.kubernetes.container.image",
        "spark.kubernetes.container.image.pullPolicy", "spark.kubernetes.container.image.pullSecrets",
        "spark.kubernetes.executor.annotation.*", "spark.kubernetes.executor.container.image", "spark.kubernetes.executor.label.*",
        "spark.kubernetes.executor.limit.cores", "spark.kubernetes.executor.node.selector.*", "spark.kubernetes.executor.podNamePrefix",
        "spark.kubernetes.executor.request.cores", "spark.kubernetes.executor.scheduler.name", "spark.kubernetes.executor.secretKeyRef.*",
        "spark.kubernetes.executor.secrets.*", "spark.kubernetes.executor.volumes.emptyDir.*",
        "spark.kubernetes.executor.volumes.persistentVolumeClaim.*", "spark.kubernetes.node.selector.*",
        "spark.kubernetes.scheduler.name",
    )),
    ("Servers of YARN and HDFS, whose addresses are checked (ADDRESSES), and times", (
        "spark.hadoop.fs.defaultFS", "spark.yarn.archive", "spark.yarn.stagingDir",
        *(_RESOURCE_MANAGER + name for name in (
            "address", "address.*", "admin.address", "admin.address.*", "cluster-id", "connect.max-wait.ms", "connect.retry-interval.ms",
            "ha.enabled", "ha.rm-ids", "hostname", "hostname.*", "resource-tracker.address", "resource-tracker.address.*",
            "scheduler.address", "scheduler.address.*", "webapp.address", "webapp.address.*", "webapp.https.address",
            "webapp.https.address.*",
        )),
    )),
    ("An application of YARN: numbers, times and names that its ResourceManager judges", (
        "spark.yarn.am.cores", "spark.yarn.am.memory", "spark.yarn.am.memoryOverhead", "spark.yarn.am.nodeLabelExpression",
        "spark.yarn.exclude.nodes", "spark.yarn.executor.failuresValidityInterval", "spark.yarn.executor.nodeLabelExpression",
        "spark.yarn.max.executor.failures", "spark.yarn.maxAppAttempts", "spark.yarn.priority", "spark.yarn.queue",
        "spark.yarn.scheduler.heartbeat.interval-ms", "spark.yarn.scheduler.initial-allocation.interval",
        "spark.yarn.scheduler.reporterThread.maxFailures", "spark.yarn.tags",
    )),
)  # fmt: skip
"""(reason, names): why these cannot load or run code, read a file of this machine, or write or connect to an unchecked place."""

CLUSTERS_ONLY = (
    "spark.authenticate",
    "spark.authenticate.*",
    "spark.blockManager.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.host",
    "spark.driver.port",
    "spark.port.maxRetries",
    "spark.ui.*",
)
"""Patterns of keys that would weaken what the connector sets while Spark runs inside it."""

ADDRESSES = (
    "spark.hadoop.fs.defaultFS",
    "spark.hadoop.yarn.resourcemanager.*address*",
    "spark.hadoop.yarn.resourcemanager.*hostname*",
    "spark.yarn.archive",
    "spark.yarn.stagingDir",
)
"""Patterns of allowed keys whose values name servers to which the driver connects."""

CLUSTER_FILES = ("spark.hadoop.fs.defaultFS", "spark.yarn.archive", "spark.yarn.stagingDir")
"""Keys whose values are in a file system of the cluster."""

KUBERNETES_NAMES = ("spark.kubernetes.driver.pod.name", "spark.kubernetes.namespace")
"""Keys whose values are names of objects in Kubernetes."""
