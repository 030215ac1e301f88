//! One record line: its envelope, and its `data` into the columns.

use crate::column::{Column, read_members};
use crate::keys::{Keys, plain_key};
use crate::scan::{NotPlain, Plain, Scanner};

/// The stream whose records are read. No namespace, an empty one and null are the same.
pub struct Stream {
    pub name: Vec<u8>,
    pub namespace: Vec<u8>,
}

/// What was read of a record beside its values; places are those of the lines.
#[derive(Clone, Copy, Default)]
pub struct Record {
    pub emitted_at: i64,
    pub data: (usize, usize),
    pub meta: Option<(usize, usize)>,
}

/// What stood in a line so far.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    record: bool,
    stream: bool,
    namespace: bool,
    emitted_at: bool,
    data: bool,
    meta: bool,
}

/// How the last line began: up to its time, and from there to its `data`. A line that begins alike need not be read so far.
#[derive(Default)]
struct Beginning {
    to_time: Vec<u8>,
    to_data: Vec<u8>,
    seen: Seen,
}

pub struct LineReader {
    stream: Stream,
    beginning: Option<Beginning>,
}

/// Lines whose beginning is longer than this are read from their first byte.
const LONGEST_BEGINNING: usize = 4096;

struct Line<'s, 'a, 'c> {
    scanner: &'s mut Scanner<'a>,
    keys: &'c mut Keys,
    columns: &'c mut [Column],
    row: usize,
    record: Record,
    seen: Seen,
    time_place: (usize, usize),
    seen_at_data: Seen,
}

impl LineReader {
    pub fn new(stream: Stream) -> Self {
        LineReader { stream, beginning: None }
    }

    /// Read one line, and write the values of its `data` as this row.
    pub fn read(&mut self, scanner: &mut Scanner, keys: &mut Keys, columns: &mut [Column], row: usize) -> Plain<Record> {
        let start = scanner.at;
        let mut line = Line {
            scanner,
            keys,
            columns,
            row,
            record: Record::default(),
            seen: Seen::default(),
            time_place: (0, 0),
            seen_at_data: Seen::default(),
        };
        let predicted = match &self.beginning {
            Some(beginning) => line.take_beginning(beginning)?,
            None => false,
        };
        if predicted {
            line.rest_of_record(&self.stream)?;
            line.rest_of_message(&self.stream)?;
        } else {
            line.message(&self.stream)?;
        }
        let seen = line.seen;
        if !(seen.record && seen.stream && seen.emitted_at && seen.data && (seen.namespace || self.stream.namespace.is_empty())) {
            return Err(NotPlain);
        }
        let (record, time, seen_at_data) = (line.record, line.time_place, line.seen_at_data);
        if !predicted {
            self.learn(scanner, start, time, record.data.0, seen_at_data);
        }
        Ok(record)
    }

    fn learn(&mut self, scanner: &Scanner, start: usize, time: (usize, usize), data: usize, seen: Seen) {
        self.beginning = None;
        if time.0 > start && time.1 < data && data - start <= LONGEST_BEGINNING && !seen.meta {
            self.beginning =
                Some(Beginning { to_time: scanner.slice(start, time.0).to_vec(), to_data: scanner.slice(time.1, data).to_vec(), seen });
        }
    }
}

impl Line<'_, '_, '_> {
    /// Step over the beginning of a line and its `data`, if the line begins like the last one.
    fn take_beginning(&mut self, beginning: &Beginning) -> Plain<bool> {
        let start = self.scanner.at;
        if self.scanner.take_all(&beginning.to_time) {
            self.emitted_at()?;
            if self.scanner.take_all(&beginning.to_data) {
                self.seen = beginning.seen;
                self.data()?;
                return Ok(true);
            }
        }
        self.scanner.at = start;
        Ok(false)
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

    /// Whether another member follows; else the object ends.
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
        let mantissa = number.mantissa.filter(|_| number.is_integer).ok_or(NotPlain)? as i64;
        self.record.emitted_at = if number.negative { -mantissa } else { mantissa };
        self.time_place = (number.start, number.end);
        Ok(())
    }

    fn data(&mut self) -> Plain<()> {
        self.seen_at_data = self.seen;
        let start = self.scanner.at;
        read_members(self.scanner, self.keys, self.columns, self.row, 3)?;
        self.record.data = (start, self.scanner.at);
        Ok(())
    }
}

fn once(seen: &mut bool) -> Plain<()> {
    if *seen {
        return Err(NotPlain);
    }
    *seen = true;
    Ok(())
}
