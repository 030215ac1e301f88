//! Reading of blocks of record lines into columns.

use xxhash_rust::xxh3::xxh3_128;

use crate::column::{Column, Texts};
use crate::keys::Keys;
use crate::line::{LineReader, Stream};
use crate::scan::{NotPlain, Scanner};

/// Longest block in bytes. Arrow's offsets of strings and lists are signed 32-bit integers.
pub const LONGEST_BLOCK: usize = (1 << 31) - 1;

/// The rows of a block. The row of an odd line is null in all columns, and its time is 0.
#[derive(Default)]
pub struct Rows {
    pub count: usize,
    pub emitted_at: Vec<i64>,
    pub columns: Vec<Column>,
    /// The sum of the 128-bit XXH3 hashes of the texts of `data`, modulo 2**128.
    pub multiset: u128,
    /// Starts and ends of the texts of `data`, for the raw rows.
    pub data: Vec<(usize, usize)>,
    pub metas: Vec<(usize, usize, usize)>,
    pub odd_lines: Vec<(usize, usize, usize)>,
}

/// Content of a line: a message with a record, or only the record's `data`, whose time is 0.
#[derive(Clone, Copy)]
pub enum Form {
    Messages,
    Data,
}

pub struct Reader {
    lines: LineReader,
    keys: Option<Keys>,
    columns: Vec<Column>,
    rows_before: usize,
}

impl Reader {
    /// A reader of records into a column for each field.
    pub fn of_fields(stream: Stream, fields: Vec<(Vec<u8>, Column)>) -> Self {
        let (names, columns): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Reader { lines: LineReader::new(stream), keys: Some(Keys::new(names)), columns, rows_before: 0 }
    }

    /// A reader of whole records into one column.
    pub fn of_records(stream: Stream, column: Column) -> Self {
        Reader { lines: LineReader::new(stream), keys: None, columns: vec![column], rows_before: 0 }
    }

    /// Read whole lines of at most `LONGEST_BLOCK` bytes together. The last line may lack its newline.
    pub fn read(&mut self, lines: &[u8], form: Form) -> Rows {
        let mut rows =
            Rows { emitted_at: Vec::with_capacity(self.rows_before), data: Vec::with_capacity(self.rows_before), ..Rows::default() };
        let mut start = 0;
        while start < lines.len() {
            let end = newline(lines, start);
            self.read_line(lines, (start, end), form, &mut rows);
            start = end + 1;
        }
        for column in &mut self.columns {
            column.finish(rows.count);
            rows.columns.push(column.take());
        }
        self.rows_before = rows.count;
        rows
    }

    fn read_line(&mut self, lines: &[u8], (start, end): (usize, usize), form: Form, rows: &mut Rows) {
        let row = rows.count;
        rows.count += 1;
        let mut scanner = Scanner::new(lines, start, end);
        let text = &lines[start..end];
        let read = if text.is_ascii() || std::str::from_utf8(text).is_ok() {
            match form {
                Form::Messages => self.lines.read(&mut scanner, self.keys.as_mut(), &mut self.columns, row),
                Form::Data => self.lines.read_data(&mut scanner, self.keys.as_mut(), &mut self.columns, row),
            }
        } else {
            Err(NotPlain)
        };
        let Ok(record) = read else {
            self.columns.iter_mut().for_each(|column| column.truncate(row));
            rows.odd_lines.push((row, start, end));
            rows.emitted_at.push(0);
            rows.data.push((start, start));
            return;
        };
        let (first, last) = record.data;
        rows.emitted_at.push(record.emitted_at);
        rows.data.push(record.data);
        rows.multiset = rows.multiset.wrapping_add(xxh3_128(&lines[first..last]));
        if let Some((first, last)) = record.meta {
            rows.metas.push((row, first, last));
        }
    }
}

impl Rows {
    /// Copy the texts of `data` from the lines. They are empty for odd lines.
    pub fn texts(&self, lines: &[u8]) -> Texts {
        let mut texts = Texts::new();
        texts.data.reserve_exact(self.data.iter().map(|(start, end)| end - start).sum());
        texts.offsets.reserve_exact(self.data.len());
        for &(start, end) in &self.data {
            texts.push(&lines[start..end]);
        }
        texts
    }
}

/// The position of the next newline at or after `start`, or the end of the lines.
fn newline(lines: &[u8], start: usize) -> usize {
    memchr::memchr(b'\n', &lines[start..]).map_or(lines.len(), |at| start + at)
}
