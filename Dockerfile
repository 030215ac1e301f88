# The connector's image: Airbyte's Python base, a JRE for Spark, the locked packages, and the connector on top.
# Any Debian 12 image with Python 3.11 can stand in: --build-arg BASE_IMAGE=docker.io/library/python:3.11-slim-bookworm
ARG BASE_IMAGE=docker.io/airbyte/python-connector-base:4.1.0
FROM ${BASE_IMAGE}

# Spark 4 runs on Java 17 and 21. Debian 12 has 17; for a base on Debian 13 pass openjdk-21-jre-headless. Where neither is packaged,
# replace this step by: COPY --from=docker.io/library/eclipse-temurin:17-jre /opt/java/openjdk /opt/java/openjdk
# and put /opt/java/openjdk/bin into PATH.
ARG JRE_PACKAGE=openjdk-17-jre-headless
USER root
RUN apt-get update \
 && apt-get install --yes --no-install-recommends "${JRE_PACKAGE}" \
 && rm -rf /var/lib/apt/lists/*

# Spark asks the system for the name of its user, so the user must exist in a base that is not Airbyte's, too.
RUN id --user airbyte >/dev/null 2>&1 || useradd --uid 1000 --create-home airbyte

WORKDIR /airbyte/integration_code
ENV PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PIP_DISABLE_PIP_VERSION_CHECK=1

# The packages change rarely, the code often: two layers.
COPY requirements.lock ./
RUN pip install --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY destination_s3_spark ./destination_s3_spark
RUN pip install --no-deps .

USER 1000
# Without PYTHONUNBUFFERED, what Python itself prints could wait in a buffer while the platform waits for it.
ENV PYTHONUNBUFFERED=1 \
    AIRBYTE_ENTRYPOINT="destination-s3-spark"
ENTRYPOINT ["destination-s3-spark"]

LABEL io.airbyte.name="airbyte/destination-s3-spark" \
      io.airbyte.version="0.1.0" \
      org.opencontainers.image.title="destination-s3-spark" \
      org.opencontainers.image.description="Airbyte destination that lands any source on plain S3 as typed, self-describing tables" \
      org.opencontainers.image.licenses="MIT"
