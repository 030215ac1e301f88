//! Lookup of an object's keys, predicted from the key that followed the previous one the last time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64;

use crate::scan::{NotPlain, Plain, Scanner, unescape};

/// Number of undeclared keys that are remembered too, so that undeclared members are also predicted.
const MOST_OTHERS: usize = 1024;
const LONGEST_OTHER: usize = 256;
/// Index in `known` of the place before the first key.
const START: usize = 0;
/// Index that stands for a key that is not remembered.
const UNKNOWN: usize = usize::MAX;

/// The ordinal of a member among the declared ones, or None for an undeclared member.
pub type Declared = Option<usize>;

#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes).wrapping_add(self.0);
    }
}

type KeyMap = HashMap<Box<[u8]>, usize, BuildHasherDefault<KeyHasher>>;

struct Known {
    /// The key as it appears in a line, with its quotes and the colon.
    text: Box<[u8]>,
    declared: Declared,
    /// Index of the key that followed this one the last time.
    follower: usize,
}

/// The place behind a key, from which the next key is predicted.
#[derive(Clone, Copy)]
pub struct Place(usize);

pub struct Keys {
    known: Vec<Known>,
    by_text: KeyMap,
    by_name: KeyMap,
    decoded: Vec<u8>,
}

impl Keys {
    /// Create the lookup for declared members with these names.
    pub fn new(names: Vec<Vec<u8>>) -> Self {
        let by_name = names.into_iter().enumerate().map(|(at, name)| (name.into_boxed_slice(), at)).collect();
        let start = Known { text: Box::default(), declared: None, follower: UNKNOWN };
        Keys { known: vec![start], by_text: KeyMap::default(), by_name, decoded: Vec::new() }
    }

    pub fn start(&self) -> Place {
        Place(START)
    }

    /// Consume a key and its colon, and move `place` behind it. Return which declared member it names.
    #[inline]
    pub fn read(&mut self, scanner: &mut Scanner, place: &mut Place) -> Plain<Declared> {
        if let Some(before) = self.known.get(place.0) {
            let predicted = before.follower;
            if let Some(known) = self.known.get(predicted) {
                if scanner.take_all(&known.text) {
                    place.0 = predicted;
                    return Ok(known.declared);
                }
            }
        }
        self.look_up(scanner, place)
    }

    #[inline(never)]
    fn look_up(&mut self, scanner: &mut Scanner, place: &mut Place) -> Plain<Declared> {
        let string = scanner.string()?;
        let quoted = scanner.of(string);
        scanner.blanks();
        scanner.expect(b':')?;
        let found = match self.by_text.get(quoted) {
            Some(&found) => found,
            None => {
                let declared = self.declared(quoted, string.escaped);
                let room = self.known.len() < 2 * self.by_name.len() + MOST_OTHERS;
                if !room || (declared.is_none() && quoted.len() > LONGEST_OTHER) {
                    place.0 = UNKNOWN;
                    return Ok(declared);
                }
                self.remember(quoted, declared)
            }
        };
        if let Some(before) = self.known.get_mut(place.0) {
            before.follower = found;
        }
        place.0 = found;
        Ok(self.known[found].declared)
    }

    fn declared(&mut self, quoted: &[u8], escaped: bool) -> Declared {
        if !escaped {
            return self.by_name.get(quoted).copied();
        }
        self.decoded.clear();
        // No declared name has a lone surrogate.
        unescape(quoted, &mut self.decoded).ok()?;
        self.by_name.get(self.decoded.as_slice()).copied()
    }

    fn remember(&mut self, quoted: &[u8], declared: Declared) -> usize {
        let found = self.known.len();
        let text = [b"\"", quoted, b"\":"].concat().into_boxed_slice();
        self.known.push(Known { text, declared, follower: UNKNOWN });
        self.by_text.insert(quoted.into(), found);
        found
    }
}

/// Consume a key without escapes, its colon and the blanks around the colon. Refuse a key with escapes.
pub fn plain_key<'a>(scanner: &mut Scanner<'a>) -> Plain<&'a [u8]> {
    let string = scanner.string()?;
    if string.escaped {
        return Err(NotPlain);
    }
    scanner.blanks();
    scanner.expect(b':')?;
    scanner.blanks();
    Ok(scanner.of(string))
}
