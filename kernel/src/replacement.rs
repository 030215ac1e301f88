//! What takes the place of a value by a column rule.

use crate::hmac::Secret;
use crate::scan::{Plain, compact, unescape};

/// What happens to a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Keep,
    Drop,
    Null,
    Hash,
    /// Keep this many characters of its text.
    Truncate(usize),
}

pub const NULL: &[u8] = b"null";
/// Most zeros that the canonical text of a number has instead of an exponent.
const MOST_PADDING: i64 = 38;
/// Most digits of an exponent that is computed with.
const LONGEST_EXPONENT: usize = 18;

pub struct Replacement {
    secret: Secret,
}

impl Replacement {
    pub fn new(secret: &[u8]) -> Self {
        Replacement { secret: Secret::new(secret) }
    }

    /// Append the JSON text that takes the place of a value's. Refuse a string with a lone surrogate, which Python decodes.
    pub fn append(&self, value: &[u8], action: Action, out: &mut Vec<u8>) -> Plain<()> {
        if value == NULL || action == Action::Null {
            out.extend_from_slice(NULL);
            return Ok(());
        }
        let string = value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let mut text = Vec::new();
        match (action, string) {
            (Action::Truncate(length), Some(inner)) => {
                let end = characters(inner, length);
                out.extend_from_slice(&value[..=end]);
                out.push(b'"');
            }
            (Action::Truncate(length), None) => {
                value_text(value, &mut text);
                let inner = escaped(&text);
                out.push(b'"');
                out.extend_from_slice(&inner[..characters(&inner, length)]);
                out.push(b'"');
            }
            (_, Some(inner)) if inner.contains(&b'\\') => {
                unescape(inner, &mut text)?;
                self.hashed(&text, out);
            }
            (_, Some(inner)) => self.hashed(inner, out),
            (_, None) => {
                value_text(value, &mut text);
                self.hashed(&text, out);
            }
        }
        Ok(())
    }

    fn hashed(&self, text: &[u8], out: &mut Vec<u8>) {
        out.push(b'"');
        self.secret.append_hex(text, out);
        out.push(b'"');
    }
}

/// Append the text of a value that is no string: a number's canonical one, a container's compact one.
fn value_text(value: &[u8], out: &mut Vec<u8>) {
    match value[0] {
        b'{' | b'[' => compact(value, out),
        b'-' | b'0'..=b'9' => number_text(value, out),
        _ => out.extend_from_slice(value),
    }
}

/// Append the canonical text of a number: its exact value, without an exponent unless it would need many zeros.
fn number_text(number: &[u8], out: &mut Vec<u8>) {
    let (sign, size) = match number.strip_prefix(b"-") {
        Some(size) => (&number[..1], size),
        None => (&number[..0], number),
    };
    if !size[0].is_ascii_digit() {
        return out.extend_from_slice(number); // -Infinity
    }
    let exponent_at = size.iter().position(|&byte| byte == b'e' || byte == b'E');
    let (mantissa, exponent) = size.split_at(exponent_at.unwrap_or(size.len()));
    let Some(exponent) = small(exponent.get(1..).unwrap_or_default()) else {
        return out.extend_from_slice(number);
    };
    let point = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(mantissa.len());
    let fraction = mantissa.get(point + 1..).unwrap_or_default();
    let digits = [&mantissa[..point], fraction].concat();
    let Some(first) = digits.iter().position(|&digit| digit != b'0') else {
        return out.push(b'0');
    };
    let last = digits.iter().rposition(|&digit| digit != b'0').unwrap_or(first);
    let significant = &digits[first..=last];
    let power = exponent - fraction.len() as i64 + (digits.len() - 1 - last) as i64;
    let point = significant.len() as i64 + power;
    out.extend_from_slice(sign);
    if (0..=MOST_PADDING).contains(&power) {
        out.extend_from_slice(significant);
        out.resize(out.len() + power as usize, b'0');
    } else if power < 0 && point > 0 {
        let (whole, fraction) = significant.split_at(point as usize);
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if (-MOST_PADDING..=0).contains(&point) {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + -point as usize, b'0');
        out.extend_from_slice(significant);
    } else {
        out.extend_from_slice(significant);
        out.extend_from_slice(format!("e{power}").as_bytes());
    }
}

/// The exponent, which may be empty, unless it has too many digits.
fn small(exponent: &[u8]) -> Option<i64> {
    let digits = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    if digits.len() > LONGEST_EXPONENT {
        return None;
    }
    let size = digits.iter().fold(0, |size, digit| size * 10 + i64::from(digit - b'0'));
    Some(if exponent.starts_with(b"-") { -size } else { size })
}

/// The end of the first characters of a string's inner text, which is well-formed. An escape is one character, and so is a pair of surrogates.
fn characters(inner: &[u8], length: usize) -> usize {
    let mut at = 0;
    for _ in 0..length {
        match inner.get(at) {
            None => break,
            Some(b'\\') => {
                at += if inner[at + 1] != b'u' {
                    2
                } else if is_pair(&inner[at..]) {
                    12
                } else {
                    6
                }
            }
            Some(_) => {
                at += 1;
                while inner.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    at += 1;
                }
            }
        }
    }
    at
}

/// Whether a text begins with the escapes of a pair of surrogates.
fn is_pair(text: &[u8]) -> bool {
    let half = |at: usize, low: u8| {
        let Some(&[b'\\', b'u', b'd' | b'D', second, _, _]) = text.get(at..at + 6) else { return false };
        let digit = (second as char).to_digit(16).unwrap_or(0) as u8;
        digit >= low && digit < low + 4
    };
    half(0, 8) && half(6, 12)
}

/// A text as the inner text of a JSON string. It has no control characters, because no plain line has.
fn escaped(text: &[u8]) -> Vec<u8> {
    let mut inner = Vec::with_capacity(text.len());
    for &byte in text {
        if matches!(byte, b'"' | b'\\') {
            inner.push(b'\\');
        }
        inner.push(byte);
    }
    inner
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_text() {
        let text = |number: &str| {
            let mut out = Vec::new();
            number_text(number.as_bytes(), &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(["-0.0", "0e9", "1E2", "-1.50", "12e-1", "1e-3"].map(text), ["0", "0", "100", "-1.5", "1.2", "0.001"]);
        assert_eq!(
            ["1e38", "1e39", "1e-39", "1e-40"].map(text),
            [&format!("1{}", "0".repeat(38)), "1e39", &format!("0.{}1", "0".repeat(38)), "1e-40",]
        );
        assert_eq!(["-Infinity", "1e1234567890123456789"].map(text), ["-Infinity", "1e1234567890123456789"]);
    }
}
