//! The Python module.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule};

use crate::arrow::{ArrowArray, column_array, int64_array, struct_array, text_array};
use crate::column::{Body, Column, Odd, Texts};
use crate::ids;
use crate::keys::Keys;
use crate::line::Stream;
use crate::reader::{LONGEST_BLOCK, Reader, Rows};

/// Raised with every change of what Python sees, so that it takes no kernel of another version.
const INTERFACE: u32 = 2;

/// A place in the lines: the ordinal of the row, start and end.
type RowPlace = (usize, usize, usize);
/// Of a column, by its ordinal in a walk of the type tree: positions, starts and ends of odd values, and positions of nulled ones; each
/// as the bytes of 64-bit integers.
type OddColumn<'py> = (usize, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The type of a column: its kind, whether its dates and times must be kept whole, and the names and types of its members, or its items.
#[derive(FromPyObject)]
struct Spec {
    kind: String,
    whole: bool,
    children: Vec<(Vec<u8>, Spec)>,
}

impl Spec {
    fn column(&self) -> PyResult<Column> {
        let shifted = self.kind.ends_with("_with_timezone");
        let body = match self.kind.as_str() {
            "string" => Body::Text(Texts::new()),
            "boolean" => Body::Boolean(Vec::new()),
            "integer" => Body::Integer(Vec::new()),
            "number" => Body::Number(Vec::new()),
            "date" => Body::Date(Vec::new()),
            "time_with_timezone" | "time_without_timezone" => Body::Time { shifted, values: Vec::new() },
            "timestamp_with_timezone" | "timestamp_without_timezone" => Body::Timestamp { shifted, values: Vec::new() },
            "json_object" => Body::Json { opening: b'{', texts: Texts::new() },
            "json_array" => Body::Json { opening: b'[', texts: Texts::new() },
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

/// Reads the record lines of one stream. It keeps no rows between blocks, only what lines and keys look like.
#[pyclass]
struct Kernel {
    stream: (Vec<u8>, Vec<u8>),
    fields: Vec<(Vec<u8>, Spec)>,
    reader: Reader,
}

#[pymethods]
impl Kernel {
    /// For records of this stream with these fields: the key of each in UTF-8, and its type.
    #[new]
    fn new(name: Vec<u8>, namespace: Vec<u8>, fields: Vec<(Vec<u8>, Spec)>) -> PyResult<Self> {
        let stream = (name, namespace);
        let reader = new_reader(&stream, &fields)?;
        Ok(Kernel { stream, fields, reader })
    }

    /// Read whole lines. ValueError when they are longer than 2 GiB, RuntimeError when the kernel has a fault: then it has
    /// forgotten all and can be asked again.
    fn read(&mut self, py: Python<'_>, lines: &[u8]) -> PyResult<Block> {
        if lines.len() > LONGEST_BLOCK {
            return Err(PyValueError::new_err("the lines are longer than 2 GiB"));
        }
        let reader = &mut self.reader;
        let read = py.detach(|| catch_unwind(AssertUnwindSafe(|| reader.read(lines))));
        match read {
            Ok(rows) => Ok(Block { rows }),
            Err(_) => {
                self.reader = new_reader(&self.stream, &self.fields)?;
                Err(PyRuntimeError::new_err("the typing kernel failed"))
            }
        }
    }
}

fn new_reader(stream: &(Vec<u8>, Vec<u8>), fields: &[(Vec<u8>, Spec)]) -> PyResult<Reader> {
    let columns = fields.iter().map(|(key, spec)| Ok((key.clone(), spec.column()?))).collect::<PyResult<_>>()?;
    let (name, namespace) = stream.clone();
    Ok(Reader::new(Stream { name, namespace }, columns))
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

    /// The sum of the 128-bit hashes of `data`, its lower and upper half; odd lines are not in it.
    #[getter]
    fn multiset(&self) -> (u64, u64) {
        (self.rows.multiset as u64, (self.rows.multiset >> 64) as u64)
    }

    /// Lines that are Python's as a whole.
    #[getter]
    fn odd_lines(&self) -> Vec<RowPlace> {
        self.rows.odd_lines.clone()
    }

    /// Texts of each `meta` that is not null.
    #[getter]
    fn metas(&self) -> Vec<RowPlace> {
        self.rows.metas.clone()
    }

    /// The columns that have odd or nulled values. Before `columns`, which takes them along.
    fn odd_columns<'py>(&self, py: Python<'py>) -> Vec<OddColumn<'py>> {
        let mut found = Vec::new();
        let mut ordinal = 0;
        for column in &self.rows.columns {
            collect_odd(py, column, &mut ordinal, &mut found);
        }
        found
    }

    /// A struct array as a PyCapsule of the Arrow C data interface: the times of the records, then the columns. Only once.
    fn columns<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let columns = std::mem::take(&mut self.rows.columns);
        let times = std::mem::take(&mut self.rows.emitted_at);
        if times.len() != self.rows.count {
            return Err(PyRuntimeError::new_err("the columns were taken before"));
        }
        let children = std::iter::once(int64_array(times)).chain(columns.into_iter().map(column_array)).collect();
        capsule(py, struct_array(self.rows.count, children))
    }

    /// The texts of `data` in the block's lines, as a string array; empty for odd lines.
    fn texts<'py>(&self, py: Python<'py>, lines: &[u8]) -> PyResult<Bound<'py, PyCapsule>> {
        if self.rows.data.iter().any(|&(start, end)| start > end || end > lines.len()) {
            return Err(PyValueError::new_err("not the lines of this block"));
        }
        capsule(py, text_array(py.detach(|| self.rows.texts(lines))))
    }
}

/// Texts of new UUIDs of version 7 (RFC 9562), as a string array: this time in milliseconds, and random bytes, 16 for each.
#[pyfunction]
fn row_ids<'py>(py: Python<'py>, milliseconds: u64, random: &[u8]) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, text_array(ids::texts(milliseconds, random)))
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

/// The typing kernel of destination-s3-spark.
#[pymodule]
fn destination_s3_spark_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // The default one writes the text of a panic to stderr, which may hold parts of a record.
    std::panic::set_hook(Box::new(|_| {}));
    module.add("INTERFACE", INTERFACE)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(row_ids, module)?)?;
    module.add_class::<Kernel>()?;
    module.add_class::<Block>()
}
