//! Points in time as RFC 3339 writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds of a day.
const DAY: u64 = 86_400;

/// Returns the current time, to the nanosecond, in UTC.
pub fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    format(since)
}

/// Returns the time that is so long after the Unix epoch.
pub fn format(since_epoch: Duration) -> String {
    let (seconds, nanos) = (since_epoch.as_secs(), since_epoch.subsec_nanos());
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// Returns year, month and day of a day of the Gregorian calendar, counted from 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    let (mut year, mut left) = (1970, days);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_of = |year| if is_leap(year) { 366 } else { 365 };
    // Whole cycles of 400 years first, so that no time takes long.
    year += left / 146_097 * 400;
    left %= 146_097;
    while left >= days_of(year) {
        left -= days_of(year);
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in months {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        let at = |seconds| format(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.000000000Z");
        assert_eq!(at(1_732_752_000), "2024-11-28T00:00:00.000000000Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000000000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(format(Duration::new(1, 5)), "1970-01-01T00:00:01.000000005Z");
    }
}
