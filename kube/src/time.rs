//! Times as the API server writes them, and as it wants them.

use ebb_policy_cluster::Time;

/// Days from 1970 to a day of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// A time in RFC 3339 with `Z`, with or without a fraction; `None` for anything else.
pub(crate) fn read(text: &str) -> Option<Time> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let clock = clock.split_once('.').map_or(clock, |(whole, _)| whole);
    let numbers = |text: &str, by: char| -> Option<[i64; 3]> {
        let parts: Vec<i64> = text.split(by).map(str::parse).collect::<Result<_, _>>().ok()?;
        parts.try_into().ok()
    };
    let ([year, month, day], [hour, minute, second]) = (numbers(date, '-')?, numbers(clock, ':')?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    u64::try_from(seconds).ok().map(|seconds| Time(seconds * 1_000))
}

/// A time with microseconds, as Leases and Events carry it.
#[must_use]
pub fn write(time: Time) -> String {
    let seconds = i64::try_from(time.0 / 1_000).unwrap_or_default();
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}000Z",
        second / 3_600,
        second / 60 % 60,
        second % 60,
        time.0 % 1_000
    )
}

/// Now.
pub(crate) fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Time(since.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_and_write_alike() {
        for (text, millis) in [
            ("1970-01-01T00:00:00.000000Z", 0),
            ("2024-02-29T12:30:01.000000Z", 1_709_209_801_000),
            ("2026-11-24T03:16:20.000000Z", 1_795_490_180_000),
        ] {
            assert_eq!(read(text), Some(Time(millis)));
            assert_eq!(write(Time(millis)), text);
        }
        assert_eq!(read("2024-02-29T12:30:01Z"), Some(Time(1_709_209_801_000)));
        assert_eq!(read("yesterday"), None);
    }
}
