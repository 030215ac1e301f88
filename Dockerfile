# The connector's image: Airbyte's Python base, a JRE for Spark, the locked packages, and the connector on top. `make image` builds it.
# Any Debian with Python 3.11 to 3.13 can be the base: --build-arg BASE_IMAGE=... (`make base-image` makes one from Debian's packages).
# A tag may move. A release names what it was tested on: BASE_IMAGE=docker.io/airbyte/python-connector-base:4.1.0@sha256:...
ARG BASE_IMAGE=docker.io/airbyte/python-connector-base:4.1.0

# The locked packages in an environment without pip, less what the connector never loads. What builds them stays behind in this stage.
FROM ${BASE_IMAGE} AS packages
USER root
RUN python3 -c 'import ensurepip' 2>/dev/null \
 || (apt-get update --quiet --quiet && apt-get install --yes --quiet --quiet --no-install-recommends python3-venv)
RUN python3 -m venv /build && python3 -m venv --without-pip /opt/destination-s3-spark
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_CACHE_DIR=/var/cache/pip
# A machine behind a proxy or a mirror passes its settings as secrets: they are mounted for one command and stored nowhere.
COPY requirements.lock requirements-build.lock ./
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca-certificates \
    --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca-certificates ]; then export PIP_CERT=/run/secrets/ca-certificates; fi \
 && /build/bin/pip install --quiet --require-hashes --requirement requirements-build.lock \
 && /build/bin/pip --python /opt/destination-s3-spark/bin/python install --quiet --require-hashes --requirement requirements.lock
COPY scripts/trim-packages scripts/order-jars scripts/
RUN PIP=/build/bin/pip scripts/trim-packages /opt/destination-s3-spark \
 && scripts/order-jars /opt/destination-s3-spark

# The native typing kernel. Debian 12 has a Rust new enough for it beside its own; compilers and crates stay behind in this stage.
FROM packages AS kernel
COPY scripts/install-cargo scripts/
RUN scripts/install-cargo
COPY kernel ./kernel
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca-certificates \
    --mount=type=cache,target=/var/cache/cargo/registry \
    export CARGO_HOME=/var/cache/cargo \
 && if [ -s /run/secrets/ca-certificates ]; then export CARGO_HTTP_CAINFO=/run/secrets/ca-certificates; fi \
 && /build/bin/maturin build --quiet --release --locked --manifest-path kernel/Cargo.toml --out /wheels

FROM kernel AS connector
COPY pyproject.toml README.md LICENSE ./
COPY destination_s3_spark ./destination_s3_spark
RUN /build/bin/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir /wheels .

FROM ${BASE_IMAGE}
# Spark 4 runs on Java 17 and 21. Debian 12 has 17; for a base on Debian 13 pass openjdk-21-jre-headless.
ARG JRE_PACKAGE=openjdk-17-jre-headless
USER root
# The directory is not there in slim images, and the package fails without it.
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update --quiet --quiet \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --quiet --no-install-recommends "${JRE_PACKAGE}" \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt
# The image's user exists in a base that is not Airbyte's, too. Others need no account: the connector names them to Spark.
RUN id 1000 >/dev/null 2>&1 || useradd --uid 1000 --create-home airbyte

# The packages change rarely, the code often: two layers.
COPY --from=packages /opt/destination-s3-spark /opt/destination-s3-spark
RUN --mount=type=bind,from=connector,source=/build,target=/build \
    --mount=type=bind,from=connector,source=/wheels,target=/wheels \
    /build/bin/pip --python /opt/destination-s3-spark/bin/python install --quiet --no-deps --no-index --no-cache-dir /wheels/*.whl \
 && /opt/destination-s3-spark/bin/python -m destination_s3_spark.engine.startup.class_data

# OpenShift runs containers as any user of group 0, who may do here what the image's user may.
RUN mkdir -p /airbyte/integration_code && chgrp -R 0 /airbyte && chmod -R g=u /airbyte

USER 1000
WORKDIR /airbyte/integration_code
# Without PYTHONUNBUFFERED, what Python itself prints could wait in a buffer while the platform waits for it.
ENV PYTHONUNBUFFERED=1 \
    PATH="/opt/destination-s3-spark/bin:${PATH}" \
    AIRBYTE_ENTRYPOINT="/opt/destination-s3-spark/bin/destination-s3-spark"
ENTRYPOINT ["/opt/destination-s3-spark/bin/destination-s3-spark"]

LABEL io.airbyte.name="airbyte/destination-s3-spark" \
      io.airbyte.version="0.1.0" \
      org.opencontainers.image.title="destination-s3-spark" \
      org.opencontainers.image.description="Airbyte destination that lands any source on plain S3 as typed, self-describing tables" \
      org.opencontainers.image.licenses="MIT"
