"""Configuration of a sync: destination-s3's options, and additional groups that are all optional.

A mapping (`--config`) becomes a frozen `Config`, or a ConfigError that names the option and never its value. `spec.json` is generated from
these models (see `scripts/specification.py`): users read the titles and the docstrings of the parts below and of their options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import ErrorDetails

from destination_s3_spark.config.format_options import SPELLINGS, Format, with_current_spelling
from destination_s3_spark.config.iceberg_options import ICEBERG_TYPES
from destination_s3_spark.config.s3_options import S3
from destination_s3_spark.config.settings_model import (
    Applies,
    OpenSettings,
    Settings,
    Shape,
    UnknownOption,
    did_you_mean,
    documented,
    unknown_options,
)
from destination_s3_spark.config.spark_conf import MASTER, is_encrypted, is_on_this_machine, properties, refusal, without_substitution
from destination_s3_spark.config.table_options import ChangeLog, Publish, Tables
from destination_s3_spark.errors import ConfigError
from destination_s3_spark.wording import nearest_name

Region = Literal[
    "", "af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3", "ap-south-1", "ap-south-2",
    "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4", "ap-southeast-5", "ap-southeast-6", "ap-southeast-7",
    "ca-central-1", "ca-west-1", "cn-north-1", "cn-northwest-1", "eu-central-1", "eu-central-2", "eu-north-1", "eu-south-1",
    "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "eusc-de-east-1", "il-central-1", "me-central-1", "me-south-1", "mx-central-1",
    "sa-east-1", "us-east-1", "us-east-2", "us-gov-east-1", "us-gov-west-1", "us-west-1", "us-west-2",
]  # fmt: skip
SECRET: dict[str, Any] = {"airbyte_secret": True, "always_show": True}
MIB, GIB = 2**20, 2**30
"""Units in bytes of options that end in `_mb` and `_gb`."""
LEAST_DRIVER_MEMORY_MB = 453
"""Least heap with which Spark starts: it asks for 450 MiB, of which the JVM does not count a part of its young generation."""
MOST_CHOICES = 10
"""Most values of an option that a message or the documentation lists."""
ADVANCED = "advanced"
"""Group of the options that destination-s3 does not have. Its own options stay ungrouped, at the top."""
GROUPED: dict[str, Any] = {"group": ADVANCED}


class Spark(Settings):
    """How and where Spark runs."""

    master: Annotated[str, Shape(MASTER, "local[*], local[4] or spark://host:7077")] = Field(
        "local[*]",
        title="Master",
        examples=["local[*]", "local[4]", "spark://spark-master:7077", "k8s://https://kubernetes.default.svc", "yarn"],
        json_schema_extra=documented(page="cluster.md"),
    )
    """Where tasks run. Inside this connector: local[*] for one per CPU at once, local[N] for N. On a cluster, merges and rewrites:
    spark://host:port, its standalone master; yarn; k8s://https://host:port, Kubernetes' API server.
    """
    driver_memory: Annotated[str, Shape(r"^[1-9][0-9]*[mg]$", "512m or 1g")] | None = Field(
        None, title="JVM memory", examples=["512m", "1g"]
    )
    """The heap of Spark's JVM, at least 453m. By default a share of the container's memory; records never enter it."""
    conf: Annotated[dict[str, str], BeforeValidator(properties), WithJsonSchema({"type": "string"})] = Field(
        default_factory=dict,
        title="Spark properties",
        examples=["spark.executor.memory 4g\nspark.executor.cores 2"],
        json_schema_extra={"multiline": True, **documented(page="cluster.md#spark-properties")},
    )
    """More Spark properties, a name and its value on each line as in spark-defaults.conf: of memory, cores, network, encryption,
    scheduling, Kubernetes and YARN. Others are refused, such as those that load code.
    """
    authenticate_secret: SecretStr | None = Field(
        None, title="Secret of the cluster", examples=["a-shared-secret"], json_schema_extra={"airbyte_secret": True}
    )
    """The secret that a standalone cluster with spark.authenticate shares with its applications."""
    kubernetes_token: SecretStr | None = Field(
        None,
        title="Kubernetes token",
        examples=["eyJhbGciOiJSUzI1NiIsImtpZCI6Ii..."],
        json_schema_extra={"airbyte_secret": True, **documented(page="cluster.md#kubernetes")},
    )
    """The token of a Kubernetes account that may make pods. Airbyte mounts none in syncs. It needs a k8s master."""
    executor_credentials: Literal["own", "forward"] = Field(
        "own", title="Credentials of executors", json_schema_extra=documented(page="cluster.md#credentials")
    )
    """How executors on a cluster reach the bucket: own, by AWS's default chain on their machines; forward, with this connector's
    credentials, which takes an authenticated and encrypted cluster.
    """

    @field_validator("driver_memory")
    @classmethod
    def _enough_for_spark(cls, memory: str | None) -> str | None:
        if memory is not None and int(memory[:-1]) * {"m": 1, "g": 1024}[memory[-1]] < LEAST_DRIVER_MEMORY_MB:
            raise ValueError(f"must be at least {LEAST_DRIVER_MEMORY_MB}m, because Spark does not start with less")
        return memory

    @field_validator("conf")
    @classmethod
    def _no_refused_key(cls, conf: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        problem = refusal(conf, info.data.get("master", ""))  # a master that is none is reported by itself
        if problem is not None:
            raise ValueError(problem)
        return conf

    @field_validator("authenticate_secret", "kubernetes_token")
    @classmethod
    def _no_substitution(cls, secret: SecretStr | None) -> SecretStr | None:
        return secret and SecretStr(without_substitution(secret.get_secret_value()))

    @field_validator("kubernetes_token")
    @classmethod
    def _token_needs_kubernetes(cls, token: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        if token is not None and not info.data.get("master", "local").startswith("k8s://"):
            raise ValueError("needs spark.master to be k8s://https://host:port. Set it, or remove the token")
        if token is not None and not re.fullmatch(r"[\x21-\x7e]+", token.get_secret_value().strip()):
            raise ValueError("must be one word, as kubectl create token prints it")
        return token and SecretStr(token.get_secret_value().strip())

    @field_validator("executor_credentials")
    @classmethod
    def _no_credentials_in_the_open(cls, credentials: str, info: ValidationInfo) -> str:
        master, conf = info.data.get("master", "local"), info.data.get("conf", {})
        if credentials == "forward" and not is_on_this_machine(master) and not is_encrypted(conf):
            raise ValueError(
                "forward would send credentials over the network in the open. Set spark.authenticate and spark.network.crypto.enabled to "
                "true in spark.conf, and on the cluster, or choose own"
            )
        return credentials


class Batching(Settings):
    """When records are committed, and where they wait until then."""

    max_batch_mb: int = Field(512, ge=1, title="Batch size (MB)", examples=[1024])
    """Records of all streams together that are committed at once, at the next STATE. Larger batches make larger files."""
    max_batch_age_s: int = Field(300, ge=1, le=900, title="Batch age (seconds)", examples=[60])
    """How long a STATE may wait for its batch to be committed. Airbyte expects one at least every 15 minutes."""
    end_of_input: Literal["needs_state", "completes"] = Field(
        "needs_state", title="End of the input", json_schema_extra=documented(page="guarantees.md#when-a-stream-is-complete")
    )
    """What completes a stream where no stream status comes (a custom connector, a pipe). needs_state: a STATE after its last record.
    completes: the end of the input, for sources that send no STATE; only tables.unproven_replacement then protects the table from one that
    died.
    """
    spool_dir: Annotated[str, AfterValidator(without_substitution)] | None = Field(None, title="Spool directory", examples=["/spool"])
    """The local directory in which records wait for their batch. By default the system's temporary directory."""
    max_spool_gb: float = Field(4, gt=0, title="Spool size (GB)", examples=[20])
    """The local disk space that waiting records may take, and events of change logs when they have left. When it is full,
    reading pauses.
    """
    max_line_mb: int = Field(
        256, ge=1, le=1024, title="Longest line (MB)", examples=[512], json_schema_extra=documented(page="guarantees.md#limits")
    )
    """A longer line of the input ends the sync: it is broken, or its record needs more memory than there is, about 20 times its size."""


def _endpoint_url(text: str) -> str:
    """Return the endpoint with a scheme. A missing scheme means https, as in destination-s3."""
    url = text.strip() if "://" in text else f"https://{text.strip()}"
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or a broken IPv6 address
        sound = False
    if not sound:
        raise ValueError("is not a URL. Write it like http://localhost:9000 or https://s3.example.com")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a plain URL: keys belong into access_key_id and secret_access_key, and there is no ? or # part")
    return url


class Config(OpenSettings):
    """A whole configuration. Blank optional text is None. Secrets print as asterisks."""

    model_config = ConfigDict(title="S3 Spark Destination Spec")
    blank_is_a_value: ClassVar[frozenset[str]] = frozenset({"s3_bucket_path", "s3_bucket_region"})

    access_key_id: SecretStr | None = Field(None, title="Access Key ID", examples=["A012345678910EXAMPLE"], json_schema_extra=SECRET)
    """The access key for the bucket. Leave both key fields empty to use the role below or the environment's credentials."""
    secret_access_key: SecretStr | None = Field(
        None,
        validate_default=True,
        title="Secret Access Key",
        examples=["a012345678910ABCDEFGH/AbCdEfGhEXAMPLEKEY"],
        json_schema_extra=SECRET,
    )
    """The secret that belongs to the access key ID."""
    role_arn: str | None = Field(
        None,
        title="Role ARN",
        examples=["arn:aws:iam::123456789:role/ExternalIdIsYourWorkspaceId"],
        json_schema_extra=documented(page="iam-policy.md#keys-and-roles"),
    )
    """An AWS role to assume when no access key is given. The external ID of its trust policy comes from the environment variable
    AWS_ASSUME_ROLE_EXTERNAL_ID.
    """
    s3_bucket_name: Annotated[str, Shape(r"^[^/:\s]+$", "my-bucket, or an access point's alias, without s3:// and without a path")] = Field(
        title="S3 Bucket Name", examples=["airbyte_sync"]
    )
    """The bucket the tables are written to. It must exist. Another bucket or path starts new tables there."""
    s3_bucket_path: str = Field(title="S3 Bucket Path", examples=["data_sync/test"])
    """The directory in the bucket under which everything is written."""
    s3_bucket_region: Region = Field("", title="S3 Bucket Region", examples=["us-east-1"], json_schema_extra={"always_show": True})
    """The AWS region of the bucket. Regions of other stores go into s3.region."""
    format: Format = Field(
        title="Output Format", discriminator="format_type", json_schema_extra=documented(Applies.NEW_FILES, page="formats.md")
    )
    """The format of the final tables' files."""
    s3_endpoint: Annotated[str, AfterValidator(_endpoint_url)] | None = Field(None, title="S3 Endpoint", examples=["http://localhost:9000"])
    """The URL of an S3-compatible store. Leave it empty for AWS. Metadata services of clouds are refused."""
    s3_path_format: str | None = Field(
        None,
        title="S3 Path Format",
        examples=["${NAMESPACE}/${STREAM_NAME}/${YEAR}_${MONTH}_${DAY}_${EPOCH}_"],
        json_schema_extra=documented(Applies.NEW_FILES, page="integrations/destinations/s3-spark.md#naming"),
    )
    """How directories under the bucket path are named. By default as in the example. A table keeps the constant folder it began in."""
    file_name_pattern: str | None = Field(
        None,
        title="File Name Pattern",
        examples=["{date}", "{date:yyyy_MM}", "{timestamp}", "{part_number}", "{sync_id}"],
        json_schema_extra=documented(Applies.NEW_FILES, page="integrations/destinations/s3-spark.md#naming"),
    )
    """How files are named. By default {part_number}{format_extension}. A unique number and the extension are added."""
    tables: Tables = Field(default_factory=Tables, title="Tables", json_schema_extra=GROUPED)
    change_log: ChangeLog = Field(default_factory=ChangeLog, title="Change log", json_schema_extra=GROUPED)
    publish: Publish = Field(default_factory=Publish, title="Publishing", json_schema_extra=GROUPED)
    batching: Batching = Field(default_factory=Batching, title="Batching", json_schema_extra=GROUPED)
    s3: S3 = Field(default_factory=S3, title="S3 requests", json_schema_extra=GROUPED)
    spark: Spark = Field(default_factory=Spark, title="Spark", json_schema_extra=GROUPED)

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Parse the options of a configuration file. Raises ConfigError naming every invalid option, never a value."""
        try:
            config = cls.model_validate(options)
        except ValidationError as error:
            problems = [_problem(found, options) for found in error.errors()]
            problems += [str(option) for option in cls.unknown_beside_refused(options) if option.ours]
        else:
            # Only a configuration for this connector can mean these options, so no configuration of destination-s3 is refused.
            problems = [str(option) for option in unknown_options(config, options) if option.ours]
            if not problems:
                return config
        # Raised outside the handler: the ValidationError contains the values and must not become the context.
        raise ConfigError("The configuration cannot be used: " + "; ".join(problems) + ".")

    @classmethod
    def unknown_beside_refused(cls, options: Mapping[str, Any]) -> list[UnknownOption]:
        """Return the unknown options of a configuration of which others are refused. Parts that allow none are left out."""
        given = options.get("format")
        kind = given.get("format_type") if isinstance(given, Mapping) else None
        least = {"s3_bucket_name": "bucket", "s3_bucket_path": "", "s3_bucket_region": "", "format": {"format_type": kind}}
        try:
            like = cls.model_validate(least)
        except ValidationError:
            like = cls.model_validate({**least, "format": {"format_type": "Parquet"}})
            options = {name: value for name, value in options.items() if name != "format"}
        return [option for option in unknown_options(like, options) if len(option.path) == 1 or option.path[0] == "format"]

    @field_validator("format", mode="before")
    @classmethod
    def _in_current_spelling(cls, given: Any) -> Any:
        return with_current_spelling(given)

    @field_validator("secret_access_key")
    @classmethod
    def _keys_come_in_pairs(cls, secret: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        key_id = info.data.get("access_key_id")
        if (key_id is None) != (secret is None):
            given, absent = ("secret_access_key", "access_key_id") if key_id is None else ("access_key_id", "secret_access_key")
            raise ValueError(f"{given} is set and {absent} is not. Set both, or neither to use a role or the environment's credentials")
        return secret

    @field_validator("s3")
    @classmethod
    def _regions_of_aws_have_an_option_of_their_own(cls, s3: S3, info: ValidationInfo) -> S3:
        if s3.region is not None and info.data.get("s3_endpoint", "") is None:
            raise ValueError("region needs s3_endpoint. Set it, or give the region of AWS in s3_bucket_region")
        return s3

    @field_validator("tables")
    @classmethod
    def _only_typed_files_are_partitioned(cls, tables: Tables, info: ValidationInfo) -> Tables:
        chosen = info.data.get("format")
        if tables.partition_by and chosen is not None and chosen.format_type not in ("Parquet", "Avro"):
            raise ValueError(f"partition_by needs the format Parquet or Avro, and the format is {chosen.format_type}")
        if tables.history and chosen is not None and chosen.format_type != "Parquet":
            raise ValueError(f"history needs the format Parquet, and the format is {chosen.format_type}")
        return tables


def _names_beside(location: tuple[str, ...]) -> Iterable[str]:
    """Return the names of the options in the same part as the location; none in the parts of destination-s3."""
    part = Config.model_fields[location[0]].annotation
    return part.model_fields if isinstance(part, type) and issubclass(part, Settings) else ()


VARIANT_NAMES = frozenset(name for key in ("format_type", "compression_type", "codec") for name in SPELLINGS[key])
"""Names of union variants, which pydantic puts into the path of an error. Users know only the option names."""


def _path(location: tuple[str, ...]) -> list[str]:
    """Return the path of an option. The type of a catalog is left out only where it names a variant, because `glue` is an option too."""
    named = [part for part, outer in zip(location, ("", *location), strict=False) if not (outer == "iceberg" and part in ICEBERG_TYPES)]
    return [part for part in named if part not in VARIANT_NAMES]


def _problem(found: ErrorDetails, options: Mapping[str, Any]) -> str:
    location, context = tuple(map(str, found["loc"])), found.get("ctx", {})
    parts = _path(location)
    path = ".".join(parts) or "configuration"
    match found["type"]:
        case "missing":
            return f"{path}: is required and missing{_misspelt(parts, options)}"
        case "extra_forbidden":
            near = nearest_name(location[-1], _names_beside(location))
            return f"{path}: there is no such option{did_you_mean((*location[:-1], near) if near else None)}. Remove it or fix its spelling"
        case "literal_error":
            return f"{path}: {_choices(context['expected'], found['input'])}"
        case "union_tag_invalid" | "union_tag_not_found":
            option = context["discriminator"].strip("'")
            choices = context.get("expected_tags") or ", ".join(map(repr, SPELLINGS.get(option, ICEBERG_TYPES)))
            return f"{path}.{option}: must be one of {choices}"
        case "value_error":
            return f"{path}: {context['error']}"
        case _:  # pydantic's own messages about types and bounds contain the bound, not the value
            return f"{path}: {found['msg'][0].lower()}{found['msg'][1:]}"


def _misspelt(missing: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return a note on an option that was given beside the missing one under a similar name; empty if there is none."""
    given: Any = options
    for part in missing[:-1]:
        given = given.get(part) if isinstance(given, Mapping) else None
    unknown = [name for name in given if name not in Config.model_fields] if isinstance(given, Mapping) else []
    near = nearest_name(missing[-1], unknown) if missing else None
    return f" ({near} is given, which is no option)" if near else ""


def _choices(expected: str, given: Any) -> str:
    """Say which values an option takes: all of them, or of many those that are nearest to the given one, which is not repeated."""
    values = re.findall(r"'([^']*)'", expected)
    if len(values) <= MOST_CHOICES:
        return f"must be one of {expected}"
    near = get_close_matches(str(given).casefold(), values, 3, cutoff=0.0)
    return f"is none of the {len(values)} values it can have. Nearest are {', '.join(map(repr, near[:-1]))} and {near[-1]!r}"
