//! Columns: the values of one (nested) field in the rows so far, in the layout of Arrow's buffers.
//!
//! A value is written at a position. Positions that were left out are null. A value that is not a plain one of the column's type is written
//! as null and noted: as odd, with its place in the lines, so that Python converts it; or as nulled, if the type never accepts a value of
//! that kind.

use crate::keys::Keys;
use crate::scan::{Holds, NotPlain, Number, Plain, Quoted, Scanner, compact, require_shallow, unescape};
use crate::temporal;

const DOUBLE_MAX: f64 = f64::MAX;
/// Powers of ten that are exact as a double. If the mantissa is exact too, a single division rounds correctly.
const EXACT_POWERS: [f64; 19] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];
/// Powers of ten up to the largest decimal.
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut exponent = 1;
    while exponent < 39 {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};
const EXACT_MANTISSA: u64 = 1 << 53;

/// A value for Python to convert: its position in the column, and the start and end of its text in the lines.
#[derive(Clone, Copy)]
pub struct Odd {
    pub position: usize,
    pub start: usize,
    pub end: usize,
}

/// Texts, laid end to end.
pub struct Texts {
    pub offsets: Vec<i32>,
    pub data: Vec<u8>,
}

/// The values of a column. `Other` is a type that the kernel does not support: all of its values are odd.
pub enum Body {
    Boolean(Vec<u8>),
    Integer(Vec<i64>),
    Number(Vec<f64>),
    /// Integers in units of the last digit after the point. `limit` is the least one with too many digits.
    Decimal {
        scale: usize,
        limit: i128,
        values: Vec<i128>,
    },
    Date(Vec<i32>),
    Time {
        shifted: bool,
        values: Vec<i64>,
    },
    Timestamp {
        shifted: bool,
        values: Vec<i64>,
    },
    Text(Texts),
    Json {
        opening: u8,
        texts: Texts,
    },
    /// Values of any kind as compact JSON text.
    Cell(Texts),
    Object {
        keys: Keys,
        members: Vec<Column>,
    },
    Array {
        offsets: Vec<i32>,
        items: Box<Column>,
    },
    Other,
}

pub struct Column {
    pub len: usize,
    /// Runs of null positions, as the first position and the one behind the last.
    pub nulls: Vec<(u32, u32)>,
    pub odd: Vec<Odd>,
    pub nulled: Vec<i64>,
    /// Whether a date, a time or a number is odd if the column's type might not hold all of it. Set for key columns, whose cut values would
    /// make different keys equal.
    pub whole: bool,
    pub body: Body,
}

impl Body {
    /// An empty column of decimals. None if there is no such decimal.
    pub fn decimal(precision: usize, scale: usize) -> Option<Body> {
        let limit = *POWERS.get(precision)?;
        (scale <= precision).then_some(Body::Decimal { scale, limit, values: Vec::new() })
    }
}

impl Texts {
    pub fn new() -> Self {
        Texts { offsets: vec![0], data: Vec::new() }
    }

    pub fn push(&mut self, text: &[u8]) {
        self.data.extend_from_slice(text);
        self.close();
    }

    #[inline]
    pub fn close(&mut self) {
        self.offsets.push(self.data.len() as i32); // fits: texts are no longer than the lines, which are below 2 GiB
    }

    fn truncate(&mut self, len: usize) {
        self.offsets.truncate(len + 1);
        self.data.truncate(self.offsets[self.offsets.len() - 1] as usize);
    }

    /// Empty texts with capacity for as much as these hold.
    fn like(&self) -> Self {
        let mut offsets = roomy(&self.offsets);
        offsets.push(0);
        Texts { offsets, data: roomy(&self.data) }
    }
}

fn roomy<T>(like: &[T]) -> Vec<T> {
    Vec::with_capacity(like.len() + like.len() / 16)
}

/// Number of values from which a column without any takes its zeros from the system, which gives no memory for them until they are written.
const MANY_ZEROS: usize = 1 << 16;

fn fill_zeros<T: Clone + Default>(values: &mut Vec<T>, len: usize) {
    if values.is_empty() && len >= MANY_ZEROS {
        *values = vec![T::default(); len];
    } else {
        values.resize(len, T::default());
    }
}

fn repeat_last(offsets: &mut Vec<i32>, len: usize) {
    let last = offsets[offsets.len() - 1];
    if offsets.len() == 1 && last == 0 && len >= MANY_ZEROS {
        *offsets = vec![0; len + 1];
    } else {
        offsets.resize(len + 1, last);
    }
}

/// Consume an object, and write its members at `position` of their columns.
pub fn read_members(scanner: &mut Scanner, keys: &mut Keys, members: &mut [Column], position: usize, depth: usize) -> Plain<()> {
    require_shallow(depth)?;
    scanner.expect(b'{')?;
    scanner.blanks();
    if scanner.take(b'}') {
        return Ok(());
    }
    let mut place = keys.start();
    loop {
        let declared = keys.read(scanner, &mut place)?;
        scanner.blanks();
        match declared.and_then(|ordinal| members.get_mut(ordinal)) {
            Some(column) => column.read(scanner, position, depth + 1)?,
            None => drop(scanner.skip(depth + 1)?),
        }
        scanner.blanks();
        if scanner.take(b'}') {
            return Ok(());
        }
        scanner.expect(b',')?;
        scanner.blanks();
    }
}

impl Column {
    pub fn new(body: Body) -> Self {
        Column { len: 0, nulls: Vec::new(), odd: Vec::new(), nulled: Vec::new(), whole: false, body }
    }

    /// Consume a value, and write it at `position`. Refuse it if the position already has a value, because the object then repeats a key.
    #[inline]
    pub fn read(&mut self, scanner: &mut Scanner, position: usize, depth: usize) -> Plain<()> {
        if self.len != position {
            if self.len > position {
                return Err(NotPlain);
            }
            self.fill(position);
        }
        if scanner.peek() == b'n' {
            scanner.literal(b"null")?;
            self.null();
            return Ok(());
        }
        self.read_value(scanner, depth)
    }

    fn read_value(&mut self, scanner: &mut Scanner, depth: usize) -> Plain<()> {
        let first = scanner.peek();
        match &mut self.body {
            Body::Text(texts) => {
                if first == b'"' {
                    let string = scanner.string()?;
                    if append(scanner, string, texts) {
                        self.len += 1;
                        return Ok(());
                    }
                    return self.note_odd(string.start - 1, string.end + 1);
                }
                let start = scanner.at;
                let holds = scanner.skip(depth)?;
                if holds.non_numbers {
                    return self.note_odd(start, scanner.at);
                }
                append_json(scanner.slice(start, scanner.at), holds, texts);
                self.len += 1;
                Ok(())
            }
            Body::Integer(values) => {
                if begins_number(scanner, first) {
                    let number = scanner.number()?;
                    let Some(value) = integer(number) else {
                        return self.note_odd(number.start, number.end);
                    };
                    values.push(value);
                    self.len += 1;
                    return Ok(());
                }
                self.not_fitting(scanner, depth, first == b'"')
            }
            Body::Number(values) => {
                if begins_number(scanner, first) {
                    let number = scanner.number()?;
                    let Some(value) = double(scanner, number).filter(|value| !self.whole || value.abs() < EXACT_MANTISSA as f64) else {
                        return self.note_odd(number.start, number.end);
                    };
                    values.push(value);
                    self.len += 1;
                    return Ok(());
                }
                self.not_fitting(scanner, depth, first == b'"')
            }
            Body::Decimal { scale, limit, values } => {
                if begins_number(scanner, first) {
                    let number = scanner.number()?;
                    let Some(value) = decimal(number, *scale, *limit) else {
                        return self.note_odd(number.start, number.end);
                    };
                    values.push(value);
                    self.len += 1;
                    return Ok(());
                }
                self.not_fitting(scanner, depth, first == b'"')
            }
            Body::Boolean(values) => {
                let value = if scanner.take_all(b"true") {
                    1
                } else if scanner.take_all(b"false") {
                    0
                } else {
                    return self.not_fitting(scanner, depth, false);
                };
                values.push(value);
                self.len += 1;
                Ok(())
            }
            Body::Date(_) | Body::Time { .. } | Body::Timestamp { .. } => {
                if first != b'"' {
                    return self.not_fitting(scanner, depth, false);
                }
                let string = scanner.string()?;
                if !self.push_temporal(scanner.of(string)) {
                    return self.unread_temporal(scanner, string);
                }
                self.len += 1;
                Ok(())
            }
            Body::Json { opening, texts } => {
                if first != *opening {
                    return self.not_fitting(scanner, depth, false);
                }
                let start = scanner.at;
                let holds = scanner.skip(depth)?;
                if holds.non_numbers {
                    return self.note_odd(start, scanner.at);
                }
                append_json(scanner.slice(start, scanner.at), holds, texts);
                self.len += 1;
                Ok(())
            }
            Body::Cell(texts) => {
                let start = scanner.at;
                let holds = scanner.skip(depth)?;
                let text = scanner.slice(start, scanner.at);
                if holds.non_numbers || (first == b'"' && may_hold_surrogate(text)) {
                    return self.note_odd(start, scanner.at);
                }
                append_json(text, holds, texts);
                self.len += 1;
                Ok(())
            }
            Body::Object { keys, members } => {
                if first != b'{' {
                    return self.not_fitting(scanner, depth, false);
                }
                let position = self.len;
                self.len += 1; // counted before its members, so that no member column gets longer than this one
                read_members(scanner, keys, members, position, depth)
            }
            Body::Array { offsets, items } => {
                if first != b'[' {
                    return self.not_fitting(scanner, depth, false);
                }
                read_items(scanner, items, depth)?;
                offsets.push(items.len as i32);
                self.len += 1;
                Ok(())
            }
            Body::Other => {
                let start = scanner.at;
                scanner.skip(depth)?;
                self.note_odd(start, scanner.at)
            }
        }
    }

    /// Consume a value that is not of the column's kind. Note it as odd if it is a string that might be numeric, else as nulled.
    #[cold]
    fn not_fitting(&mut self, scanner: &mut Scanner, depth: usize, may_be_numeric: bool) -> Plain<()> {
        let start = scanner.at;
        if !may_be_numeric {
            scanner.skip(depth)?;
            self.note_nulled();
            return Ok(());
        }
        let string = scanner.string()?;
        if begins_with_letter(scanner, string) {
            self.note_nulled();
            return Ok(());
        }
        self.note_odd(start, scanner.at)
    }

    /// Append the date or time that a text stands for, unless it is not plain or the column must be whole and would lose a part.
    fn push_temporal(&mut self, text: &[u8]) -> bool {
        let whole = self.whole;
        let keeps_time = || !whole || temporal::is_of_microseconds(text);
        let pushed = match &mut self.body {
            Body::Date(values) => temporal::date(text).filter(|_| !whole || temporal::is_day_alone(text)).map(|day| values.push(day)),
            Body::Time { shifted, values } => temporal::time(text, *shifted).filter(|_| keeps_time()).map(|time| values.push(time)),
            Body::Timestamp { shifted, values } => {
                temporal::timestamp(text, *shifted).filter(|_| keeps_time()).map(|time| values.push(time))
            }
            _ => None,
        };
        pushed.is_some()
    }

    /// Note a string that is not a plain date or time: as nulled if it begins with a letter, as no date or time does, else as odd.
    #[cold]
    fn unread_temporal(&mut self, scanner: &Scanner, string: Quoted) -> Plain<()> {
        if begins_with_letter(scanner, string) {
            self.note_nulled();
            return Ok(());
        }
        self.note_odd(string.start - 1, string.end + 1)
    }

    fn note_odd(&mut self, start: usize, end: usize) -> Plain<()> {
        let position = self.len;
        self.null();
        self.odd.push(Odd { position, start, end });
        Ok(())
    }

    fn note_nulled(&mut self) {
        self.nulled.push(self.len as i64);
        self.null();
    }

    fn null(&mut self) {
        self.fill(self.len + 1);
    }

    /// Append nulls up to this length.
    pub fn fill(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        let (first, end) = (self.len as u32, len as u32);
        match self.nulls.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.nulls.push((first, end)),
        }
        self.len = len;
        match &mut self.body {
            Body::Boolean(values) => fill_zeros(values, len),
            Body::Integer(values) | Body::Time { values, .. } | Body::Timestamp { values, .. } => fill_zeros(values, len),
            Body::Number(values) => fill_zeros(values, len),
            Body::Decimal { values, .. } => fill_zeros(values, len),
            Body::Date(values) => fill_zeros(values, len),
            Body::Text(texts) | Body::Json { texts, .. } | Body::Cell(texts) => repeat_last(&mut texts.offsets, len),
            Body::Array { offsets, .. } => repeat_last(offsets, len),
            Body::Object { .. } | Body::Other => {} // members are filled at the end of the block
        }
    }

    /// Append nulls up to this length, also in all descendants.
    pub fn finish(&mut self, len: usize) {
        self.fill(len);
        match &mut self.body {
            Body::Object { members, .. } => members.iter_mut().for_each(|member| member.finish(len)),
            Body::Array { items, .. } => items.finish(items.len),
            _ => {}
        }
    }

    /// Drop the values at position `len` and behind it, also in all descendants.
    pub fn truncate(&mut self, len: usize) {
        match &mut self.body {
            Body::Boolean(values) => values.truncate(len),
            Body::Integer(values) | Body::Time { values, .. } | Body::Timestamp { values, .. } => values.truncate(len),
            Body::Number(values) => values.truncate(len),
            Body::Decimal { values, .. } => values.truncate(len),
            Body::Date(values) => values.truncate(len),
            Body::Text(texts) | Body::Json { texts, .. } | Body::Cell(texts) => texts.truncate(len),
            Body::Object { members, .. } => members.iter_mut().for_each(|member| member.truncate(len)),
            Body::Array { offsets, items } => {
                offsets.truncate(len + 1);
                items.truncate(offsets[offsets.len() - 1] as usize);
            }
            Body::Other => {}
        }
        self.len = self.len.min(len);
        let end = self.len as u32;
        while self.nulls.last().is_some_and(|run| run.0 >= end) {
            self.nulls.pop();
        }
        if let Some(last) = self.nulls.last_mut() {
            last.1 = last.1.min(end);
        }
        while self.odd.last().is_some_and(|odd| odd.position >= self.len) {
            self.odd.pop();
        }
        while self.nulled.last().is_some_and(|&position| position as usize >= self.len) {
            self.nulled.pop();
        }
    }

    /// Take the column out and leave an empty successor in its place.
    pub fn take(&mut self) -> Column {
        let successor = self.successor();
        std::mem::replace(self, successor)
    }

    /// Create an empty column of this kind with capacity for as much as this one holds. The known keys move to it.
    fn successor(&mut self) -> Column {
        let body = match &mut self.body {
            Body::Boolean(values) => Body::Boolean(roomy(values)),
            Body::Integer(values) => Body::Integer(roomy(values)),
            Body::Number(values) => Body::Number(roomy(values)),
            Body::Decimal { scale, limit, values } => Body::Decimal { scale: *scale, limit: *limit, values: roomy(values) },
            Body::Date(values) => Body::Date(roomy(values)),
            Body::Time { shifted, values } => Body::Time { shifted: *shifted, values: roomy(values) },
            Body::Timestamp { shifted, values } => Body::Timestamp { shifted: *shifted, values: roomy(values) },
            Body::Text(texts) => Body::Text(texts.like()),
            Body::Json { opening, texts } => Body::Json { opening: *opening, texts: texts.like() },
            Body::Cell(texts) => Body::Cell(texts.like()),
            Body::Object { keys, members } => Body::Object {
                keys: std::mem::replace(keys, Keys::new(Vec::new())),
                members: members.iter_mut().map(Column::successor).collect(),
            },
            Body::Array { offsets, items } => {
                let mut room = roomy(offsets);
                room.push(0);
                Body::Array { offsets: room, items: Box::new(items.successor()) }
            }
            Body::Other => Body::Other,
        };
        Column { whole: self.whole, ..Column::new(body) }
    }
}

fn read_items(scanner: &mut Scanner, items: &mut Column, depth: usize) -> Plain<()> {
    require_shallow(depth)?;
    scanner.expect(b'[')?;
    scanner.blanks();
    if scanner.take(b']') {
        return Ok(());
    }
    loop {
        items.read(scanner, items.len, depth + 1)?;
        scanner.blanks();
        if scanner.take(b']') {
            return Ok(());
        }
        scanner.expect(b',')?;
        scanner.blanks();
    }
}

/// Append the string. Return false and append nothing if it has a lone surrogate.
#[inline]
fn append(scanner: &Scanner, string: Quoted, texts: &mut Texts) -> bool {
    let quoted = scanner.of(string);
    if string.escaped {
        let before = texts.data.len();
        if unescape(quoted, &mut texts.data).is_err() {
            texts.data.truncate(before);
            return false;
        }
    } else {
        texts.data.extend_from_slice(quoted);
    }
    texts.close();
    true
}

fn append_json(text: &[u8], holds: Holds, texts: &mut Texts) {
    if holds.blanks {
        compact(text, &mut texts.data);
    } else {
        texts.data.extend_from_slice(text);
    }
    texts.close();
}

/// Whether a string has an escape of a surrogate, alone or in a pair.
fn may_hold_surrogate(string: &[u8]) -> bool {
    string.windows(3).any(|bytes| bytes == b"\\ud" || bytes == b"\\uD")
}

#[inline(always)]
fn begins_number(scanner: &Scanner, first: u8) -> bool {
    first.is_ascii_digit() || (first == b'-' && !scanner.begins_with(b"-I"))
}

fn begins_with_letter(scanner: &Scanner, string: Quoted) -> bool {
    scanner.of(string).first().is_some_and(u8::is_ascii_alphabetic)
}

#[inline(always)]
fn integer(number: Number) -> Option<i64> {
    let mantissa = number.mantissa.filter(|_| number.is_integer)? as i64; // has at most 18 digits
    Some(if number.negative { -mantissa } else { mantissa })
}

/// The decimal for a number without an exponent and with few digits, unless it has too many of them before the point, or any but zeros
/// beyond the scale.
#[inline]
fn decimal(number: Number, scale: usize, limit: i128) -> Option<i128> {
    let digits = i128::from(number.mantissa.filter(|_| !number.has_exponent)?);
    let size = match scale.checked_sub(number.fraction_digits) {
        Some(missing) => digits.checked_mul(POWERS[missing])?,
        None => {
            let surplus = POWERS[number.fraction_digits - scale];
            (digits % surplus == 0).then_some(digits / surplus)?
        }
    };
    (size < limit).then_some(if number.negative { -size } else { size })
}

#[inline]
fn double(scanner: &Scanner, number: Number) -> Option<f64> {
    let exact = number.mantissa.filter(|&mantissa| mantissa <= EXACT_MANTISSA && !number.has_exponent);
    if let Some(mantissa) = exact {
        if mantissa == 0 && number.is_integer {
            return Some(0.0); // an integer has no negative zero
        }
        let size = mantissa as f64 / EXACT_POWERS[number.fraction_digits];
        return Some(if number.negative { -size } else { size });
    }
    let text = std::str::from_utf8(scanner.slice(number.start, number.end)).ok()?;
    let value: f64 = text.parse().ok()?;
    // A number that was rounded down to the largest double may be above it, so Python decides.
    (value.abs() < DOUBLE_MAX).then_some(value)
}
