//! Parsing of dates, times and timestamps to stored integers.
//!
//! The plain forms are those of ISO 8601: `yyyy-MM-dd`, `HH:mm:ss` with up to nine fractional digits, a `T` or a blank between date and
//! time, and optionally `Z`, `+hh:mm`, `+hhmm` or `+hh` behind the time. Common lenient forms such as `yyyy/M/d HH:mm PST` are parsed too.
//! The functions return None for other texts, which Python parses.

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
/// Largest hour of an offset. Offsets up to 18:00 are valid, but with 17 the minutes can be checked independently of the hours.
const PLAIN_OFFSET_HOURS: i64 = 17;
const LONGEST_DAY: usize = "yyyy-MM-dd".len();
const MONTH_DAYS: [i64; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A local time of day, and its offset from UTC.
struct Time {
    of_day_us: i64,
    offset_us: i64,
}

/// UTC offset in hours of each unambiguous zone abbreviation. Equal to `ABBREVIATIONS` in `decoding/temporal.py`.
const ZONES: [(&[u8], i64); 27] = [
    (b"Z", 0),
    (b"UTC", 0),
    (b"GMT", 0),
    (b"UT", 0),
    (b"WET", 0),
    (b"BST", 1),
    (b"WEST", 1),
    (b"CET", 1),
    (b"MET", 1),
    (b"CEST", 2),
    (b"MEST", 2),
    (b"EET", 2),
    (b"EEST", 3),
    (b"MSK", 3),
    (b"JST", 9),
    (b"KST", 9),
    (b"EST", -5),
    (b"EDT", -4),
    (b"CST", -6),
    (b"CDT", -5),
    (b"MST", -7),
    (b"MDT", -6),
    (b"PST", -8),
    (b"PDT", -7),
    (b"AKST", -9),
    (b"AKDT", -8),
    (b"HST", -10),
];

/// Parse a date to days since 1970-01-01. A time behind the date must be valid, and is dropped.
pub fn date(text: &[u8]) -> Option<i32> {
    let (days, rest) = day(text).or_else(|| lenient_day(text))?;
    if !rest.is_empty() {
        separated_time(rest)?;
    }
    i32::try_from(days).ok()
}

/// Parse a time to microseconds of the day, in UTC if `shifted`, else in local time.
pub fn time(text: &[u8], shifted: bool) -> Option<i64> {
    if text.last().is_some_and(|&byte| byte.is_ascii_alphabetic() && byte != b'Z') {
        return None; // a zone has no known offset without a date
    }
    let time = time_of_day(text)?;
    let offset_us = if shifted { time.offset_us } else { 0 };
    Some((time.of_day_us - offset_us).rem_euclid(DAY_US))
}

/// Parse a timestamp to microseconds since 1970-01-01, in UTC if `shifted`, else in local time.
pub fn timestamp(text: &[u8], shifted: bool) -> Option<i64> {
    let (days, rest) = day(text).or_else(|| lenient_day(text))?;
    let time = separated_time(rest)?;
    let offset_us = if shifted { time.offset_us } else { 0 };
    Some(days * DAY_US + time.of_day_us - offset_us)
}

/// Whether the text of a parsed date has no time behind it.
pub fn is_day_alone(text: &[u8]) -> bool {
    text.len() <= LONGEST_DAY
}

/// Whether the text of a parsed time or timestamp has at most six fractional digits.
pub fn is_of_microseconds(text: &[u8]) -> bool {
    let point = memchr::memrchr(b'.', text).unwrap_or(text.len()); // may be a point in the date, if there is no fraction
    text[point..].iter().skip(1).take_while(|byte| byte.is_ascii_digit()).count() <= 6
}

/// Parse `yyyy-MM-dd` in the years 1 to 9999. Return days since 1970-01-01 and the rest of the text.
#[inline]
fn day(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let year = two_digits(date, 0)? * 100 + two_digits(date, 2)?;
    let (month, day) = (two_digits(date, 5)?, two_digits(date, 8)?);
    existing_day(year, month, day).map(|days| (days, rest))
}

/// Days since 1970-01-01, or None for a day that does not exist.
fn existing_day(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = month == 2 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > MONTH_DAYS[month as usize] + i64::from(leap) {
        return None;
    }
    Some(days_from_civil(year, month, day))
}

/// Parse `yyyy/M/d` with slashes, dots or hyphens, and one or two digits in month and day. Return the days and the rest of the text.
#[cold]
fn lenient_day(text: &[u8]) -> Option<(i64, &[u8])> {
    let (year, rest) = text.split_at_checked(4)?;
    let year = two_digits(year, 0)? * 100 + two_digits(year, 2)?;
    let (month, rest) = separated_number(rest)?;
    let (day, rest) = separated_number(rest)?;
    if rest.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    existing_day(year, month, day).map(|days| (days, rest))
}

fn separated_number(text: &[u8]) -> Option<(i64, &[u8])> {
    let (b'-' | b'/' | b'.', rest) = text.split_first()? else {
        return None;
    };
    let digits = rest.iter().take(2).take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at(digits);
    let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    (!digits.is_empty()).then_some((value, rest))
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let years = year - i64::from(month <= 2);
    let (era, year_of_era) = (years / 400, years % 400); // never negative here
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn separated_time(text: &[u8]) -> Option<Time> {
    match text.split_first()? {
        (b'T' | b' ', rest) => time_of_day(rest),
        _ => None,
    }
}

/// Parse a whole text as `HH:mm` or `HH:mm:ss`, with an optional fraction and an optional offset or zone.
#[inline]
fn time_of_day(text: &[u8]) -> Option<Time> {
    let (clock, mut rest) = text.split_at_checked(5)?;
    if clock[2] != b':' {
        return None;
    }
    let (hour, minute) = (two_digits(clock, 0)?, two_digits(clock, 3)?);
    let mut of_day_us = (hour * 60 + minute) * 60 * SECOND_US;
    if hour > 23 || minute > 59 {
        return None;
    }
    if let [b':', tens, ones, behind @ ..] = rest {
        let second = two_digits(&[*tens, *ones], 0)?;
        if second > 59 {
            return None;
        }
        of_day_us += second * SECOND_US;
        rest = behind;
        if let [b'.', fraction @ ..] = rest {
            let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return None;
            }
            let mut unit = SECOND_US;
            for &digit in &fraction[..digits.min(6)] {
                unit /= 10;
                of_day_us += i64::from(digit - b'0') * unit;
            }
            rest = &fraction[digits..];
        }
    }
    let offset_us = offset(rest).or_else(|| lenient_offset(rest))?;
    Some(Time { of_day_us, offset_us })
}

/// Parse an offset behind a blank, or a zone abbreviation with or without a blank. Return microseconds.
#[cold]
fn lenient_offset(text: &[u8]) -> Option<i64> {
    let text = text.strip_prefix(b" ").unwrap_or(text);
    if matches!(text.first(), Some(b'+' | b'-')) {
        return offset(text);
    }
    let (_, hours) = ZONES.iter().find(|(name, _)| *name == text)?;
    Some(hours * 3600 * SECOND_US)
}

#[inline]
fn offset(text: &[u8]) -> Option<i64> {
    let minutes_at = match text {
        b"" | b"Z" => return Some(0),
        [b'+' | b'-', _, _] => None,
        [b'+' | b'-', _, _, _, _] => Some(3),
        [b'+' | b'-', _, _, b':', _, _] => Some(4),
        _ => return None,
    };
    let hours = two_digits(text, 1)?;
    let minutes = match minutes_at {
        Some(at) => two_digits(text, at)?,
        None => 0,
    };
    if hours > PLAIN_OFFSET_HOURS || minutes > 59 {
        return None;
    }
    let size = (hours * 60 + minutes) * 60 * SECOND_US;
    Some(if text[0] == b'-' { -size } else { size })
}

#[inline(always)]
fn two_digits(text: &[u8], at: usize) -> Option<i64> {
    let (tens, ones) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}
