"""Where a table's files go, and how they are encoded."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.storage.paths import PathTemplate


@dataclass(frozen=True, slots=True)
class Layout:
    """`root` is the final table's folder, `folder` the connector's own one for the table, `changes` its change log's; "" or ending in "/".

    `final` and `raw` are the formats of the two tables; `raw` None: no raw table is kept.
    """

    template: PathTemplate
    root: str
    folder: str
    changes: str
    final: FileOptions
    raw: ParquetOptions | None

    @property
    def of_text(self) -> bool:
        """Whether final files hold values as the source wrote them, so that columns have no types there."""
        return self.final.values is not Values.TYPED

    def raw_key(self, number: int, token: str) -> str:
        """The key of a raw file."""
        return f"{self.folder}raw/{number}-{token}.parquet"

    def delta_key(self, number: int, token: str, extension: str) -> str:
        """The key of a file of rows that are not in the final table yet."""
        return f"{self.folder}delta/{number}-{token}{extension}"

    def state_key(self, token: str) -> str:
        """The key of a file that keeps what a final file of another format than Parquet shows, for the next merge."""
        return f"{self.folder}state/{token}.parquet"

    def tombstone_key(self, token: str) -> str:
        """The key of a file of deleted keys."""
        return f"{self.folder}tombstones/{token}.parquet"

    def scratch_prefix(self, token: str) -> str:
        """Where a task keeps rows it is sorting for a merge, or finds the lines it is to land; no block ever names them."""
        return f"{self.folder}scratch/{token}/"
