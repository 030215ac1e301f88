//! Reading of one record line: its envelope, and its `data` into the columns.

use crate::column::{Column, read_members};
use crate::keys::{Keys, plain_key};
use crate::scan::{NotPlain, Plain, Scanner};
use crate::treated::Treated;

/// The stream whose records are read. A missing, an empty and a null namespace are the same.
pub struct Stream {
    pub name: Vec<u8>,
    pub namespace: Vec<u8>,
}

/// The parts of a record besides its values: the time, and the starts and ends in the lines of `data` and of a `meta` that is not null.
#[derive(Clone, Copy, Default)]
pub struct Record {
    pub emitted_at: i64,
    pub data: (usize, usize),
    pub meta: Option<(usize, usize)>,
}

/// The members seen in a line so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    record: bool,
    stream: bool,
    namespace: bool,
    emitted_at: bool,
    data: bool,
    meta: bool,
}

/// A part of a line's envelope. If it has the time, `to_time` are the bytes before the time, and `rest` those after it.
#[derive(Default)]
struct Stretch {
    to_time: Option<Vec<u8>>,
    rest: Vec<u8>,
}

/// The envelope around the `data` of an earlier line. An equal envelope need not be parsed again.
struct Frame {
    before: Stretch,
    seen_before: Seen,
    behind: Stretch,
}

pub struct LineReader {
    stream: Stream,
    frame: Option<Frame>,
}

/// Largest size in bytes of each part of an envelope that is remembered.
const LONGEST_FRAME: usize = 4096;

/// Latest time in milliseconds that has a number of microseconds.
const LATEST_MS: u64 = i64::MAX as u64 / 1000;

/// Nesting level of `data` in a line.
const DEPTH_OF_DATA: usize = 3;

struct Line<'s, 'a, 'c> {
    scanner: &'s mut Scanner<'a>,
    keys: Option<&'c mut Keys>,
    columns: &'c mut [Column],
    treated: Option<&'c mut Treated>,
    row: usize,
    record: Record,
    seen: Seen,
    seen_before: Seen,
    time: (usize, usize),
}

impl LineReader {
    pub fn new(stream: Stream) -> Self {
        LineReader { stream, frame: None }
    }

    /// Read one line, and write the values of its `data` at position `row` of the columns. Without `keys`, the only column takes all of it.
    /// The rules of `treated` apply to it.
    pub fn read(
        &mut self,
        scanner: &mut Scanner,
        keys: Option<&mut Keys>,
        columns: &mut [Column],
        treated: Option<&mut Treated>,
        row: usize,
    ) -> Plain<Record> {
        let start = scanner.at;
        let mut line = Line {
            scanner,
            keys,
            columns,
            treated,
            row,
            record: Record::default(),
            seen: Seen::default(),
            seen_before: Seen::default(),
            time: (0, 0),
        };
        if line.read(&self.stream, self.frame.as_ref())? {
            return Ok(line.record);
        }
        let seen = line.seen;
        if !(seen.record && seen.stream && seen.emitted_at && seen.data && (seen.namespace || self.stream.namespace.is_empty())) {
            return Err(NotPlain);
        }
        let (record, seen_before, time) = (line.record, line.seen_before, line.time);
        self.frame = Frame::of(scanner, start, record, time).map(|(before, behind)| Frame { before, seen_before, behind });
        Ok(record)
    }

    /// Read a line that is only the object of `data`.
    pub fn read_data(&mut self, scanner: &mut Scanner, keys: Option<&mut Keys>, columns: &mut [Column], row: usize) -> Plain<Record> {
        scanner.blanks();
        let data = read_data(scanner, keys, columns, None, row)?;
        scanner.blanks();
        if scanner.at_end() { Ok(Record { data, ..Record::default() }) } else { Err(NotPlain) }
    }
}

impl Frame {
    /// The parts of the envelope around the `data` of a valid line, at whose end the scanner is. None if it has a `meta` or is too long.
    fn of(scanner: &Scanner, start: usize, record: Record, time: (usize, usize)) -> Option<(Stretch, Stretch)> {
        let (first, last) = record.data;
        let end = scanner.at;
        if record.meta.is_some() || first - start > LONGEST_FRAME || end - last > LONGEST_FRAME {
            return None;
        }
        let stretch = |from: usize, to: usize| {
            if from <= time.0 && time.1 <= to {
                Stretch { to_time: Some(scanner.slice(from, time.0).to_vec()), rest: scanner.slice(time.1, to).to_vec() }
            } else {
                Stretch { to_time: None, rest: scanner.slice(from, to).to_vec() }
            }
        };
        Some((stretch(start, first), stretch(last, end)))
    }
}

impl Line<'_, '_, '_> {
    /// Consume the line. Return true if its envelope equals the frame, and is therefore valid; else the caller must check `seen`.
    fn read(&mut self, stream: &Stream, frame: Option<&Frame>) -> Plain<bool> {
        let Some(frame) = frame else {
            self.message(stream)?;
            return Ok(false);
        };
        if !self.stretch(&frame.before)? {
            self.message(stream)?;
            return Ok(false);
        }
        self.seen = frame.seen_before;
        self.data()?;
        if self.stretch(&frame.behind)? {
            self.scanner.blanks();
            return if self.scanner.at_end() { Ok(true) } else { Err(NotPlain) };
        }
        self.rest_of_record(stream)?;
        self.rest_of_message(stream)?;
        Ok(false)
    }

    /// Consume a part of the envelope if it equals `stretch` in all but the time. Else return false and consume nothing.
    fn stretch(&mut self, stretch: &Stretch) -> Plain<bool> {
        let start = self.scanner.at;
        if let Some(to_time) = &stretch.to_time {
            if !self.scanner.take_all(to_time) {
                return Ok(false);
            }
            self.emitted_at()?;
        }
        let found = self.scanner.take_all(&stretch.rest);
        if !found {
            self.scanner.at = start;
        }
        Ok(found)
    }

    fn message(&mut self, stream: &Stream) -> Plain<()> {
        self.scanner.blanks();
        self.scanner.expect(b'{')?;
        self.scanner.blanks();
        self.member_of_message(stream)?;
        self.rest_of_message(stream)
    }

    fn rest_of_message(&mut self, stream: &Stream) -> Plain<()> {
        while self.comma()? {
            self.member_of_message(stream)?;
        }
        self.scanner.blanks();
        if self.scanner.at_end() { Ok(()) } else { Err(NotPlain) }
    }

    /// Consume the comma before another member and return true, or consume the end of the object and return false.
    fn comma(&mut self) -> Plain<bool> {
        self.scanner.blanks();
        if self.scanner.take(b'}') {
            return Ok(false);
        }
        self.scanner.expect(b',')?;
        self.scanner.blanks();
        Ok(true)
    }

    fn member_of_message(&mut self, stream: &Stream) -> Plain<()> {
        if plain_key(self.scanner)? != b"record" {
            return self.scanner.skip(1).map(drop);
        }
        once(&mut self.seen.record)?;
        self.scanner.expect(b'{')?;
        self.scanner.blanks();
        self.member_of_record(stream)?;
        self.rest_of_record(stream)
    }

    fn rest_of_record(&mut self, stream: &Stream) -> Plain<()> {
        while self.comma()? {
            self.member_of_record(stream)?;
        }
        Ok(())
    }

    fn member_of_record(&mut self, stream: &Stream) -> Plain<()> {
        match plain_key(self.scanner)? {
            b"stream" => {
                once(&mut self.seen.stream)?;
                self.name(&stream.name)
            }
            b"namespace" => {
                once(&mut self.seen.namespace)?;
                if stream.namespace.is_empty() && self.scanner.take_all(b"null") {
                    return Ok(());
                }
                self.name(&stream.namespace)
            }
            b"emitted_at" => {
                once(&mut self.seen.emitted_at)?;
                self.emitted_at()
            }
            b"data" => {
                once(&mut self.seen.data)?;
                self.data()
            }
            b"meta" => {
                once(&mut self.seen.meta)?;
                let start = self.scanner.at;
                self.scanner.skip(2)?;
                let place = (start, self.scanner.at);
                self.record.meta = (self.scanner.slice(place.0, place.1) != b"null").then_some(place);
                Ok(())
            }
            _ => self.scanner.skip(2).map(drop),
        }
    }

    fn name(&mut self, name: &[u8]) -> Plain<()> {
        let string = self.scanner.string()?;
        if string.escaped || self.scanner.of(string) != name {
            return Err(NotPlain);
        }
        Ok(())
    }

    fn emitted_at(&mut self) -> Plain<()> {
        let number = self.scanner.number()?;
        let mantissa = number.mantissa.filter(|&mantissa| number.is_integer && mantissa <= LATEST_MS).ok_or(NotPlain)? as i64;
        self.record.emitted_at = if number.negative { -mantissa } else { mantissa };
        self.time = (number.start, number.end);
        Ok(())
    }

    fn data(&mut self) -> Plain<()> {
        self.seen_before = self.seen;
        self.record.data = read_data(self.scanner, self.keys.as_deref_mut(), self.columns, self.treated.as_deref_mut(), self.row)?;
        Ok(())
    }
}

/// Consume the object of `data`, write its values at position `row` of the columns, and return its start and end.
fn read_data(
    scanner: &mut Scanner,
    keys: Option<&mut Keys>,
    columns: &mut [Column],
    treated: Option<&mut Treated>,
    row: usize,
) -> Plain<(usize, usize)> {
    let start = scanner.at;
    match (keys, treated) {
        (Some(keys), Some(treated)) => treated.read(scanner, keys, columns, row, DEPTH_OF_DATA)?,
        (Some(keys), None) => read_members(scanner, keys, columns, row, DEPTH_OF_DATA)?,
        (None, _) if scanner.peek() == b'{' => columns[0].read(scanner, row, DEPTH_OF_DATA)?,
        (None, _) => return Err(NotPlain),
    }
    Ok((start, scanner.at))
}

fn once(seen: &mut bool) -> Plain<()> {
    if *seen {
        return Err(NotPlain);
    }
    *seen = true;
    Ok(())
}
