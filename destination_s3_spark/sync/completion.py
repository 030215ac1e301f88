"""Completion of a sync's streams: what the input proves about the end of each.

With generations in the catalog, Airbyte's platform sends a COMPLETE status for each stream of a source that ended well. Without them no
status comes, and the input of a source that died ends like that of one that finished. Then only STATEs tell them apart.
"""

from __future__ import annotations

from enum import Enum

from destination_s3_spark.exact_json.values import split_object
from destination_s3_spark.protocol.catalog import Stream
from destination_s3_spark.protocol.state import StateKind, StateMessage

END_MARKS = ("__ab_full_refresh_sync_complete", "__ab_no_cursor_state_message")
"""Members of a stream's state with which sources of Airbyte's Python CDK say that they have read all of it."""


class Completion(Enum):
    """The knowledge about a stream's end."""

    UNFINISHED = "unfinished"
    """Records are missing, or may be: what no STATE covers is sent again."""
    UNPROVEN = "unproven"
    """All records that came are covered, but the source may have died between two checkpoints."""
    PROVED = "proved"


def proved_by(state: StateMessage | None, index: int, stream: Stream, records: int) -> Completion:
    """Return the completion that a stream's last STATE proves. `state` is None if records came after it, or none came at all."""
    if state is None:
        return Completion.UNFINISHED
    blob = state.blob_of(index)
    if blob is None:
        return Completion.UNPROVEN
    members = split_object(blob) if blob.startswith(b"{") else {}
    if any(members.get(mark) == b"true" for mark in END_MARKS):
        return Completion.PROVED
    cleared = blob == b"null" and not records  # how the platform clears a stream
    # A source begins with an empty state, too: in the entry of a GLOBAL state it says nothing about records.
    is_empty = (blob == b"null" or (blob.startswith(b"{") and not members)) and state.kind is not StateKind.GLOBAL
    return Completion.PROVED if cleared or (is_empty and not stream.is_resumable) else Completion.UNPROVEN
