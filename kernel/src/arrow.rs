//! Export of columns as arrays of the Arrow C data interface. All `unsafe` code of the kernel is here.
//!
//! Only arrays are exported. The importer provides the schema, and must give each column a type with the same layout.

use std::ffi::c_void;
use std::ptr;

use crate::column::{Body, Column, Texts};

/// `struct ArrowArray` of the Arrow C data interface.
#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

// SAFETY: the array is the only owner of the memory it points to, and that memory is not tied to a thread.
unsafe impl Send for ArrowArray {}
// SAFETY: nothing is mutated through a shared reference.
unsafe impl Sync for ArrowArray {}

enum Buffer {
    Bytes(Vec<u8>),
    Ints32(Vec<i32>),
    Ints64(Vec<i64>),
    Ints128(Vec<i128>),
    Doubles(Vec<f64>),
    None,
}

impl Buffer {
    fn pointer(&self) -> *const c_void {
        match self {
            Buffer::Bytes(values) => values.as_ptr().cast(),
            Buffer::Ints32(values) => values.as_ptr().cast(),
            Buffer::Ints64(values) => values.as_ptr().cast(),
            Buffer::Ints128(values) => values.as_ptr().cast(),
            Buffer::Doubles(values) => values.as_ptr().cast(),
            Buffer::None => ptr::null(),
        }
    }
}

/// The memory that an array points to.
struct Owned {
    _buffers: Vec<Buffer>,
    pointers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

impl Drop for Owned {
    fn drop(&mut self) {
        for &child in &self.children {
            // SAFETY: the pointer was made by `Box::into_raw` in `array`, and only this line turns it back into a box.
            drop(unsafe { Box::from_raw(child) });
        }
    }
}

impl Drop for ArrowArray {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the array is not released yet. A consumer that moves an array out sets its `release` to null.
            unsafe { release(self) };
        }
    }
}

unsafe extern "C" fn release(array: *mut ArrowArray) {
    // SAFETY: the specification requires the consumer to call this once, with an array that was made by `array`.
    unsafe {
        drop(Box::from_raw((*array).private_data.cast::<Owned>()));
        (*array).private_data = ptr::null_mut();
        (*array).release = None;
    }
}

fn array(length: usize, null_count: usize, buffers: Vec<Buffer>, children: Vec<ArrowArray>) -> ArrowArray {
    let mut owned = Box::new(Owned {
        pointers: buffers.iter().map(Buffer::pointer).collect(),
        _buffers: buffers,
        children: children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect(),
    });
    ArrowArray {
        length: length as i64,
        null_count: null_count as i64,
        offset: 0,
        n_buffers: owned.pointers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.pointers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release),
        private_data: Box::into_raw(owned).cast(),
    }
}

/// A struct array without nulls.
pub fn struct_array(length: usize, children: Vec<ArrowArray>) -> ArrowArray {
    array(length, 0, vec![Buffer::None], children)
}

pub fn int64_array(values: Vec<i64>) -> ArrowArray {
    array(values.len(), 0, vec![Buffer::None, Buffer::Ints64(values)], Vec::new())
}

pub fn text_array(texts: Texts) -> ArrowArray {
    let length = texts.offsets.len() - 1;
    let buffers = vec![Buffer::None, Buffer::Ints32(texts.offsets), Buffer::Bytes(texts.data)];
    array(length, 0, buffers, Vec::new())
}

/// Export a finished column. It becomes a null array if the kernel does not support its type.
pub fn column_array(column: Column) -> ArrowArray {
    let length = column.len;
    let null_count = column.nulls.iter().map(|(first, end)| (end - first) as usize).sum();
    let validity = validity(&column.nulls, length);
    let flat = |values: Buffer, validity: Buffer| array(length, null_count, vec![validity, values], Vec::new());
    match column.body {
        Body::Boolean(values) => flat(Buffer::Bytes(packed(&values)), validity),
        Body::Integer(values) | Body::Time { values, .. } | Body::Timestamp { values, .. } => flat(Buffer::Ints64(values), validity),
        Body::Number(values) => flat(Buffer::Doubles(values), validity),
        Body::Decimal { values, .. } => flat(Buffer::Ints128(values), validity),
        Body::Date(values) => flat(Buffer::Ints32(values), validity),
        Body::Text(texts) | Body::Json { texts, .. } | Body::Cell(texts) => {
            let buffers = vec![validity, Buffer::Ints32(texts.offsets), Buffer::Bytes(texts.data)];
            array(length, null_count, buffers, Vec::new())
        }
        Body::Object { members, .. } => {
            let children = members.into_iter().map(column_array).collect();
            array(length, null_count, vec![validity], children)
        }
        Body::Array { offsets, items } => {
            let buffers = vec![validity, Buffer::Ints32(offsets)];
            array(length, null_count, buffers, vec![column_array(*items)])
        }
        Body::Other => array(length, length, Vec::new(), Vec::new()),
    }
}

/// A bitmap with a bit per position, which is 0 for a null. No buffer if there are no nulls.
fn validity(nulls: &[(u32, u32)], length: usize) -> Buffer {
    if nulls.is_empty() {
        return Buffer::None;
    }
    let mut bits = vec![0xff_u8; length.div_ceil(8)];
    for &(first, end) in nulls {
        clear(&mut bits, first as usize, end as usize);
    }
    Buffer::Bytes(bits)
}

fn clear(bits: &mut [u8], mut first: usize, end: usize) {
    while first < end {
        if first % 8 == 0 && end - first >= 8 {
            let whole = (end - first) / 8;
            bits[first / 8..first / 8 + whole].fill(0);
            first += whole * 8;
        } else {
            bits[first / 8] &= !(1 << (first % 8));
            first += 1;
        }
    }
}

/// Pack bytes, each 0 or 1, into a bitmap.
fn packed(values: &[u8]) -> Vec<u8> {
    values.chunks(8).map(|eight| eight.iter().enumerate().fold(0, |bits, (at, value)| bits | value << at)).collect()
}
