"""What particular sources send."""

from __future__ import annotations

from unit_tests.lake.messages import line

_STREAM = {"stream_descriptor": {"name": "users"}, "stream_state": {"__ab_no_cursor_state_message": True}}
END = line({"type": "STATE", "state": {"type": "STREAM", "stream": _STREAM}})
"""The state with which Python's CDK ends a stream without a cursor."""
