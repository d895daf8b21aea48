//! CRI's clock: nanoseconds since 1970 in a signed number, where zero stands for "never".

use std::time::{Duration, SystemTime};

/// A moment; `None` for zero and for what lies before 1970.
pub(crate) fn moment(nanoseconds: i64) -> Option<SystemTime> {
    let since = u64::try_from(nanoseconds).ok().filter(|&ns| ns > 0)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(since))
}

/// A moment in protobuf's form; `None` when it is absent or before 1970.
pub(crate) fn stamp(stamp: Option<&prost_types::Timestamp>) -> Option<SystemTime> {
    let stamp = stamp?;
    let since = Duration::new(u64::try_from(stamp.seconds).ok()?, u32::try_from(stamp.nanos).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_not_the_beginning_of_1970() {
        assert_eq!(moment(0), None);
        assert_eq!(moment(i64::MIN), None);
        assert_eq!(
            moment(1_500_000_000),
            Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1500))
        );
    }
}
