//! Reading of blocks of record lines into columns.

use xxhash_rust::xxh3::xxh3_128;

use crate::column::{Column, Texts};
use crate::keys::Keys;
use crate::line::{LineReader, Record, Stream};
use crate::replacement::Action;
use crate::scan::{NotPlain, Scanner};
use crate::treated::Treated;

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
    /// The texts of `data` after the rules, if there are any.
    pub treated: Option<Texts>,
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
    treated: Option<Treated>,
    rows_before: usize,
}

impl Reader {
    /// A reader of records into a column for each field.
    pub fn of_fields(stream: Stream, fields: Vec<(Vec<u8>, Column)>) -> Self {
        let (names, columns): (Vec<_>, Vec<_>) = fields.into_iter().unzip();
        Reader { lines: LineReader::new(stream), keys: Some(Keys::new(names)), columns, treated: None, rows_before: 0 }
    }

    /// A reader of records with rules, into a column for each field. `actions` are those of the fields, and then of further keys.
    pub fn of_treated(stream: Stream, fields: Vec<(Vec<u8>, Column)>, actions: Vec<(Vec<u8>, Action)>, secret: &[u8]) -> Self {
        let (names, actions): (Vec<_>, Vec<_>) = actions.into_iter().unzip();
        let columns = fields.into_iter().map(|(_, column)| column).collect();
        let treated = Some(Treated::new(actions, secret));
        Reader { lines: LineReader::new(stream), keys: Some(Keys::new(names)), columns, treated, rows_before: 0 }
    }

    /// A reader of whole records into one column.
    pub fn of_records(stream: Stream, column: Column) -> Self {
        Reader { lines: LineReader::new(stream), keys: None, columns: vec![column], treated: None, rows_before: 0 }
    }

    /// Read whole lines of at most `LONGEST_BLOCK` bytes together. The last line may lack its newline.
    pub fn read(&mut self, lines: &[u8], form: Form) -> Rows {
        let mut rows =
            Rows { emitted_at: Vec::with_capacity(self.rows_before), data: Vec::with_capacity(self.rows_before), ..Rows::default() };
        if self.treated.is_some() && matches!(form, Form::Messages) {
            let mut texts = Texts::new();
            texts.data.reserve_exact(lines.len());
            rows.treated = Some(texts);
        }
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
                Form::Messages => self.lines.read(&mut scanner, self.keys.as_mut(), &mut self.columns, self.treated.as_mut(), row),
                Form::Data => self.lines.read_data(&mut scanner, self.keys.as_mut(), &mut self.columns, row),
            }
        } else {
            Err(NotPlain)
        };
        // Hashes are longer than most values, and the texts of a block must fit Arrow's offsets.
        let longest = LONGEST_BLOCK - rows.treated.as_ref().map_or(0, |texts| texts.data.len());
        let grown = |record: &Record| self.treated.as_ref().map_or(0, |treated| treated.most_bytes(record.data));
        let Some(record) = read.ok().filter(|record| grown(record) <= longest) else {
            self.columns.iter_mut().for_each(|column| column.truncate(row));
            rows.odd_lines.push((row, start, end));
            rows.emitted_at.push(0);
            rows.data.push((start, start));
            rows.treated.iter_mut().for_each(Texts::close);
            return;
        };
        let (first, last) = record.data;
        rows.emitted_at.push(record.emitted_at);
        rows.data.push(record.data);
        let hash = match (&mut rows.treated, &self.treated) {
            (Some(texts), Some(treated)) => {
                let before = texts.data.len();
                treated.append(lines, record.data, &mut texts.data);
                texts.close();
                xxh3_128(&texts.data[before..])
            }
            _ => xxh3_128(&lines[first..last]),
        };
        rows.multiset = rows.multiset.wrapping_add(hash);
        if let Some((first, last)) = record.meta {
            rows.metas.push((row, first, last));
        }
    }
}

impl Rows {
    /// Copy the texts of `data` from the lines, or take them as they are after the rules. They are empty for odd lines.
    pub fn texts(&mut self, lines: &[u8]) -> Texts {
        if let Some(texts) = &mut self.treated {
            return std::mem::replace(texts, Texts::new());
        }
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
