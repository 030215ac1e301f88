//! Record lines of one stream -> Arrow columns: the plain forms of lines and values. Everything else is left to Python, by its place.

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
