//! Application of a stream's column rules to its record lines: members of `data` are removed or replaced, and all else stays as it is.
//!
//! Python decides what a rule is for (`decoding/line_rules.py`): it is asked once for each key at each place. Lines that are not plain are
//! left to it.

use std::collections::HashMap;

use crate::keys::plain_key;
use crate::replacement::{Action, NULL, Replacement};
use crate::scan::{NotPlain, Plain, Scanner, require_shallow};

/// The decision on a member. `place` is the number of a place whose own members are decided upon, or 0. `strict`: whether only an object, an
/// array of them or null is kept there.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    pub action: Action,
    pub place: usize,
    pub strict: bool,
}

/// Decides on the member of the object at a place with a key, which is given with its quotes. None if it cannot.
pub type Decide<'d> = dyn FnMut(usize, &[u8]) -> Option<Decision> + 'd;

/// Most keys that are remembered. Lines with others are left to Python.
const MOST_KEYS: usize = 1 << 14;
/// Nesting level of `data` in a line.
const DEPTH_OF_DATA: usize = 3;

/// The keys of a place, as they appear in lines. A key is first looked for behind the one that it followed the last time.
#[derive(Default)]
struct Place {
    strict: bool,
    known: Vec<(Box<[u8]>, Decision, usize)>,
    by_key: HashMap<Box<[u8]>, usize>,
    first: usize,
}

/// A line left to Python: its row, its start and end in the lines, and the position in the treated lines where it belongs.
pub type OddLine = (usize, usize, usize, usize);

pub struct LineRules {
    replacement: Replacement,
    places: Vec<Place>,
    keys: usize,
}

/// A container that is read: where its current member begins, the comma before that, and whether a member was kept.
struct Members {
    start: usize,
    comma: Option<usize>,
    kept: bool,
}

/// The text that is left of a line, up to the position `done` in it.
struct Left<'o> {
    out: &'o mut Vec<u8>,
    done: usize,
}

impl Left<'_> {
    /// Take over the text up to `start`, and go on at `end`.
    fn cut(&mut self, scanner: &Scanner, start: usize, end: usize) {
        self.out.extend_from_slice(scanner.slice(self.done, start));
        self.done = end;
    }
}

impl LineRules {
    pub fn new(secret: &[u8]) -> Self {
        LineRules { replacement: Replacement::new(secret), places: vec![Place::default()], keys: 0 }
    }

    /// Treat whole lines. The last one may lack its newline and gets one.
    pub fn apply(&mut self, lines: &[u8], decide: &mut Decide) -> (Vec<u8>, Vec<OddLine>) {
        let mut out = Vec::with_capacity(lines.len() + lines.len() / 8);
        let mut odd = Vec::new();
        let (mut start, mut row) = (0, 0);
        while start < lines.len() {
            let end = memchr::memchr(b'\n', &lines[start..]).map_or(lines.len(), |at| start + at);
            let before = out.len();
            let text = &lines[start..end];
            let plain = text.is_ascii() || std::str::from_utf8(text).is_ok();
            if plain && self.line(lines, (start, end), &mut out, decide).is_ok() {
                out.push(b'\n');
            } else {
                out.truncate(before);
                odd.push((row, start, end, before));
            }
            (start, row) = (end + 1, row + 1);
        }
        (out, odd)
    }

    /// Treat one line. Refuse a line that is no plain message with one record with one `data`.
    fn line(&mut self, lines: &[u8], (start, end): (usize, usize), out: &mut Vec<u8>, decide: &mut Decide) -> Plain<()> {
        let mut scanner = Scanner::new(lines, start, end);
        let mut left = Left { out, done: start };
        let mut found = false;
        self.envelope(&mut scanner, 1, &mut found, &mut left, decide)?;
        scanner.blanks();
        if !found || !scanner.at_end() {
            return Err(NotPlain);
        }
        left.cut(&scanner, end, end);
        Ok(())
    }

    /// Consume the object of the message (level 1) or of the record (level 2).
    fn envelope(&mut self, scanner: &mut Scanner, level: usize, found: &mut bool, left: &mut Left, decide: &mut Decide) -> Plain<()> {
        scanner.blanks();
        scanner.expect(b'{')?;
        scanner.blanks();
        let wanted: &[u8] = if level == 1 { b"record" } else { b"data" };
        let mut seen = false;
        loop {
            if plain_key(scanner)? == wanted {
                if std::mem::replace(&mut seen, true) {
                    return Err(NotPlain);
                }
                if level == 1 {
                    self.envelope(scanner, 2, found, left, decide)?;
                } else {
                    self.object(scanner, 0, DEPTH_OF_DATA, left, decide)?;
                    *found = true;
                }
            } else {
                scanner.skip(level)?;
            }
            scanner.blanks();
            if scanner.take(b'}') {
                return Ok(());
            }
            scanner.expect(b',')?;
            scanner.blanks();
        }
    }

    /// Consume an object whose members are decided upon.
    fn object(&mut self, scanner: &mut Scanner, place: usize, depth: usize, left: &mut Left, decide: &mut Decide) -> Plain<()> {
        require_shallow(depth)?;
        scanner.expect(b'{')?;
        let mut members = Members { start: scanner.at, comma: None, kept: false };
        scanner.blanks();
        if scanner.take(b'}') {
            return Ok(());
        }
        let mut before = usize::MAX;
        loop {
            let decision = self.key(scanner, place, &mut before, decide)?;
            scanner.blanks();
            let value = scanner.at;
            if decision.action == Action::Keep {
                members.kept = true;
                self.kept(scanner, decision.place, depth + 1, left, decide)?;
            } else {
                scanner.skip(depth + 1)?;
            }
            let end = scanner.at;
            scanner.blanks();
            let mark = scanner.at;
            let closed = scanner.take(b'}');
            if !closed {
                scanner.expect(b',')?;
            }
            match decision.action {
                Action::Keep => {}
                Action::Drop => match members.comma.filter(|_| members.kept) {
                    Some(comma) => left.cut(scanner, comma, mark),
                    None => left.cut(scanner, members.start, if closed { mark } else { scanner.at }),
                },
                action => {
                    members.kept = true;
                    left.cut(scanner, value, end);
                    self.replacement.append(scanner.slice(value, end), action, left.out)?;
                }
            }
            if closed {
                return Ok(());
            }
            (members.start, members.comma) = (scanner.at, Some(mark));
            scanner.blanks();
        }
    }

    /// Consume a value that is kept, and treat the members in it if it has a place.
    fn kept(&mut self, scanner: &mut Scanner, place: usize, depth: usize, left: &mut Left, decide: &mut Decide) -> Plain<()> {
        if place == 0 {
            return scanner.skip(depth).map(drop);
        }
        match scanner.peek() {
            b'{' => self.object(scanner, place, depth, left, decide),
            b'[' => self.items(scanner, place, depth, left, decide),
            _ => {
                let start = scanner.at;
                scanner.skip(depth)?;
                if self.places[place].strict && scanner.slice(start, scanner.at) != NULL {
                    left.cut(scanner, start, scanner.at);
                    left.out.extend_from_slice(b"\"\"");
                }
                Ok(())
            }
        }
    }

    fn items(&mut self, scanner: &mut Scanner, place: usize, depth: usize, left: &mut Left, decide: &mut Decide) -> Plain<()> {
        require_shallow(depth)?;
        scanner.expect(b'[')?;
        scanner.blanks();
        if scanner.take(b']') {
            return Ok(());
        }
        loop {
            self.kept(scanner, place, depth + 1, left, decide)?;
            scanner.blanks();
            if scanner.take(b']') {
                return Ok(());
            }
            scanner.expect(b',')?;
            scanner.blanks();
        }
    }

    /// Consume a key and its colon. `before` is the number of the key before it, if that is known, and becomes its own.
    #[inline]
    fn key(&mut self, scanner: &mut Scanner, place: usize, before: &mut usize, decide: &mut Decide) -> Plain<Decision> {
        let keys = &self.places[place];
        let predicted = if *before == usize::MAX { keys.first } else { keys.known[*before].2 };
        let found = match keys.known.get(predicted) {
            Some((text, _, _)) if scanner.take_all(text) => predicted,
            _ => self.look_up(scanner, place, *before, decide)?,
        };
        *before = found;
        scanner.blanks();
        scanner.expect(b':')?;
        Ok(self.places[place].known[found].1)
    }

    #[inline(never)]
    fn look_up(&mut self, scanner: &mut Scanner, place: usize, before: usize, decide: &mut Decide) -> Plain<usize> {
        let string = scanner.string()?;
        let quoted = scanner.slice(string.start - 1, string.end + 1);
        let found = match self.places[place].by_key.get(quoted) {
            Some(&found) => found,
            None => {
                if self.keys == MOST_KEYS {
                    return Err(NotPlain);
                }
                let decision = decide(place, quoted).ok_or(NotPlain)?;
                if self.places.len() <= decision.place {
                    self.places.resize_with(decision.place + 1, Place::default);
                }
                if decision.place != 0 {
                    self.places[decision.place].strict = decision.strict;
                }
                self.keys += 1;
                let keys = &mut self.places[place];
                keys.known.push((quoted.into(), decision, usize::MAX));
                keys.by_key.insert(quoted.into(), keys.known.len() - 1);
                keys.known.len() - 1
            }
        };
        let keys = &mut self.places[place];
        match keys.known.get_mut(before) {
            Some(known) => known.2 = found,
            None => keys.first = found,
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decide(place: usize, key: &[u8]) -> Option<Decision> {
        let (action, place, strict) = match (place, key) {
            (_, b"\"drop\"") => (Action::Drop, 0, false),
            (_, b"\"null\"") => (Action::Null, 0, false),
            (_, b"\"hash\"") => (Action::Hash, 0, false),
            (_, b"\"cut\"") => (Action::Truncate(2), 0, false),
            (0, b"\"in\"") => (Action::Keep, 1, true),
            _ => (Action::Keep, 0, false),
        };
        Some(Decision { action, place, strict })
    }

    fn treated(data: &str) -> String {
        let mut rules = LineRules::new(b"secret");
        let lines = format!("{{\"record\":{{\"data\":{data}}}}}\n");
        let (out, odd) = rules.apply(lines.as_bytes(), &mut decide);
        assert_eq!(odd, []);
        String::from_utf8(out).unwrap().replace("{\"record\":{\"data\":", "").replace("}}\n", "")
    }

    #[test]
    fn members_are_removed_and_replaced_and_nothing_else() {
        assert_eq!(treated(r#"{"drop":1}"#), "{}");
        assert_eq!(treated(r#"{ "drop":1 , "a" : 2.50 }"#), r#"{ "a" : 2.50 }"#);
        assert_eq!(treated(r#"{"a":1 ,"drop":[{"drop":1}], "drop" : 2 ,"b":1e0 }"#), r#"{"a":1 ,"b":1e0 }"#);
        assert_eq!(treated(r#"{"a":1, "drop":"}" }"#), r#"{"a":1}"#);
        assert_eq!(treated(r#"{"null":[1], "null": null}"#), r#"{"null":null, "null": null}"#);
        assert_eq!(treated(r#"{"cut":"\u00e9\ud83d\ude00x","hash":null}"#), r#"{"cut":"\u00e9\ud83d\ude00","hash":null}"#);
        assert_eq!(treated(r#"{"cut":["a"],"in":[{"drop":1,"b":2},7,null]}"#), r#"{"cut":"[\"","in":[{"b":2},"",null]}"#);
    }

    #[test]
    fn a_hash_is_that_of_the_text() {
        let expected = "\"97bb8a8bde6ec7d02e7fe36e2a0cbfd8bcc9ae2dd2b2f4cf80a1ab1dfa3e2a6b\"".len();
        let of_text = treated(r#"{"hash":"42"}"#);
        assert_eq!(of_text.len(), "{\"hash\":}".len() + expected);
        for same in ["42", "42.0", "4.2e1", "420E-1", "\"\\u00342\""] {
            assert_eq!(treated(&format!("{{\"hash\":{same}}}")), of_text);
        }
    }
}
