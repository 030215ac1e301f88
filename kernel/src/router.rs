//! Routing of record lines to their streams by their first bytes.
//!
//! Python decides which prefixes identify a stream (`protocol/routing.py`), and parses the lines with an unknown prefix.

use std::collections::HashMap;

use memchr::{memchr, memmem};

/// End of every prefix.
const DATA_KEY: &[u8] = b"\"data\":";

/// Consecutive lines of one stream in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub stream: usize,
    pub start: usize,
    pub end: usize,
    pub records: u64,
}

/// The prefixes learnt so far, and the stream of each.
pub struct Router {
    streams: HashMap<Vec<u8>, usize>,
    data_key: memmem::Finder<'static>,
}

impl Router {
    pub fn new() -> Self {
        Router { streams: HashMap::new(), data_key: memmem::Finder::new(DATA_KEY) }
    }

    /// Route lines with this prefix, which ends in `"data":` and has no newline, to the stream.
    pub fn learn(&mut self, prefix: &[u8], stream: usize) {
        self.streams.insert(prefix.to_vec(), stream);
    }

    pub fn forget(&mut self, stream: usize) {
        self.streams.retain(|_, known| *known != stream);
    }

    /// Route whole lines, and pass each run to `take`. Return the position of the first line with an unknown prefix, or the end.
    pub fn route(&self, lines: &[u8], mut take: impl FnMut(Run)) -> usize {
        let mut at = 0;
        while let Some((prefix, stream)) = self.known(lines, at) {
            let mut run = Run { stream, start: at, end: at, records: 0 };
            while lines[at..].starts_with(prefix) {
                let Some(length) = memchr(b'\n', &lines[at..]) else { break };
                at += length + 1;
                run.end = at;
                run.records += 1;
            }
            if run.records == 0 {
                break; // a line without a newline is not complete
            }
            take(run);
        }
        at
    }

    /// The prefix of the line that begins at `at`, and its stream, if the prefix is known.
    fn known(&self, lines: &[u8], at: usize) -> Option<(&[u8], usize)> {
        let (prefix, stream) = self.streams.get_key_value(self.prefix(lines, at)?)?;
        Some((prefix, *stream))
    }

    /// Return the line that begins there up to its first `"data":`. A search beyond the line would make blocks of other lines quadratic.
    fn prefix<'a>(&self, lines: &'a [u8], at: usize) -> Option<&'a [u8]> {
        let length = memchr(b'\n', &lines[at..])?;
        let key = self.data_key.find(&lines[at..at + length])?;
        Some(&lines[at..at + key + DATA_KEY.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(router: &Router, lines: &[u8]) -> (Vec<(usize, usize, usize, u64)>, usize) {
        let mut runs = Vec::new();
        let end = router.route(lines, |run| runs.push((run.stream, run.start, run.end, run.records)));
        (runs, end)
    }

    #[test]
    fn lines_of_known_prefixes_become_runs() {
        let mut router = Router::new();
        router.learn(b"a\"data\":", 0);
        router.learn(b"b\"data\":", 1);
        let lines = b"a\"data\":1}\na\"data\":2}\nb\"data\":3}\na\"data\":4}\n";
        assert_eq!(routed(&router, lines), (vec![(0, 0, 22, 2), (1, 22, 33, 1), (0, 33, 44, 1)], 44));
        router.forget(1);
        assert_eq!(routed(&router, lines), (vec![(0, 0, 22, 2)], 22));
    }

    #[test]
    fn a_prefix_is_looked_for_in_its_line_alone() {
        let router = Router::new();
        let lines = b"{}\n\nab\"data\":1}\n";
        assert_eq!(router.prefix(lines, 0), None);
        assert_eq!(router.prefix(lines, 3), None);
        assert_eq!(router.prefix(lines, 4), Some(&b"ab\"data\":"[..]));
    }

    #[test]
    fn other_lines_end_the_run() {
        let mut router = Router::new();
        router.learn(b"a\"data\":", 0);
        for other in [&b"x\n"[..], b"\n", b"ab\"data\":1}\n", b"a\n\"data\":", b"", b"a\"data\":without an end"] {
            let lines = [b"a\"data\":1}\n", other].concat();
            assert_eq!(routed(&router, &lines), (vec![(0, 0, 11, 1)], 11));
        }
    }
}
