"""Layout of a table: the keys of its files and their formats."""

from __future__ import annotations

from dataclasses import dataclass, replace

from destination_s3_spark.decoding.plan import Values
from destination_s3_spark.formats.file_format import FileOptions
from destination_s3_spark.formats.parquet import ParquetOptions
from destination_s3_spark.schema.encodings import Encodings
from destination_s3_spark.storage.paths import PathTemplate


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of a table and the formats of its files. Each folder is "" or ends in "/"."""

    template: PathTemplate
    root: str
    """The folder of the final files."""
    folder: str
    """The connector's own folder for the table."""
    changes: str
    """The folder of the table's change log."""
    final: FileOptions
    raw: ParquetOptions | None
    """The format of raw files, or None to keep no raw table."""

    @property
    def of_text(self) -> bool:
        """Whether final files hold the values as text from the source. Their columns then have no types."""
        return self.final.values is not Values.TYPED

    def encoded(self, encodings: Encodings) -> Layout:
        """Return the layout of a table with these encodings in its final and raw files, where these are Parquet."""
        final = replace(self.final, encodings=encodings) if isinstance(self.final, ParquetOptions) else self.final
        raw = None if self.raw is None else replace(self.raw, encodings=encodings)
        return replace(self, final=final, raw=raw)

    def raw_key(self, number: int, token: str) -> str:
        """Return the key of a raw file."""
        return f"{self.folder}raw/{number}-{token}.parquet"

    def delta_key(self, number: int, token: str, extension: str) -> str:
        """Return the key of a file of rows that are not in the final table yet."""
        return f"{self.folder}delta/{number}-{token}{extension}"

    def state_key(self, token: str) -> str:
        """Return the key of a merge state: the Parquet copy that the next merge reads instead of a final file of another format."""
        return f"{self.folder}state/{token}.parquet"

    def tombstone_key(self, token: str) -> str:
        """Return the key of a file of deleted keys."""
        return f"{self.folder}tombstones/{token}.parquet"

    def scratch_prefix(self, token: str) -> str:
        """Return the prefix of a task's temporary objects: rows being sorted for a merge, or lines to land. No block names them."""
        return f"{self.folder}scratch/{token}/"
