"""Which incoming checkpoints count as replays of committed ones."""

from __future__ import annotations

from destination_s3_spark.chain.state import Checkpoint, ReplayGuard
from unit_tests.cases import each


def checkpoints(names: str) -> list[Checkpoint]:
    return [Checkpoint(name, 1, "00", 0) for name in names]


@each(
    ("committed", "incoming", "replayed", "still_active"),
    [
        ("", "a", 0, False),
        ("abc", "", 0, True),
        ("abc", "a", 1, True),
        ("abc", "abc", 3, False),
        ("abc", "bc", 2, False),
        ("abc", "bcd", 2, False),
        ("abc", "c", 1, False),
        ("abc", "x", 0, False),
        ("abc", "ac", 1, False),
        ("abc", "xabc", 0, False),
        # A source that repeats itself: the rightmost match leaves the fewest records to drop.
        ("aab", "ab", 2, False),
        ("aaa", "aaa", 1, False),
        ("abab", "ab", 2, False),
    ],
)
def test_replays_are_counted_from_the_first_on(committed: str, incoming: str, replayed: int, still_active: bool) -> None:
    guard = ReplayGuard(checkpoints(committed))
    found = guard.count_replayed(checkpoints(incoming))
    guard.accept(checkpoints(incoming), found)

    assert found == replayed
    assert guard.active is still_active


def test_the_order_is_kept_from_commit_to_commit() -> None:
    guard = ReplayGuard(checkpoints("abcd"))
    for incoming, replayed in (("b", 1), ("c", 1), ("c", 0), ("d", 0)):
        found = guard.count_replayed(checkpoints(incoming))
        guard.accept(checkpoints(incoming), found)

        assert found == replayed
    assert not guard.active


def test_accepting_fewer_than_were_counted_ends_the_guard() -> None:
    guard = ReplayGuard(checkpoints("abc"))
    assert guard.count_replayed(checkpoints("ab")) == 2
    guard.accept(checkpoints("ab"), 1)

    assert not guard.active
