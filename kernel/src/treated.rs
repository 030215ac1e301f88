//! Column rules for members of `data` alone, in the pass that types them: no line is read twice.

use crate::column::Column;
use crate::keys::Keys;
use crate::replacement::{Action, Replacement};
use crate::scan::{NotPlain, Plain, Scanner, require_shallow};

/// A part of the line that goes, and the part of `texts` that takes its place.
struct Cut {
    start: usize,
    end: usize,
    by: (usize, usize),
}

/// The rules, and what they did to the last line.
pub struct Treated {
    /// The actions by the ordinal of the key.
    actions: Vec<Action>,
    replacement: Replacement,
    cuts: Vec<Cut>,
    texts: Vec<u8>,
}

impl Treated {
    pub fn new(actions: Vec<Action>, secret: &[u8]) -> Self {
        Treated { actions, replacement: Replacement::new(secret), cuts: Vec::new(), texts: Vec::new() }
    }

    /// Consume the object of `data`, and write its members at `position` of their columns as they are after the rules. Keys beyond the columns
    /// are those of rules without a column.
    pub fn read(&mut self, scanner: &mut Scanner, keys: &mut Keys, columns: &mut [Column], position: usize, depth: usize) -> Plain<()> {
        self.cuts.clear();
        self.texts.clear();
        require_shallow(depth)?;
        scanner.expect(b'{')?;
        let (mut start, mut comma, mut kept) = (scanner.at, None, false);
        scanner.blanks();
        if scanner.take(b'}') {
            return Ok(());
        }
        let mut place = keys.start();
        loop {
            let declared = keys.read(scanner, &mut place)?;
            scanner.blanks();
            let action = declared.map_or(Action::Keep, |ordinal| self.actions[ordinal]);
            match (action, declared.and_then(|ordinal| columns.get_mut(ordinal))) {
                (Action::Keep, Some(column)) => column.read(scanner, position, depth + 1)?,
                (Action::Keep | Action::Drop, _) => drop(scanner.skip(depth + 1)?),
                (action, column) => self.replace(scanner, action, column, position, depth + 1)?,
            }
            scanner.blanks();
            let mark = scanner.at;
            let closed = scanner.take(b'}');
            if !closed {
                scanner.expect(b',')?;
            }
            if action == Action::Drop {
                let (start, end) = match comma.filter(|_| kept) {
                    Some(comma) => (comma, mark),
                    None => (start, if closed { mark } else { scanner.at }),
                };
                self.cuts.push(Cut { start, end, by: (0, 0) });
            } else {
                kept = true;
            }
            if closed {
                return Ok(());
            }
            (start, comma) = (scanner.at, Some(mark));
            scanner.blanks();
        }
    }

    /// Consume a value, and write what takes its place into its column, if it has one.
    fn replace(&mut self, scanner: &mut Scanner, action: Action, column: Option<&mut Column>, position: usize, depth: usize) -> Plain<()> {
        let start = scanner.at;
        scanner.skip(depth)?;
        let from = self.texts.len();
        self.replacement.append(scanner.slice(start, scanner.at), action, &mut self.texts)?;
        self.cuts.push(Cut { start, end: scanner.at, by: (from, self.texts.len()) });
        if let Some(column) = column {
            let odd = column.odd.len();
            column.read(&mut Scanner::new(&self.texts, from, self.texts.len()), position, depth)?;
            if column.odd.len() > odd {
                return Err(NotPlain); // Python would look for the value in the line
            }
        }
        Ok(())
    }

    /// The most bytes that `append` appends.
    pub fn most_bytes(&self, (first, last): (usize, usize)) -> usize {
        last - first + self.texts.len()
    }

    /// Append the text of the last line's `data`, which is `lines[first..last]`, as it is after the rules.
    pub fn append(&self, lines: &[u8], (first, last): (usize, usize), out: &mut Vec<u8>) {
        let mut done = first;
        for cut in &self.cuts {
            out.extend_from_slice(&lines[done..cut.start]);
            out.extend_from_slice(&self.texts[cut.by.0..cut.by.1]);
            done = cut.end;
        }
        out.extend_from_slice(&lines[done..last]);
    }
}
