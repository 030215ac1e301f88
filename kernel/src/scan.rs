//! Scanning of JSON tokens in a line. Text that is not plain JSON is refused, and left to Python.

/// Refusal of a text that the kernel does not decode. It carries nothing of the text.
#[derive(Debug, PartialEq, Eq)]
pub struct NotPlain;

pub type Plain<T> = Result<T, NotPlain>;

/// Deepest nesting of containers that is decoded. Deeper ones are left to Python, whose exact reader does not recurse.
const DEEPEST: usize = 512;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The text of a string between its quotes, with its escapes.
#[derive(Clone, Copy, Debug)]
pub struct Quoted {
    pub start: usize,
    pub end: usize,
    pub escaped: bool,
}

/// A number. `is_integer` says that the literal has neither fraction nor exponent.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    pub start: usize,
    pub end: usize,
    pub negative: bool,
    /// The digits before the exponent as one integer, if there are at most 18 of them.
    pub mantissa: Option<u64>,
    pub fraction_digits: usize,
    pub is_integer: bool,
    pub has_exponent: bool,
}

/// Findings in a skipped value: blanks between tokens, and NaN or Infinity.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holds {
    pub blanks: bool,
    pub non_numbers: bool,
}

/// A cursor over one line of a block. Positions are those in the block.
pub struct Scanner<'a> {
    text: &'a [u8],
    pub at: usize,
}

impl<'a> Scanner<'a> {
    /// Create a cursor over `lines[start..end]`, which must not hold a newline.
    pub fn new(lines: &'a [u8], start: usize, end: usize) -> Self {
        Scanner { text: &lines[..end], at: start }
    }

    pub fn slice(&self, start: usize, end: usize) -> &'a [u8] {
        &self.text[start..end]
    }

    pub fn of(&self, string: Quoted) -> &'a [u8] {
        self.slice(string.start, string.end)
    }

    /// The next byte, or 0 at the end of the line. No token begins with 0.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    pub fn at_end(&self) -> bool {
        self.at == self.text.len()
    }

    #[inline(always)]
    pub fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
        }
    }

    /// Consume this byte if it is next. Return whether it was.
    #[inline(always)]
    pub fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte;
        self.at += usize::from(found);
        found
    }

    pub fn begins_with(&self, bytes: &[u8]) -> bool {
        self.text[self.at..].starts_with(bytes)
    }

    pub fn expect(&mut self, byte: u8) -> Plain<()> {
        if self.take(byte) { Ok(()) } else { Err(NotPlain) }
    }

    /// Consume these bytes if they are next. Return whether they were.
    #[inline(always)]
    pub fn take_all(&mut self, bytes: &[u8]) -> bool {
        let found = self.text[self.at..].starts_with(bytes);
        self.at += if found { bytes.len() } else { 0 };
        found
    }

    pub fn literal(&mut self, word: &[u8]) -> Plain<()> {
        if self.take_all(word) { Ok(()) } else { Err(NotPlain) }
    }

    /// Consume a string. Its escapes are checked to be well-formed, but may encode lone surrogates.
    #[inline]
    pub fn string(&mut self) -> Plain<Quoted> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            self.at = stop_in_string(self.text, self.at);
            match self.peek() {
                b'"' => {
                    let end = self.at;
                    self.at += 1;
                    return Ok(Quoted { start, end, escaped });
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(NotPlain),
            }
        }
    }

    fn escape(&mut self) -> Plain<()> {
        let digits = match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 0,
            Some(b'u') => 4,
            _ => return Err(NotPlain),
        };
        self.at += 2;
        let hex = self.text.get(self.at..self.at + digits).ok_or(NotPlain)?;
        if !hex.iter().all(u8::is_ascii_hexdigit) {
            return Err(NotPlain);
        }
        self.at += digits;
        Ok(())
    }

    /// Consume a number, which begins with a digit or a minus.
    #[inline]
    pub fn number(&mut self) -> Plain<Number> {
        let start = self.at;
        let negative = self.take(b'-');
        let mut mantissa = 0_u64;
        let first = self.at;
        let leading_zero = self.peek() == b'0';
        self.digits(&mut mantissa);
        let whole_digits = self.at - first;
        if whole_digits == 0 || (leading_zero && whole_digits > 1) {
            return Err(NotPlain);
        }
        let mut fraction_digits = 0;
        let mut is_integer = true;
        let mut has_exponent = false;
        if self.take(b'.') {
            is_integer = false;
            let first = self.at;
            self.digits(&mut mantissa);
            fraction_digits = self.at - first;
            if fraction_digits == 0 {
                return Err(NotPlain);
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            is_integer = false;
            has_exponent = true;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            let first = self.at;
            while self.peek().is_ascii_digit() {
                self.at += 1;
            }
            if self.at == first {
                return Err(NotPlain);
            }
        }
        let exact = whole_digits + fraction_digits <= 18;
        Ok(Number { start, end: self.at, negative, mantissa: exact.then_some(mantissa), fraction_digits, is_integer, has_exponent })
    }

    #[inline(always)]
    fn digits(&mut self, mantissa: &mut u64) {
        loop {
            let digit = self.peek().wrapping_sub(b'0');
            if digit > 9 {
                return;
            }
            // Wraps around for many digits, but the mantissa is only used if there are at most 18.
            *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            self.at += 1;
        }
    }

    /// Consume a value of any kind, including NaN and Infinity, inside `depth` containers.
    pub fn skip(&mut self, depth: usize) -> Plain<Holds> {
        let mut holds = Holds::default();
        self.skip_into(depth, &mut holds)?;
        Ok(holds)
    }

    fn skip_into(&mut self, depth: usize, holds: &mut Holds) -> Plain<()> {
        match self.peek() {
            b'"' => self.string().map(drop),
            b'{' => self.skip_container(depth, holds, true),
            b'[' => self.skip_container(depth, holds, false),
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'N' | b'I' => self.non_number(holds),
            b'-' if self.begins_with(b"-I") => self.non_number(holds),
            _ => self.number().map(drop),
        }
    }

    fn non_number(&mut self, holds: &mut Holds) -> Plain<()> {
        holds.non_numbers = true;
        if self.take_all(b"NaN") || self.take_all(b"Infinity") {
            return Ok(());
        }
        self.literal(b"-Infinity")
    }

    fn skip_container(&mut self, depth: usize, holds: &mut Holds, is_object: bool) -> Plain<()> {
        if depth > DEEPEST {
            return Err(NotPlain);
        }
        let end = if is_object { b'}' } else { b']' };
        self.at += 1;
        self.skip_blanks(holds);
        if self.take(end) {
            return Ok(());
        }
        loop {
            if is_object {
                self.string()?;
                self.skip_blanks(holds);
                self.expect(b':')?;
                self.skip_blanks(holds);
            }
            self.skip_into(depth + 1, holds)?;
            self.skip_blanks(holds);
            if self.take(end) {
                return Ok(());
            }
            self.expect(b',')?;
            self.skip_blanks(holds);
        }
    }

    #[inline(always)]
    fn skip_blanks(&mut self, holds: &mut Holds) {
        let before = self.at;
        self.blanks();
        holds.blanks |= self.at > before;
    }
}

/// Refuse a container that is nested too deeply.
pub fn require_shallow(depth: usize) -> Plain<()> {
    if depth > DEEPEST { Err(NotPlain) } else { Ok(()) }
}

/// Find the first quote, backslash or control character at or after `at`, eight bytes at a time. Return the end if there is none.
#[inline(always)]
fn stop_in_string(text: &[u8], mut at: usize) -> usize {
    while let Some(bytes) = text.get(at..at + 8) {
        let mut word = [0; 8];
        word.copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        // The lowest flag of each kind is exact. A borrow can only set wrong flags above it.
        let quotes = word ^ (ONES * b'"' as u64);
        let backslashes = word ^ (ONES * b'\\' as u64);
        let flags = (quotes.wrapping_sub(ONES) & !quotes)
            | (backslashes.wrapping_sub(ONES) & !backslashes)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let flags = flags & HIGHS;
        if flags != 0 {
            return at + (flags.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while let Some(&byte) = text.get(at) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            break;
        }
        at += 1;
    }
    at
}

/// Decode the escapes of a string, which must be well-formed, and append it. Refuse a lone surrogate; the text before it stays appended.
pub fn unescape(quoted: &[u8], out: &mut Vec<u8>) -> Plain<()> {
    let mut rest = quoted;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        let code = *rest.get(at + 1).ok_or(NotPlain)?;
        rest = &rest[at + 2..];
        match code {
            b'u' => {
                let (character, length) = unicode_escape(rest)?;
                let mut bytes = [0; 4];
                out.extend_from_slice(character.encode_utf8(&mut bytes).as_bytes());
                rest = &rest[length..];
            }
            b'b' => out.push(0x08),
            b'f' => out.push(0x0c),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Decode the escape whose four digits begin `text`, or a pair of surrogates. Return the character and the number of bytes consumed.
fn unicode_escape(text: &[u8]) -> Plain<(char, usize)> {
    let first = code_unit(text)?;
    if (0xd800..0xdc00).contains(&first) && text.get(4..6) == Some(br"\u") {
        let second = code_unit(&text[6..])?;
        if (0xdc00..0xe000).contains(&second) {
            let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            return char::from_u32(code).map(|c| (c, 10)).ok_or(NotPlain);
        }
    }
    char::from_u32(first).map(|c| (c, 4)).ok_or(NotPlain)
}

fn code_unit(text: &[u8]) -> Plain<u32> {
    let digits = text.get(..4).ok_or(NotPlain)?;
    digits.iter().try_fold(0, |code, &digit| {
        let value = (digit as char).to_digit(16).ok_or(NotPlain)?;
        Ok(code * 16 + value)
    })
}

/// Append a value's JSON text without the blanks between its tokens.
pub fn compact(text: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while at < text.len() {
        let start = at;
        if text[at] == b'"' {
            at += 1;
            loop {
                at = stop_in_string(text, at);
                match text.get(at) {
                    Some(b'\\') => at = (at + 2).min(text.len()),
                    Some(b'"') => break,
                    Some(_) => at += 1,
                    None => break,
                }
            }
            at = (at + 1).min(text.len());
            out.extend_from_slice(&text[start..at]);
        } else {
            if !matches!(text[at], b' ' | b'\t' | b'\r' | b'\n') {
                out.push(text[at]);
            }
            at += 1;
        }
    }
}
