"""What a table already has of the generation that is to replace it: its STATEs are out, so these rows stay when it is published."""

from __future__ import annotations

from dataclasses import dataclass

from destination_s3_spark.chain.files import FileEntry, FileKind
from destination_s3_spark.chain.live_files import LiveFiles
from destination_s3_spark.chain.opening import WriteDisposition
from destination_s3_spark.chain.state import Contents
from destination_s3_spark.tables.commit.writer import TableWriter


@dataclass(frozen=True, slots=True)
class Kept:
    """`files` hold the `rows` that stay: as they landed, or the raw ones where a merge has put the rows among others.

    `raw` are their raw files, `adopted` the keys of files that destination-s3 wrote in the same generation.
    """

    rows: int = 0
    files: tuple[FileEntry, ...] = ()
    raw: tuple[FileEntry, ...] = ()
    adopted: frozenset[str] = frozenset()

    @property
    def final(self) -> tuple[FileEntry, ...]:
        """The final files among the files."""
        return tuple(file for file in self.files if file.kind is FileKind.FINAL)

    @property
    def deltas(self) -> tuple[FileEntry, ...]:
        """Those that never came into the final table."""
        return tuple(file for file in self.files if file.kind is FileKind.DELTA)


NOTHING = Kept()


def kept_rows(writer: TableWriter, disposition: WriteDisposition) -> Kept | None:
    """What stays when the pending generation of an open table is published; None where no files hold all of it.

    Rows that replace all others, as in mode `overwrite` without generations, leave nothing.
    """
    contents = writer.open().contents
    if contents.pending is None or disposition is not WriteDisposition.TRUNCATE or not (contents.current_rows or contents.adopted):
        return NOTHING
    live = writer.live_files()
    adopted = _adopted(writer, live, contents)
    own = live.of_generation(contents)
    raw = tuple(file for file in own if file.kind is FileKind.RAW)
    landed = tuple(file for file in own if file.kind is not FileKind.RAW)
    for files in (landed, raw):
        if sum(file.rows for file in files) == contents.current_rows:
            return Kept(contents.current_rows, files, raw, adopted)
    return None


def _adopted(writer: TableWriter, live: LiveFiles, contents: Contents) -> frozenset[str]:
    """The adopted files of the generation. Once a session was of another one, an equal number of theirs says nothing any more."""
    if contents.current_from:
        return frozenset()
    generations = writer.map_files(writer.generation_of, live.adopted)
    return frozenset(key for key, found in zip(live.adopted, generations, strict=True) if found == contents.generation)
