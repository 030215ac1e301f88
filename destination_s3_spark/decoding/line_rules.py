"""Application of a stream's column rules to its record lines, before anything is typed.

What the rules remove or replace is gone from the lines, so that nothing that is made of them holds it. All else of a line stays as it was
sent. A text in place of an object that has a treated member becomes the empty text: it could hold the member's value.

This is the reference: the kernel's lines must equal its lines, and it treats the lines that the kernel leaves.
"""

from __future__ import annotations

import hmac
import re
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType

from destination_s3_spark.decoding.changes import ChangedField, protocol_words
from destination_s3_spark.decoding.record_line import UnreadableRecord
from destination_s3_spark.errors import REPORT
from destination_s3_spark.exact_json.members import Member, after_blanks, decoded_key, malformed, members, next_token, value_end
from destination_s3_spark.exact_json.values import ARRAY, NULL, OBJECT, QUOTE, compact, string, without_lone_surrogates
from destination_s3_spark.schema.column_rules import ITEM, Action, ColumnRule, KeyPath, Treatment

EMPTY = b'""'
MOST_PADDING = 38
"""Most zeros that the canonical text of a number has instead of an exponent."""
_LONGEST_EXPONENT = 18
"""Most digits of an exponent that is computed with, so that 64 bits are enough for it."""

_INDEX = re.compile(r"\[?[0-9]+\]?")
_NUMBER = re.compile(rb"(-?)([0-9]++)(?:\.([0-9]++))?+(?:[eE]([+-]?+)0*+([0-9]*+))?+")
_CHARACTER = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\.|[^\\\x80-\xbf][\x80-\xbf]*+"
_CODES = {Action.DROP: 1, Action.NULL: 2, Action.HASH: 3, Action.TRUNCATE: 4}
"""The kernel's codes of the actions. 0 keeps a member."""


def number_text(text: bytes) -> bytes:
    """Return the canonical text of a number: its exact value, without an exponent unless it would need many zeros.

    Equal numbers have equal texts, except those with an exponent beyond 18 digits. NaN, Infinity and -Infinity stay.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        return text
    sign, whole, fraction, minus, exponent = match.groups(b"")
    if len(exponent) > _LONGEST_EXPONENT:
        return text
    digits = (whole + fraction).lstrip(b"0")
    if not digits:
        return b"0"
    significant = digits.rstrip(b"0")
    power = int(minus + (exponent or b"0")) - len(fraction) + len(digits) - len(significant)
    point = len(significant) + power
    if 0 <= power <= MOST_PADDING:
        return sign + significant + b"0" * power
    if power < 0 < point:
        return sign + significant[:point] + b"." + significant[point:]
    if -MOST_PADDING <= point <= 0:
        return sign + b"0." + b"0" * -point + significant
    return b"%b%be%d" % (sign, significant, power)


def value_text(text: bytes) -> bytes:
    """Return the text of a JSON value, in UTF-8, which is hashed or cut: a string's own, the compact JSON text of any other value."""
    if text[0] == QUOTE:
        return without_lone_surrogates(string(text)).encode()
    return compact(text) if text[0] in (OBJECT, ARRAY) else number_text(text)


def replacement(text: bytes, rule: ColumnRule, secret: bytes) -> bytes:
    """Return the JSON text that takes the place of a value's. Null stays null."""
    if text == NULL or rule.action is Action.NULL:
        return NULL
    if rule.action is Action.HASH:
        return b'"%b"' % hmac.digest(secret, value_text(text), "sha256").hex().encode()
    is_string = text[0] == QUOTE
    inner = text[1:-1] if is_string else value_text(text).replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    cut = re.compile(rb"(?s:%b){0,%d}" % (_CHARACTER, rule.length)).match(inner)
    end = 0 if cut is None else cut.end()
    return text if is_string and end == len(inner) else b'"%b"' % inner[:end]


class _Open:
    """A container that is being read. `start`: where its current member begins. `comma`: the comma before that. `kept`: whether one was."""

    __slots__ = ("closer", "comma", "kept", "path", "start")

    def __init__(self, opening: int, path: KeyPath, start: int) -> None:
        self.closer = b"}" if opening == OBJECT else b"]"
        self.path = path
        self.start = start
        self.comma: int | None = None
        self.kept = False

    def ends_with(self, token: re.Match[bytes]) -> bool:
        """Go on behind a member: return True at the end of the container, or False at a comma. Raises ValueError for anything else."""
        mark = token.group("mark")
        if mark == b",":
            self.comma, self.start = token.start("mark"), token.end()
        elif mark != self.closer:
            raise malformed()
        return mark == self.closer


class _Pieces:
    """What is left of a text. `done` is the position up to which the text was taken over or replaced."""

    def __init__(self, text: bytes, start: int) -> None:
        self._text = text
        self._pieces: list[bytes] = []
        self._done = start

    def replace(self, start: int, end: int, by: bytes = b"") -> None:
        self._pieces += self._text[self._done : start], by
        self._done = end

    def joined(self, end: int) -> bytes:
        return b"".join([*self._pieces, self._text[self._done : end]])


class LineRules:
    """The rules of one stream, as they apply to its lines."""

    def __init__(self, treatment: Treatment) -> None:
        self._treatment = treatment

    def applied(self, lines: bytes) -> bytes:
        """Return whole record lines with their rules applied. Raises UnreadableRecord with the ordinal of a line that is no record."""
        texts = lines.removesuffix(b"\n").split(b"\n") if lines else ()
        return b"".join(self.line(row, text) + b"\n" for row, text in enumerate(texts))

    def line(self, row: int, line: bytes) -> bytes:
        """Return one line with the rules applied. Raises UnreadableRecord with the row if it is no record."""
        try:
            record = _last(members(line), "record")
            data = _last(members(line, record.start, record.end), "data")
            return line[: data.start] + self._data(line, data.start, data.end) + line[data.end :]
        except ValueError:
            raise UnreadableRecord(row) from None

    def changes(self, found: Iterable[ChangedField]) -> list[ChangedField]:
        """Return the source's changes in the protocol's words and with declared fields alone. Any other text in them could be a value."""
        return [ChangedField(self._declared(field), *protocol_words(change, reason)) for field, change, reason in found]

    def _declared(self, field: str | None) -> str | None:
        path = tuple(part for part in (field or "").split(".") if not _INDEX.fullmatch(part))
        return field if path in self._treatment.declared else None

    def _data(self, text: bytes, start: int, end: int) -> bytes:
        """Return the object at `text[start:end]` with the rules applied. One loop for all levels, so that no depth is too large."""
        if text[start] != OBJECT:
            raise malformed()
        pieces = _Pieces(text, start)
        around = [_Open(OBJECT, (), start + 1)]
        while around:
            container = around[-1]
            token = next_token(text, container.start, end)
            if container.comma is None and token.group("mark") == container.closer:
                around.pop()
                position = token.end()
            else:
                entered = self._value(text, token, end, around, pieces)
                if entered is None:
                    continue
                position = entered
            while around and around[-1].ends_with(token := next_token(text, position, end)):
                around.pop()
                position = token.end()
        return pieces.joined(end)

    def _value(self, text: bytes, token: re.Match[bytes], end: int, around: list[_Open], pieces: _Pieces) -> int | None:
        """Treat the member that begins with a token, and return the end of its value, or None if its container was entered."""
        container = around[-1]
        start = after_blanks(text, container.start, end)
        path, (rule, inside) = container.path, ITEM
        if container.closer == b"}":
            key = token.group("string")
            colon = next_token(text, token.end(), end)
            if key is None or colon.group("mark") != b":":
                raise malformed()
            start = after_blanks(text, colon.end(), end)
            path = (*path, decoded_key(key))
            rule, inside = self._treatment.decide(path)
        if rule is not None:
            return self._replaced(text, start, end, rule, container, pieces)
        container.kept = True
        if inside and text[start : start + 1] in (b"{", b"["):
            around.append(_Open(text[start], path, start + 1))
            return None
        behind = value_end(text, start, end)
        if inside and path in self._treatment.around and text[start:behind] != NULL:
            pieces.replace(start, behind, EMPTY)
        return behind

    def _replaced(self, text: bytes, start: int, end: int, rule: ColumnRule, container: _Open, pieces: _Pieces) -> int:
        behind = value_end(text, start, end)
        if rule.action is not Action.DROP:
            container.kept = True
            pieces.replace(start, behind, replacement(text[start:behind], rule, self._treatment.secret))
            return behind
        token = next_token(text, behind, end)
        mark = token.start("mark")
        if container.kept and container.comma is not None:
            pieces.replace(container.comma, mark)
        else:
            pieces.replace(container.start, token.end() if token.group("mark") == b"," else mark)
        return behind


class NativeLineRules(LineRules):
    """The same by the kernel, which asks for a decision on each key it does not know yet."""

    def __init__(self, treatment: Treatment, kernel: ModuleType) -> None:
        super().__init__(treatment)
        self._paths: list[KeyPath] = [()]
        self._kernel = kernel.LineRules(treatment.secret, self._coded)

    def applied(self, lines: bytes) -> bytes:
        try:
            treated, odd = self._kernel.applied(lines)
        except RuntimeError:
            # The process may be a worker, which has no other way to say it. Nothing of the records is in it.
            sys.stderr.write(f"The native kernel failed on a block of lines with column rules; Python treated it. {REPORT}\n")
            return super().applied(lines)
        return treated if not odd else b"".join(self._with_odd(lines, treated, odd))

    def _with_odd(self, lines: bytes, treated: bytes, odd: Iterable[tuple[int, int, int, int]]) -> Iterator[bytes]:
        """Yield the lines that the kernel treated, and those that it left out: their rows, places in `lines`, and places in `treated`."""
        done = 0
        for row, start, end, at in odd:
            yield treated[done:at]
            yield self.line(row, lines[start:end]) + b"\n"
            done = at
        yield treated[done:]

    def _coded(self, place: int, key: bytes) -> tuple[int, int, int, bool]:
        """Decide on a member for the kernel, which asks once, given the number of its object's place and its key as quoted in the line.

        Return the code and the length of its action, the number of its own place if there is something to decide in it, else 0, and whether
        only an object is kept there.
        """
        path = (*self._paths[place], decoded_key(key))
        rule, inside = self._treatment.decide(path)
        if rule is not None:
            return _CODES[rule.action], rule.length, 0, False
        if not inside:
            return 0, 0, 0, False
        self._paths.append(path)
        return 0, 0, len(self._paths) - 1, path in self._treatment.around


def rules_of_members(treatment: Treatment) -> tuple[list[tuple[bytes, int, int]], bytes] | None:
    """Return the rules and the secret for the kernel's typing, which treats lines as it types them, or None if it cannot.

    It can treat a record's own members alone, whose names it is told: others have to be found in a pass of their own.
    """
    of_members = None if treatment.idle else treatment.of_members()
    if of_members is None:
        return None
    return [(key.encode(), _CODES[rule.action], rule.length) for key, rule in of_members.items()], treatment.secret


def _last(found: list[Member], key: str) -> Member:
    """Return the member that counts among those of a key. Raises ValueError if there is none."""
    of_key = [member for member in found if member.key == key]
    if not of_key:
        raise malformed()
    return of_key[-1]
