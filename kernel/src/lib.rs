//! Decoding of one stream's record lines to Arrow columns.
//!
//! The kernel decodes plain forms of lines and values. All others are odd: their places are returned, and Python decodes them.

mod arrow;
mod column;
mod ids;
mod keys;
mod line;
mod module;
mod reader;
mod router;
mod scan;
mod temporal;

#[cfg(test)]
mod tests;
