//! Plain ISO 8601 texts as stored integers: `yyyy-MM-dd`, `HH:mm:ss` with up to nine more digits, a `T` or a blank between them, and
//! `Z`, `+hh:mm`, `+hhmm`, `+hh` or nothing behind.

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;
/// Offsets of up to 18:00 exist; here they end before, so that minutes need no second look.
const PLAIN_OFFSET_HOURS: i64 = 17;
const MONTH_DAYS: [i64; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// A time of day, and its offset from UTC.
struct Time {
    of_day_us: i64,
    offset_us: i64,
}

/// Days since 1970-01-01. A time behind the date must be one, and is dropped.
pub fn date(text: &[u8]) -> Option<i32> {
    let (days, rest) = day(text)?;
    if !rest.is_empty() {
        separated_time(rest)?;
    }
    i32::try_from(days).ok()
}

/// Microseconds of the day, in UTC if `shifted`.
pub fn time(text: &[u8], shifted: bool) -> Option<i64> {
    let time = time_of_day(text)?;
    let offset_us = if shifted { time.offset_us } else { 0 };
    Some((time.of_day_us - offset_us).rem_euclid(DAY_US))
}

/// Microseconds since 1970-01-01, in UTC if `shifted`.
pub fn timestamp(text: &[u8], shifted: bool) -> Option<i64> {
    let (days, rest) = day(text)?;
    let time = separated_time(rest)?;
    let offset_us = if shifted { time.offset_us } else { 0 };
    Some(days * DAY_US + time.of_day_us - offset_us)
}

/// A day of the years 1 to 9999, and what stands behind it.
#[inline]
fn day(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let year = two_digits(date, 0)? * 100 + two_digits(date, 2)?;
    let (month, day) = (two_digits(date, 5)?, two_digits(date, 8)?);
    let leap = month == 2 && year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if year == 0 || !(1..=12).contains(&month) || day == 0 || day > MONTH_DAYS[month as usize] + i64::from(leap) {
        return None;
    }
    Some((days_from_civil(year, month, day), rest))
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

#[inline]
fn time_of_day(text: &[u8]) -> Option<Time> {
    let (clock, mut rest) = text.split_at_checked(8)?;
    if clock[2] != b':' || clock[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (two_digits(clock, 0)?, two_digits(clock, 3)?, two_digits(clock, 6)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut of_day_us = ((hour * 60 + minute) * 60 + second) * SECOND_US;
    if let Some((b'.', fraction)) = rest.split_first() {
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
    let offset_us = offset(rest)?;
    Some(Time { of_day_us, offset_us })
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
