"""The `publish.iceberg` part of the configuration: the catalog in which tables are registered. Users read titles and docstrings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from destination_s3_spark.config.settings_model import Settings, Shape

HIDDEN: dict[str, Any] = {"airbyte_secret": True}

Namespace = Annotated[str, Shape(r"^[a-z0-9_]{1,255}$", "shop_lake, in lower-case letters, digits and underscores")]
NAMESPACE_OPTION: Any = Field(
    None,
    title="Namespace",
    description=(
        "The namespace (in Glue, the database) of all tables, made if it does not exist. By default that of the stream, or default."
    ),
    examples=["shop"],
)


def _http_url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("is not a URL. Write it like https://catalog.example.com/api/catalog")
    return text


class IcebergRest(Settings):
    """A REST catalog: Polaris, Gravitino, Nessie, Snowflake Open Catalog and others, without SigV4."""

    model_config = ConfigDict(title="REST catalog")
    type: Literal["rest"] = "rest"
    uri: Annotated[str, AfterValidator(_http_url)] = Field(title="URI", examples=["https://catalog.example.com/api/catalog"])
    """The URL of the catalog's REST API, without /v1."""
    warehouse: str | None = Field(None, title="Warehouse", examples=["lake"])
    """The name of the catalog or warehouse, where the server has several."""
    credential: SecretStr | None = Field(None, title="Credential", json_schema_extra=HIDDEN, examples=["id:secret"])
    """The client id and the client secret for OAuth2, separated by a colon."""
    token: SecretStr | None = Field(None, title="Token", json_schema_extra=HIDDEN, examples=["eyJhbGciOi..."])
    """A bearer token, in place of a credential."""
    scope: str | None = Field(None, title="Scope", examples=["PRINCIPAL_ROLE:ALL"])
    """The OAuth2 scope to ask for. By default catalog."""
    oauth2_server_uri: Annotated[str, AfterValidator(_http_url)] | None = Field(
        None, title="OAuth2 server URI", examples=["https://login.example.com/oauth/token"]
    )
    """The URL that issues tokens. By default that of the catalog itself."""
    namespace: Namespace | None = NAMESPACE_OPTION


class IcebergGlue(Settings):
    """AWS Glue, with the credentials and the region of the bucket."""

    model_config = ConfigDict(title="AWS Glue")
    type: Literal["glue"] = "glue"
    namespace: Namespace | None = NAMESPACE_OPTION


class IcebergSql(Settings):
    """A PostgreSQL database that Iceberg's JDBC catalogs share."""

    model_config = ConfigDict(title="SQL database")
    type: Literal["sql"] = "sql"
    database_uri: SecretStr = Field(
        title="Database URI", examples=["postgresql+psycopg2://airbyte:password@db.example.com/iceberg"], json_schema_extra=HIDDEN
    )
    """The URI of the PostgreSQL database with user and password, as SQLAlchemy reads it, with one host. Write @ in them as %40."""
    catalog_name: str = Field("default", title="Catalog name", examples=["lake"])
    """The catalog's name in the database, for readers too."""
    namespace: Namespace | None = NAMESPACE_OPTION


IcebergOptions = IcebergRest | IcebergGlue | IcebergSql
ICEBERG_TYPES = ("rest", "glue", "sql")
