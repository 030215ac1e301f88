//! Decoding of one stream's record lines to Arrow columns.
//!
//! The kernel decodes plain forms of lines and values. All others are odd: their places are returned, and Python decodes them.

mod arrow;
mod column;
mod hmac;
mod ids;
mod keys;
mod line;
mod module;
mod reader;
mod replacement;
mod router;
mod rules;
mod scan;
mod temporal;
mod treated;

#[cfg(test)]
mod tests;
