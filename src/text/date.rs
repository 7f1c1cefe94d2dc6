//! The date that chat templates print. The core has no clock: the caller passes the date.

/// Date and time of day, in the caller's time zone.
///
/// ```
/// use serde_json::json;
/// use wrinklefree::format::TextParts;
/// use wrinklefree::text::{ChatTemplate, Date, RenderOptions};
///
/// let source = "{{ strftime_now('%d %b %Y') }}".to_string();
/// let parts = TextParts { chat_template: Some(source), ..TextParts::default() };
/// let template = ChatTemplate::new(&parts)?.unwrap();
/// let date = Some(Date::from_unix(1_721_984_707));
/// let options = RenderOptions { date, ..RenderOptions::default() };
/// assert_eq!(template.render_with(&json!([]), &options)?, "26 Jul 2024");
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Days since 1 January 1970.
    days: i64,
    /// Seconds since midnight.
    seconds: u32,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl Date {
    /// Creates a date from seconds since 1 January 1970 UTC. For local time, add the offset of the time
    /// zone.
    #[must_use]
    pub fn from_unix(seconds: i64) -> Self {
        Self { days: seconds.div_euclid(86_400), seconds: seconds.rem_euclid(86_400) as u32 }
    }

    /// Year, month from 1, day from 1, in the Gregorian calendar.
    fn civil(self) -> (i64, usize, i64) {
        // Years that start in March have the leap day last. 400 of them have 146,097 days.
        let days = self.days + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let march_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march_month + 2) / 5 + 1;
        let month = (march_month + 2) % 12 + 1;
        let january = i64::from(month <= 2);
        (year + 400 * era + january, month as usize, day)
    }

    /// Formats the date as Python's `strftime` does, in English. Unknown directives stay as they are.
    pub(super) fn format(self, format: &str) -> String {
        let (year, month, day) = self.civil();
        let weekday = WEEKDAYS[(self.days + 3).rem_euclid(7) as usize];
        let month_name = MONTHS[month - 1];
        let (hour, minute, second) =
            (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let mut out = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('Y') => out += &year.to_string(),
                Some('y') => out += &format!("{:02}", year.rem_euclid(100)),
                Some('m') => out += &format!("{month:02}"),
                Some('B') => out += month_name,
                Some('b') => out += &month_name[..3],
                Some('d') => out += &format!("{day:02}"),
                Some('A') => out += weekday,
                Some('a') => out += &weekday[..3],
                Some('H') => out += &format!("{hour:02}"),
                Some('I') => out += &format!("{:02}", (hour + 11) % 12 + 1),
                Some('p') => out += if hour < 12 { "AM" } else { "PM" },
                Some('M') => out += &format!("{minute:02}"),
                Some('S') => out += &format!("{second:02}"),
                Some('%') => out.push('%'),
                Some(other) => out.extend(['%', other]),
                None => out.push('%'),
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_python_does() {
        let at = |seconds| Date::from_unix(seconds);
        let all = "%a %A %d %b %B %Y-%m-%d %y %H:%M:%S %I %p %% %q %";
        assert_eq!(
            at(0).format(all),
            "Thu Thursday 01 Jan January 1970-01-01 70 00:00:00 12 AM % %q %"
        );
        assert_eq!(at(1_709_208_000).format("%d %b %Y %H"), "29 Feb 2024 12");
        assert_eq!(at(1_735_689_599).format("%Y-%m-%d %I%p"), "2024-12-31 11PM");
        assert_eq!(at(951_827_696).format("%A %d %B %Y"), "Tuesday 29 February 2000");
        assert_eq!(at(-1).format("%Y-%m-%d %H:%M:%S"), "1969-12-31 23:59:59");
        assert_eq!(at(4_102_444_800).format("%Y-%m-%d"), "2100-01-01");
    }
}
