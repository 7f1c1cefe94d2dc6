//! The date that chat templates print. The core has no clock: the caller passes the date.

use std::fmt;

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

/// ISO 8601, as UTC: `2026-11-28T10:20:30Z`.
impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("%Y-%m-%dT%H:%M:%SZ"))
    }
}

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

    /// Day of the year, from 1.
    fn day_of_year(self) -> i64 {
        let (year, ..) = self.civil();
        // Days from 1970 to the first of January, with the leap days of all years before.
        let before = year - 1;
        let leaps = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        self.days - (365 * (year - 1970) + leaps - 477) + 1
    }

    /// Year and week in ISO 8601: a week belongs to the year of its Thursday.
    fn iso_week(self) -> (i64, i64) {
        let thursday = Self { days: self.days - (self.days + 3).rem_euclid(7) + 3, seconds: 0 };
        (thursday.civil().0, (thursday.day_of_year() - 1) / 7 + 1)
    }

    /// Formats the date as Python's `strftime` does on Linux, in English. Unknown directives stay as
    /// they are. The flags are `-` (no padding), `_` (spaces), `0` (zeros) and `^` (capitals).
    pub(super) fn format(self, format: &str) -> String {
        let mut out = String::new();
        let mut rest = format;
        while let Some(at) = rest.find('%') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            let directive = after.trim_start_matches(['-', '_', '0', '^']);
            let flags = &after[..after.len() - directive.len()];
            let Some(letter) = directive.chars().next() else {
                out.push_str(&rest[at..]);
                return out;
            };
            rest = &directive[letter.len_utf8()..];
            match self.directive(letter) {
                Some(field) => out += &field.padded(flags),
                None => out.extend(['%'].into_iter().chain(flags.chars()).chain([letter])),
            }
        }
        out + rest
    }

    fn directive(self, letter: char) -> Option<Field> {
        let (year, month, day) = self.civil();
        // Days since Monday, and since Sunday.
        let (weekday, since_sunday) =
            ((self.days + 3).rem_euclid(7), (self.days + 4).rem_euclid(7));
        let (weekday_name, month_name) = (WEEKDAYS[weekday as usize], MONTHS[month - 1]);
        let (hour, minute, second) =
            (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        let hour_of_12 = i64::from((hour + 11) % 12 + 1);
        let of_year = self.day_of_year();
        let text = |text: &str| Some(Field::Text(text.into()));
        let zeros = |value, width| Some(Field::Number { value, width, pad: '0' });
        let spaces = |value, width| Some(Field::Number { value, width, pad: ' ' });
        let written = |format: &str| Some(Field::Text(self.format(format)));
        match letter {
            'Y' => zeros(year, 1),
            'C' => zeros(year.div_euclid(100), 2),
            'y' => zeros(year.rem_euclid(100), 2),
            'G' => zeros(self.iso_week().0, 1),
            'g' => zeros(self.iso_week().0.rem_euclid(100), 2),
            'm' => zeros(month as i64, 2),
            'd' => zeros(day, 2),
            'e' => spaces(day, 2),
            'j' => zeros(of_year, 3),
            'U' => zeros((of_year + 6 - since_sunday) / 7, 2),
            'W' => zeros((of_year + 6 - weekday) / 7, 2),
            'V' => zeros(self.iso_week().1, 2),
            'u' => zeros(weekday + 1, 1),
            'w' => zeros(since_sunday, 1),
            'H' => zeros(hour.into(), 2),
            'k' => spaces(hour.into(), 2),
            'I' => zeros(hour_of_12, 2),
            'l' => spaces(hour_of_12, 2),
            'M' => zeros(minute.into(), 2),
            'S' => zeros(second.into(), 2),
            'f' => zeros(0, 6),
            's' => zeros(self.days * 86_400 + i64::from(self.seconds), 1),
            'B' => text(month_name),
            'b' | 'h' => text(&month_name[..3]),
            'A' => text(weekday_name),
            'a' => text(&weekday_name[..3]),
            'p' => text(if hour < 12 { "AM" } else { "PM" }),
            'P' => text(if hour < 12 { "am" } else { "pm" }),
            'c' => written("%a %b %e %H:%M:%S %Y"),
            'x' | 'D' => written("%m/%d/%y"),
            'X' | 'T' => written("%H:%M:%S"),
            'r' => written("%I:%M:%S %p"),
            'R' => written("%H:%M"),
            'F' => written("%Y-%m-%d"),
            // Python's dates without a time zone.
            'z' | 'Z' => text(""),
            'n' => text("\n"),
            't' => text("\t"),
            '%' => text("%"),
            _ => None,
        }
    }
}

/// Text or number that a directive prints.
enum Field {
    Text(String),
    Number { value: i64, width: usize, pad: char },
}

impl Field {
    fn padded(self, flags: &str) -> String {
        match self {
            Self::Text(text) if flags.contains('^') => text.to_uppercase(),
            Self::Text(text) => text,
            Self::Number { value, width, pad } => {
                let flag = flags.chars().rev().find(|flag| "-_0".contains(*flag));
                match flag.unwrap_or(pad) {
                    '-' => value.to_string(),
                    '0' => format!("{value:0width$}"),
                    _ => format!("{value:width$}"),
                }
            }
        }
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
        assert_eq!(at(1_709_208_000).to_string(), "2024-02-29T12:00:00Z");
        assert_eq!(at(1_735_689_599).format("%Y-%m-%d %I%p"), "2024-12-31 11PM");
        assert_eq!(at(951_827_696).format("%A %d %B %Y"), "Tuesday 29 February 2000");
        assert_eq!(at(-1).format("%Y-%m-%d %H:%M:%S"), "1969-12-31 23:59:59");
        assert_eq!(
            at(1_721_984_707).format("%-d.%-m.%_d|%e|%j|%-j|%^b|%h"),
            "26.7.26|26|208|208|JUL|Jul"
        );
        assert_eq!(
            at(1_709_208_000).format("%j %U %W %V %G %g %u %w %C"),
            "060 08 09 09 2024 24 4 4 20"
        );
        assert_eq!(
            at(1_609_459_200).format("%j %U %W %V %G %-I %l %k %0e"),
            "001 00 00 53 2020 12 12  0 01"
        );
        assert_eq!(
            at(1_735_689_599).format("%c|%x|%X|%F|%T|%D|%R|%r|%P|%f|%s|%z%Z|%-"),
            "Tue Dec 31 23:59:59 2024|12/31/24|23:59:59|2024-12-31|23:59:59|12/31/24|23:59|11:59:59 PM|pm|000000|1735689599||%-"
        );
        assert_eq!(at(4_102_444_800).format("%Y-%m-%d"), "2100-01-01");
    }
}
