from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html import escape

from destination_s3_spark.chain.files import FileKind
from destination_s3_spark.cli.inspection.commits import MergeCost, SyncEnd
from destination_s3_spark.cli.inspection.summary import PublisherState, ReaderState
from destination_s3_spark.cli.inspection.table import FileStatus, RecordedChange
from destination_s3_spark.cli.report.figures import TableFigures, findings
from destination_s3_spark.cli.report.page import page, render
from destination_s3_spark.cli.report.scales import HEIGHT, WIDTH, Absent, Chart, thinned
from destination_s3_spark.cli.report.table_charts import (
    FIELDS_DRAWN,
    Quality,
    duration,
    files_by_size,
    growth,
    points_of,
    quality,
    rewritten,
    throughput,
)
from destination_s3_spark.tables.found import UnreadTable
from unit_tests.cases import each
from unit_tests.cli.report.figures import ROWS, START, at, commit, figures, file, sync, value

EMPTY = replace(figures(syncs=0), schemas=())


def html(*tables: TableFigures, unread: tuple[UnreadTable, ...] = ()) -> str:
    return render(page("s3://lake/airbyte/", tables, unread, START))


def drawn(chart: Chart | Absent) -> Chart:
    assert isinstance(chart, Chart)
    return chart


def numbers(chart: Chart | Absent) -> list[list[float]]:
    return [[cell.value for cell in row if cell.value is not None] for row in drawn(chart).numbers.rows]


def test_the_table_grows_with_each_commit_that_was_not_taken_back() -> None:
    commits = (commit(0, 0, kind="Seed"), commit(1, 500), commit(2, 900, taken_back=True), commit(4, 2_000, kind="MergeData"))
    chart = drawn(growth(replace(figures(), commits=commits), "table_rows", 100))

    assert numbers(chart) == [[1, 500], [4, 2_000]]
    assert chart.lead == "2,000 rows after 2 commits, 500 rows after the first of them."
    # The line goes up where the rows came in, and the last value holds until the end.
    assert chart.line == f"M0 {HEIGHT * 0.75:.1f}H970.0V0.0H{WIDTH}"
    assert [mark.title for mark in chart.marks] == ["2026-03-02 12:30:00, block 1: 500 rows", "2026-03-05 12:30:00, block 4: 2,000 rows"]


def test_a_table_of_one_commit_is_a_level_line() -> None:
    chart = drawn(growth(figures(syncs=1), "table_bytes", 100))

    assert (chart.line, chart.lead) == (f"M0 0.0H{WIDTH}", "1.0 MB after 1 commit.")
    assert chart.marks[0].width == WIDTH


def test_very_many_commits_are_thinned_and_the_page_says_so() -> None:
    table = figures(syncs=10_000)
    chart = drawn(growth(table, "table_rows", points_of(1)))

    assert len(chart.numbers.rows) == 240
    assert (numbers(chart)[0], numbers(chart)[-1]) == ([0, ROWS], [9_999, 10_000 * ROWS])
    assert chart.remark == "240 of 10,000 commits are drawn, evenly chosen."
    assert drawn(duration(table)).remark == "The newest 60 of 10,000 syncs are drawn."
    assert len(html(table)) < 500_000


def test_a_page_of_very_many_tables_is_folded_and_small() -> None:
    text = html(*(figures(f"table {number}", 300) for number in range(100)))

    assert len(text) < 15_000_000
    assert '<details class="table" id="table-1">' in text
    assert "The page has 100 tables" in text
    assert '<details class="table" id="table-1" open>' in html(figures())


def test_thinning_keeps_the_ends() -> None:
    assert thinned(range(10), 4) == (0, 3, 6, 9)
    assert thinned(range(3), 4) == (0, 1, 2)


def test_each_sync_is_a_bar_in_the_look_of_its_end() -> None:
    syncs = (sync(0), sync(1, SyncEnd.UNCLEAN, duration_s=20), sync(2, SyncEnd.OPEN, duration_s=None))
    table = replace(figures(), syncs=(*syncs, replace(sync(3), sync_id=None)))
    chart = drawn(duration(table))

    assert [(mark.look, mark.height) for mark in chart.marks] == [("plain", HEIGHT / 2), ("unclean", HEIGHT), ("open", 0)]
    assert chart.lead == "The last took ?, the longest 20.0 s; 1 ended cleanly, 1 ended not cleanly, 1 still open."
    assert [name for _, name in chart.legend] == ["ended cleanly", "ended not cleanly", "still open"]
    assert [row[4].text for row in drawn(throughput(table)).numbers.rows] == ["100", "50", "?"]


def test_files_are_counted_in_classes_of_their_size() -> None:
    others = (file(9, FileKind.RAW), file(9, standing=FileStatus.PENDING), file(None, FileKind.ADOPTED))
    chart = files_by_size(replace(figures(), files=(file(1_500), file(2_000), file(4_999), file(5_000), *others)))

    assert [(row[0].text, row[1].value) for row in drawn(chart).numbers.rows] == [
        ("1 kB to 2 kB", 1),
        ("2 kB to 5 kB", 2),
        ("5 kB to 10 kB", 1),
    ]


def test_values_have_bars_by_field_over_all_syncs_in_one_scale() -> None:
    found = quality(figures(values=[value(0, "day", 10), value(0, "lines.[].n", 40), value(2, "day", 20)]))

    assert isinstance(found, Quality)
    assert found.lead == "70 values in 3 syncs became null or were cut; 20 in the last sync."
    assert found.top == "4 %"
    assert [(row.field, row.total, row.last, [mark.height for mark in row.marks]) for row in found.fields] == [
        ("lines.[].n", "40 values", "0.00 %", [HEIGHT]),
        ("day", "30 values", "2.00 %", [HEIGHT / 4, HEIGHT / 2]),
    ]


def test_values_of_a_sync_that_began_before_the_blocks_that_were_read_have_its_place() -> None:
    table = figures(values=[value(0, None, 10)])
    cut = replace(table, syncs=(replace(table.syncs[0], started_at=None), *table.syncs[1:]))

    assert isinstance(found := quality(cut), Quality)
    assert (found.fields[0].field, found.fields[0].marks[0].x < WIDTH / 3) == ("fields that are not recorded", True)


def test_values_of_syncs_that_are_not_drawn_are_not_forgotten() -> None:
    found = quality(figures(syncs=100, values=[value(0, "day", 10)]))

    assert isinstance(found, Absent)
    assert found.words == "Every value of the newest 60 syncs fitted its declared type. 10 values of earlier syncs did not."


def test_very_many_fields_are_cut_and_the_page_says_so() -> None:
    found = quality(figures(values=[value(number % 3, f"field {number}", number + 1) for number in range(900)]))

    assert isinstance(found, Quality)
    assert (len(found.fields), len(found.numbers.rows)) == (FIELDS_DRAWN, 500)
    assert found.remark == ("The 12 of 900 fields and reasons with the most values are drawn. The table has the newest 500 of 900 numbers.")


def test_what_is_not_there_is_said_in_words() -> None:
    text = html(EMPTY)

    assert "Every value fitted its declared type." in text
    assert "No commit of data among the blocks that were read." in text
    assert "No sync began among the blocks that were read." in text
    assert "The final table has no files." in text
    assert "No schema yet." in text
    assert "Nothing: every commit is settled" in text
    assert "<svg" not in text


def test_names_cannot_become_markup_or_turn_the_text_around() -> None:
    name = '"><script>alert(1)</script>\u202e\x1b[31m'
    bad = figures(name, values=[value(0, name, 1)])
    change = RecordedChange(0, name, START, 1, 1, "KeyAddition", name, None, name)
    reader = PublisherState(name, name, ReaderState.REFUSED, None, name)
    text = html(replace(bad, schemas=(change,), readers=(reader,)), unread=(UnreadTable(name, name),))

    assert "<script" not in text
    assert not set("\u202e\x1b") & set(text)
    assert escape('"><script>alert(1)</script>', quote=True).replace("&quot;", "&#34;") in text


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    text = html(figures())

    assert "default-src 'none'" in text
    assert re.findall(r"""(?:src|href)="(?!#)|url\(|@import|https?://""", text) == []


def attention(table: TableFigures) -> list[str]:
    return [found.what for found in findings([table], [])]


def test_what_is_unfinished_behind_or_lost_is_at_the_top() -> None:
    table = figures(values=[value(1, "day", 5), value(2, "day", 3), value(2, "n", 1)])
    behind = PublisherState("shop.orders", "glue", ReaderState.BEHIND, 2, None)
    about = replace(table.summary, unsettled_block=9, unsettled_is_read=False, last_session_end=SyncEnd.OPEN, pending_generation=4)

    assert attention(figures()) == []
    assert attention(figures(values=[value(0, "day", 5)])) == [], "a later sync had no such values"
    assert attention(replace(table, summary=about, readers=(behind,), open_uploads=2)) == [
        "commit 9 is not settled; its files are not all there and do not count here",
        "open since 2026-03-03 12:30:00 UTC",
        "2 open uploads, invisible but paid for",
        "generation 4 waits to replace the table",
        "glue is behind by 2 blocks",
        "4 of the last sync’s values became null or were cut, in 2 fields",
    ]


@each(
    ("reader", "what"),
    [
        (
            PublisherState("t", "delta", ReaderState.REFUSED, None, "two tables share a folder"),
            "delta is not published: two tables share a folder",
        ),
        (PublisherState("t", "symlink", ReaderState.UNPUBLISHED, None, None), "symlink: nothing is published yet"),
    ],
)
def test_publishers_that_fail_are_at_the_top(reader: PublisherState, what: str) -> None:
    assert attention(replace(figures(), readers=(reader,))) == [what]


def test_uploads_that_the_store_does_not_list_are_not_none() -> None:
    assert "not known: the store did not list them" in html(replace(figures(), open_uploads=None))


def test_schemas_are_told_newest_first() -> None:
    changes = [RecordedChange(0, "1-0-0", at(0), 1, 4, None, None, None, None)]
    changes += [RecordedChange(1, "2-0-0", at(1), 5, 6, "Recovery", f"/f{number}", "integer", "string") for number in range(10)]
    first, second, *others = timeline(changes)
    assert others == []
    assert first.startswith("version 2-0-0 2026-03-02 12:30:00 UTC, block 5 · 6 columns Recovery /f0: integer → string ")
    assert first.endswith(" Recovery /f7: integer → string and 2 more")
    assert second == "version 1-0-0 2026-03-01 12:30:00 UTC, block 1 · 4 columns"
    many = [RecordedChange(number, None, START + timedelta(days=number), number, 1, None, None, None, None) for number in range(15)]
    assert "3 earlier schemas not shown." in html(replace(figures(), schemas=tuple(many)))
    assert timeline(many)[0].startswith("schema 14 ")


def timeline(changes: list[RecordedChange]) -> list[str]:
    """The words about each schema on the page."""
    _, _, shown = html(replace(figures(), schemas=tuple(changes))).partition('<ol class="timeline">')
    items = shown.partition("</ol>")[0].split("<li><strong>")[1:]
    return [" ".join(re.sub(r"<[^>]*>", " ", item).split()) for item in items]


@each(("size", "costly"), [(10**9, False), (10**9 + 1, True)])
def test_costly_merges_of_large_tables_are_something_to_look_at(size: int, costly: bool) -> None:
    cost = MergeCost(2, 100, 2 * size, size / 50, "The setting tables.merge helps")
    table = replace(figures(), merges=cost)
    found = [(finding.what, finding.next_step) for finding in findings([table], ())]
    assert found == ([(f"costly merges: {cost.figures}", "The setting tables.merge helps.")] if costly else [])
    assert f"<dt>Merges</dt><dd>{cost}</dd>" in html(table)


def test_rewritten_bytes_are_drawn_for_syncs_and_for_commands_that_rewrote() -> None:
    assert rewritten(figures()) == ()
    rewrote, idle = replace(sync(3), sync_id=None, bytes_rewritten=5_000), replace(sync(4), sync_id=None)
    (chart,) = rewritten(replace(figures(), syncs=(replace(sync(0), bytes_rewritten=9_000), sync(1), rewrote, idle)))
    assert chart.lead == "The last: 5.0 kB; the most: 9.0 kB; together: 14.0 kB."
    assert [row[-2].value for row in chart.numbers.rows] == [9_000, 0, 5_000]
    assert chart.x_ticks[-1].text == "maintenance"
