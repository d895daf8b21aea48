//! The collectors' policies: ages, and how much is kept.
use super::{ContainerGcPolicy, ImageGcPolicy, RawEviction, parse::Checker};
use crate::Millis;
use alloc::{format, string::ToString};

impl Checker {
    pub(super) fn container_gc(&mut self, raw: &RawEviction) -> ContainerGcPolicy {
        ContainerGcPolicy {
            min_age: self.duration(
                "minimumContainerTTLDuration",
                raw.minimum_container_ttl_duration.as_deref(),
                Millis(0),
            ),
            max_per_container: u64::try_from(
                raw.maximum_dead_containers_per_container.unwrap_or(1),
            )
            .ok(),
            max_containers: u64::try_from(raw.maximum_dead_containers.unwrap_or(-1)).ok(),
        }
    }

    pub(super) fn image_gc(&mut self, raw: &RawEviction) -> ImageGcPolicy {
        let high =
            self.percent("imageGCHighThresholdPercent", raw.image_gc_high_threshold_percent, 85);
        let low =
            self.percent("imageGCLowThresholdPercent", raw.image_gc_low_threshold_percent, 80);
        if let (Some(high), Some(low)) = (high, low)
            && low >= high
        {
            // The one that was written is the one to name; the low one when both were.
            let (key, value, problem, fix) = match raw.image_gc_low_threshold_percent {
                Some(_) => (
                    "imageGCLowThresholdPercent",
                    low,
                    format!("not below imageGCHighThresholdPercent = {high}"),
                    format!(
                        "write a number below {high}, or raise imageGCHighThresholdPercent above {low}"
                    ),
                ),
                None => (
                    "imageGCHighThresholdPercent",
                    high,
                    format!("not above imageGCLowThresholdPercent = {low}"),
                    format!(
                        "write a number above {low}, or lower imageGCLowThresholdPercent below {high}"
                    ),
                ),
            };
            self.refuse(key, Some(&value.to_string()), problem, fix);
        }
        let min_age = self.duration(
            "imageMinimumGCAge",
            raw.image_minimum_gc_age.as_deref(),
            Millis(120_000),
        );
        let max_age =
            self.duration("imageMaximumGCAge", raw.image_maximum_gc_age.as_deref(), Millis(0));
        if max_age.0 != 0 && max_age <= min_age {
            self.refuse(
                "imageMaximumGCAge",
                raw.image_maximum_gc_age.as_deref(),
                format!("not above imageMinimumGCAge, {min_age}"),
                "write a longer duration, or \"0s\" to switch it off",
            );
        }
        ImageGcPolicy {
            high_percent: high.unwrap_or(85),
            low_percent: low.unwrap_or(80),
            min_age,
            max_age: (max_age.0 != 0).then_some(max_age),
        }
    }

    fn percent(&mut self, key: &str, value: Option<i64>, default: u8) -> Option<u8> {
        let Some(value) = value else { return Some(default) };
        let percent = u8::try_from(value).ok().filter(|percent| *percent <= 100);
        if percent.is_none() {
            self.refuse(
                key,
                Some(&value.to_string()),
                "not between 0 and 100",
                "write a whole number of percent",
            );
        }
        percent
    }
}
