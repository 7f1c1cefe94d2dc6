//! Points in time: now, and as RFC 3339 writes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wrinklefree::text::Date;

/// Returns the Unix time in seconds.
pub fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Returns the current time, to the nanosecond, in UTC.
pub fn rfc3339_now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    rfc3339(since)
}

/// Returns the time that is so long after the Unix epoch.
pub fn rfc3339(since_epoch: Duration) -> String {
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    let date = Date::from_unix(seconds).to_string();
    format!("{}.{:09}Z", date.trim_end_matches('Z'), since_epoch.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        let at = |seconds| rfc3339(Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56.000000000Z");
        assert_eq!(at(1_732_752_000), "2024-11-28T00:00:00.000000000Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59.000000000Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00.000000000Z");
        assert_eq!(rfc3339(Duration::new(1, 5)), "1970-01-01T00:00:01.000000005Z");
    }
}
