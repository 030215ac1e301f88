from __future__ import annotations

import json
import sys

from destination_s3_spark.stream_id import StreamId
from destination_s3_spark.wording import LINE_END, printable, printable_json, spreadsheet_cell
from unit_tests.cases import each

EVERY_CHARACTER = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


def test_what_is_left_can_be_seen() -> None:
    assert printable(EVERY_CHARACTER, LINE_END).isprintable()
    assert printable("Grüße 東京 ☃ \U0001f600") == "Grüße 東京 ☃ \U0001f600"
    assert printable("a\tb\nc\ud800") == "a b\nc�"


def test_json_keeps_every_character() -> None:
    document = printable_json(json.dumps([EVERY_CHARACTER], ensure_ascii=False, indent=2).encode())
    assert json.loads(document) == [EVERY_CHARACTER]
    assert document.decode().replace("\n", "").isprintable()


@each(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@a", "'@a"),
        ("\t=1", " =1"),
        ("\r=1", "�=1"),
        ("a\nb", "a␤b"),
        ("a=1", "a=1"),
        ("", ""),
    ],
)
def test_a_cell_is_one_line_of_text(text: str, cell: str) -> None:
    assert spreadsheet_cell(text) == cell


def test_a_stream_is_shown_on_one_line() -> None:
    assert str(StreamId("shop", "a\n[1/1] b: all is well\x1b[2J")) == "shop.a␤[1/1] b: all is well�[2J"
