//! The Python extension module.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow::{ArrowArray, column_array, int64_array, struct_array, text_array};
use crate::column::{Body, Column, Odd, Texts};
use crate::ids;
use crate::keys::Keys;
use crate::line::Stream;
use crate::reader::{Form, LONGEST_BLOCK, Reader, Rows};
use crate::replacement::Action;
use crate::router;
use crate::rules::{self, Decision, OddLine};

/// Version of the interface to Python. Raise it with every change to the interface, so that Python refuses a kernel of another version.
const INTERFACE: u32 = 7;

/// A place in the lines: the ordinal of the row, and start and end of the text.
type RowPlace = (usize, usize, usize);
/// The odd values of a column: the column's ordinal in a pre-order walk of the type tree; positions, starts and ends of the odd values; and
/// positions of the nulled values. Each list is the bytes of 64-bit integers.
type OddColumn<'py> = (usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The type of a column: its kind, whether its dates, times and numbers must be kept whole, its children, and precision and scale. The children of an
/// object are its members' keys and types. The only child of an array is the type of its items. Only a decimal has precision and scale.
#[derive(FromPyObject)]
struct Spec {
    kind: String,
    whole: bool,
    children: Vec<(Vec<u8>, Spec)>,
    digits: (usize, usize),
}

impl Spec {
    fn column(&self) -> PyResult<Column> {
        let shifted = self.kind.ends_with("_with_timezone");
        let body = match self.kind.as_str() {
            "string" => Body::Text(Texts::new()),
            "boolean" => Body::Boolean(Vec::new()),
            "integer" => Body::Integer(Vec::new()),
            "number" => Body::Number(Vec::new()),
            "decimal" => {
                let (precision, scale) = self.digits;
                Body::decimal(precision, scale).ok_or_else(|| PyValueError::new_err("no such decimal"))?
            }
            "date" => Body::Date(Vec::new()),
            "time_with_timezone" | "time_without_timezone" => Body::Time { shifted, values: Vec::new() },
            "timestamp_with_timezone" | "timestamp_without_timezone" => Body::Timestamp { shifted, values: Vec::new() },
            "json_object" => Body::Json { opening: b'{', texts: Texts::new() },
            "json_array" => Body::Json { opening: b'[', texts: Texts::new() },
            "cell" => Body::Cell(Texts::new()),
            "object" => Body::Object {
                keys: Keys::new(self.children.iter().map(|(name, _)| name.clone()).collect()),
                members: self.children.iter().map(|(_, spec)| spec.column()).collect::<PyResult<_>>()?,
            },
            "array" => {
                let [(_, items)] = self.children.as_slice() else {
                    return Err(PyValueError::new_err("an array has one type of items"));
                };
                Body::Array { offsets: vec![0], items: Box::new(items.column()?) }
            }
            "other" => Body::Other,
            _ => return Err(PyValueError::new_err("no such kind of column")),
        };
        Ok(Column { whole: self.whole, ..Column::new(body) })
    }
}

/// Reader of one stream's record lines. Between blocks it keeps no rows, only the form of the last line and the keys seen so far.
#[pyclass]
struct Kernel {
    stream: (Vec<u8>, Vec<u8>),
    fields: Option<Vec<(Vec<u8>, Spec)>>,
    rules: Option<Rules>,
    reader: Reader,
}

/// Column rules: for keys of `data`, the code of an action and its length; and the secret.
type Rules = (Vec<(Vec<u8>, u8, usize)>, Vec<u8>);

#[pymethods]
impl Kernel {
    /// Create a reader for records of this stream. `fields` are pairs of a JSON key in UTF-8 and a type. Without them the only column holds
    /// whole records as compact JSON text, and there are no rules. ValueError for an invalid type.
    #[new]
    #[pyo3(signature = (name, namespace, fields, rules))]
    fn new(name: Vec<u8>, namespace: Vec<u8>, fields: Option<Vec<(Vec<u8>, Spec)>>, rules: Option<Rules>) -> PyResult<Self> {
        let stream = (name, namespace);
        let reader = new_reader(&stream, fields.as_deref(), rules.as_ref())?;
        Ok(Kernel { stream, fields, rules, reader })
    }

    /// Read whole lines. ValueError if they are longer than 2 GiB. RuntimeError if the kernel panics: it is then reset, and can be used
    /// again.
    fn read(&mut self, py: Python<'_>, lines: &[u8]) -> PyResult<Block> {
        self.read_form(py, lines, Form::Messages)
    }

    /// Read whole lines that are only the `data` of records, and to which no rules apply. Otherwise as `read`.
    fn read_data(&mut self, py: Python<'_>, lines: &[u8]) -> PyResult<Block> {
        self.read_form(py, lines, Form::Data)
    }
}

impl Kernel {
    fn read_form(&mut self, py: Python<'_>, lines: &[u8], form: Form) -> PyResult<Block> {
        if lines.len() > LONGEST_BLOCK {
            return Err(PyValueError::new_err("the lines are longer than 2 GiB"));
        }
        let reader = &mut self.reader;
        let read = py.detach(|| catch_unwind(AssertUnwindSafe(|| reader.read(lines, form))));
        match read {
            Ok(rows) => Ok(Block { rows }),
            Err(_) => {
                self.reader = new_reader(&self.stream, self.fields.as_deref(), self.rules.as_ref())?;
                Err(PyRuntimeError::new_err("the typing kernel failed"))
            }
        }
    }
}

fn new_reader((name, namespace): &(Vec<u8>, Vec<u8>), fields: Option<&[(Vec<u8>, Spec)]>, rules: Option<&Rules>) -> PyResult<Reader> {
    let stream = Stream { name: name.clone(), namespace: namespace.clone() };
    let Some(fields) = fields else {
        return Ok(Reader::of_records(stream, Column::new(Body::Json { opening: b'{', texts: Texts::new() })));
    };
    let columns = fields.iter().map(|(key, spec)| Ok((key.clone(), spec.column()?))).collect::<PyResult<_>>()?;
    let Some((rules, secret)) = rules else {
        return Ok(Reader::of_fields(stream, columns));
    };
    let mut actions: Vec<_> = fields.iter().map(|(key, _)| (key.clone(), Action::Keep)).collect();
    for (key, code, length) in rules {
        let action = action(*code, *length).ok_or_else(|| PyValueError::new_err("no such action"))?;
        match actions.iter_mut().find(|(known, _)| known == key) {
            Some(of_field) => of_field.1 = action,
            None => actions.push((key.clone(), action)),
        }
    }
    Ok(Reader::of_treated(stream, columns, actions, secret))
}

/// The rows of one block of lines.
#[pyclass]
struct Block {
    rows: Rows,
}

#[pymethods]
impl Block {
    #[getter]
    fn rows(&self) -> usize {
        self.rows.count
    }

    /// The lower and upper half of the sum of the 128-bit hashes of `data`. Odd lines are not included.
    #[getter]
    fn multiset(&self) -> (u64, u64) {
        (self.rows.multiset as u64, (self.rows.multiset >> 64) as u64)
    }

    /// Lines that Python must decode as a whole.
    #[getter]
    fn odd_lines(&self) -> Vec<RowPlace> {
        self.rows.odd_lines.clone()
    }

    /// The places of the texts of each `meta` that is not null.
    #[getter]
    fn metas(&self) -> Vec<RowPlace> {
        self.rows.metas.clone()
    }

    /// The columns that have odd or nulled values. Call it before `columns`, which takes the columns out of the block.
    fn odd_columns<'py>(&self, py: Python<'py>) -> Vec<OddColumn<'py>> {
        let mut found = Vec::new();
        let mut ordinal = 0;
        for column in &self.rows.columns {
            collect_odd(py, column, &mut ordinal, &mut found);
        }
        found
    }

    /// Take the times of the records and the columns as one struct array, in a PyCapsule of the Arrow C data interface. RuntimeError if
    /// they were taken before.
    fn columns<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let columns = std::mem::take(&mut self.rows.columns);
        let times = std::mem::take(&mut self.rows.emitted_at);
        if times.len() != self.rows.count {
            return Err(PyRuntimeError::new_err("the columns were taken before"));
        }
        let children = std::iter::once(int64_array(times)).chain(columns.into_iter().map(column_array)).collect();
        capsule(py, struct_array(self.rows.count, children))
    }

    /// Take the texts of `data` in the block's lines, as they are after the rules, as a string array. They are empty for odd lines. ValueError
    /// if `lines` is too short, RuntimeError if treated texts were taken before.
    fn texts<'py>(&mut self, py: Python<'py>, lines: &[u8]) -> PyResult<Bound<'py, PyCapsule>> {
        if self.rows.data.iter().any(|&(start, end)| start > end || end > lines.len()) {
            return Err(PyValueError::new_err("not the lines of this block"));
        }
        let rows = &mut self.rows;
        let texts = py.detach(|| rows.texts(lines));
        if texts.offsets.len() != self.rows.count + 1 {
            return Err(PyRuntimeError::new_err("the texts were taken before"));
        }
        capsule(py, text_array(texts))
    }
}

/// The column rules of one stream. `decide` is called with the number of a place and a quoted key. It returns the code of the action, its
/// length, the number of the member's own place or 0, and whether only objects are kept there.
#[pyclass]
struct LineRules {
    secret: Vec<u8>,
    decide: Py<PyAny>,
    rules: rules::LineRules,
}

#[pymethods]
impl LineRules {
    #[new]
    fn new(secret: Vec<u8>, decide: Py<PyAny>) -> Self {
        let rules = rules::LineRules::new(&secret);
        LineRules { secret, decide, rules }
    }

    /// Apply the rules to whole lines. Return the lines without the odd ones, and the places of these, which Python must treat. RuntimeError if the
    /// kernel panics: it has then forgotten all keys, and can be used again with a new `decide`.
    fn applied<'py>(&mut self, py: Python<'py>, lines: &[u8]) -> PyResult<(Bound<'py, PyBytes>, Vec<OddLine>)> {
        let (rules, decide) = (&mut self.rules, &self.decide);
        let mut decided = |place: usize, key: &[u8]| {
            Python::attach(|py| {
                let (code, length, place, strict) =
                    decide.call1(py, (place, PyBytes::new(py, key))).ok()?.extract::<(u8, usize, usize, bool)>(py).ok()?;
                Some(Decision { action: action(code, length)?, place, strict })
            })
        };
        let applied = py.detach(|| catch_unwind(AssertUnwindSafe(|| rules.apply(lines, &mut decided))));
        match applied {
            Ok((treated, odd)) => Ok((PyBytes::new(py, &treated), odd)),
            Err(_) => {
                self.rules = rules::LineRules::new(&self.secret);
                Err(PyRuntimeError::new_err("the rules of columns failed"))
            }
        }
    }
}

fn action(code: u8, length: usize) -> Option<Action> {
    match code {
        0 => Some(Action::Keep),
        1 => Some(Action::Drop),
        2 => Some(Action::Null),
        3 => Some(Action::Hash),
        4 => Some(Action::Truncate(length)),
        _ => None,
    }
}

/// Make the texts of new UUIDs of version 7 (RFC 9562), as a string array, from a time in milliseconds and 16 random bytes for each.
#[pyfunction]
fn row_ids<'py>(py: Python<'py>, milliseconds: u64, random: &[u8]) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, text_array(ids::texts(milliseconds, random)))
}

/// The lines of a stream: its index, the lines, their number, and their runs as the bytes of pairs of 64-bit integers.
type Taken<'py> = (usize, Bound<'py, PyBytes>, u64, Bound<'py, PyBytes>);

/// Lines of one stream that have not been taken. A piece is the index of a text and start and end in it. The last run ends at the input
/// offset `next`.
#[derive(Default)]
struct Pending {
    pieces: Vec<(usize, usize, usize)>,
    bytes: usize,
    records: u64,
    runs: Vec<u64>,
    next: Option<u64>,
}

impl Pending {
    fn add(&mut self, text: usize, start: usize, end: usize, records: u64, offset: u64) {
        self.pieces.push((text, start, end));
        self.bytes += end - start;
        self.records += records;
        if self.next == Some(offset) {
            *self.runs.last_mut().expect("a run ends here") += records;
        } else {
            self.runs.extend([offset, records]);
        }
        self.next = Some(offset + (end - start) as u64);
    }
}

/// Router that sorts record lines by stream. It recognizes the lines of known prefixes by itself; Python adds the others.
#[pyclass]
struct Router {
    /// Boxed, because Python aligns its objects to 16 bytes, and the substring searcher in the router needs 32.
    router: Box<router::Router>,
    texts: Vec<Py<PyBytes>>,
    pending: Vec<Pending>,
    dirty: Vec<usize>,
}

#[pymethods]
impl Router {
    /// Create a router for this number of streams.
    #[new]
    fn new(streams: usize) -> Self {
        let pending = std::iter::repeat_with(Pending::default).take(streams).collect();
        Router { router: Box::new(router::Router::new()), texts: Vec::new(), pending, dirty: Vec::new() }
    }

    /// Route lines with this prefix to the stream. IndexError if there is no such stream.
    fn learn(&mut self, prefix: &[u8], stream: usize) -> PyResult<()> {
        self.require(stream)?;
        self.router.learn(prefix, stream);
        Ok(())
    }

    /// Drop all prefixes of the stream.
    fn forget(&mut self, stream: usize) {
        self.router.forget(stream);
    }

    /// Route the whole lines of `text[start..end]` until a prefix is unknown. `offset` is the input offset of the first line. Return the
    /// position in `text` of the first line with an unknown prefix, or `end`. RuntimeError if the router panics.
    fn route(&mut self, text: &Bound<'_, PyBytes>, start: usize, end: usize, offset: u64) -> PyResult<usize> {
        let lines = text.as_bytes().get(start..end).ok_or_else(no_place)?;
        let router = &self.router;
        let mut runs = Vec::new();
        let routed = text.py().detach(|| catch_unwind(AssertUnwindSafe(|| router.route(lines, |run| runs.push(run)))));
        let stop = routed.map_err(|_| PyRuntimeError::new_err("the router failed"))?;
        for run in runs {
            self.take(text, start + run.start, start + run.end, run.records, offset + run.start as u64, run.stream);
        }
        Ok(start + stop)
    }

    /// Add the line `text[start..end]` of the stream. `offset` is its offset in the input.
    fn add(&mut self, text: &Bound<'_, PyBytes>, start: usize, end: usize, offset: u64, stream: usize) -> PyResult<()> {
        self.require(stream)?;
        text.as_bytes().get(start..end).ok_or_else(no_place)?;
        self.take(text, start, end, 1, offset, stream);
        Ok(())
    }

    /// Return the lines that each stream has received since the last call, and drop them from the router.
    fn taken<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Taken<'py>>> {
        let texts = std::mem::take(&mut self.texts);
        let views: Vec<&[u8]> = texts.iter().map(|text| text.bind(py).as_bytes()).collect();
        let mut found = Vec::new();
        for stream in std::mem::take(&mut self.dirty) {
            let pending = std::mem::take(&mut self.pending[stream]);
            let lines = PyBytes::new_with(py, pending.bytes, |target| {
                let mut at = 0;
                for (text, start, end) in pending.pieces {
                    target[at..at + end - start].copy_from_slice(&views[text][start..end]);
                    at += end - start;
                }
                Ok(())
            })?;
            let runs: Vec<u8> = pending.runs.into_iter().flat_map(u64::to_ne_bytes).collect();
            found.push((stream, lines, pending.records, PyBytes::new(py, &runs)));
        }
        Ok(found)
    }
}

impl Router {
    fn take(&mut self, text: &Bound<'_, PyBytes>, start: usize, end: usize, records: u64, offset: u64, stream: usize) {
        if !self.texts.last().is_some_and(|last| last.is(text)) {
            self.texts.push(text.clone().unbind());
        }
        if self.pending[stream].pieces.is_empty() {
            self.dirty.push(stream);
        }
        self.pending[stream].add(self.texts.len() - 1, start, end, records, offset);
    }

    fn require(&self, stream: usize) -> PyResult<()> {
        if stream < self.pending.len() { Ok(()) } else { Err(PyIndexError::new_err("no such stream")) }
    }
}

fn no_place() -> PyErr {
    PyValueError::new_err("no such place in the text")
}

fn capsule(py: Python<'_>, array: ArrowArray) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, array, c"arrow_array")
}

fn collect_odd<'py>(py: Python<'py>, column: &Column, ordinal: &mut usize, found: &mut Vec<OddColumn<'py>>) {
    let own = *ordinal;
    *ordinal += 1;
    if !column.odd.is_empty() || !column.nulled.is_empty() {
        let packed = |part: fn(&Odd) -> usize| packed(py, column.odd.iter().map(|odd| part(odd) as i64));
        let nulled = crate::module::packed(py, column.nulled.iter().copied());
        found.push((own, packed(|odd| odd.position), packed(|odd| odd.start), packed(|odd| odd.end), nulled));
    }
    match &column.body {
        Body::Object { members, .. } => members.iter().for_each(|member| collect_odd(py, member, ordinal, found)),
        Body::Array { items, .. } => collect_odd(py, items, ordinal, found),
        _ => {}
    }
}

fn packed<'py>(py: Python<'py>, numbers: impl Iterator<Item = i64>) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.flat_map(i64::to_ne_bytes).collect();
    PyBytes::new(py, &bytes)
}

/// The native kernel of destination-s3-spark.
#[pymodule]
fn destination_s3_spark_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The default hook writes the message of a panic to stderr, and the message may hold parts of a record.
    std::panic::set_hook(Box::new(|_| {}));
    module.add("INTERFACE", INTERFACE)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(row_ids, module)?)?;
    module.add_class::<Kernel>()?;
    module.add_class::<Router>()?;
    module.add_class::<Block>()?;
    module.add_class::<LineRules>()
}
