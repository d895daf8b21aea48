//! What a caller can choose about the probes.
use std::time::Duration;

/// How the probes are sized and which are left out. `Options::default()` suits a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size in bytes of the ring for OOM kills and exits; a power of two and at least one page.
    pub vital_bytes: u32,
    /// Size in bytes of the ring for everything else; a power of two and at least one page.
    pub events_bytes: u32,
    /// How many cgroups are counted at once, at least; the one that was longest idle is forgotten for a new one.
    pub cgroups: u32,
    /// How long an event that does not wake the agent waits at most: exits and memory events that follow another.
    pub drain_every: Duration,
    /// Names of programs that are not attached; `all` leaves out every one.
    pub leave_out: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            vital_bytes: 512 * 1024,
            events_bytes: 512 * 1024,
            cgroups: 8192,
            drain_every: Duration::from_millis(50),
            leave_out: Vec::new(),
        }
    }
}

impl Options {
    pub(crate) fn leaves_out(&self, program: &str) -> bool {
        self.leave_out.iter().any(|name| name == program || name == "all")
    }

    /// What is wrong with the sizes, if anything.
    pub(crate) fn mistake(&self, page: u32) -> Option<String> {
        let ring = |name: &str, bytes: u32| {
            (!bytes.is_power_of_two() || bytes < page).then(|| {
                format!("{name} is {bytes}, but a ring is a power of two and at least {page} bytes")
            })
        };
        ring("vital_bytes", self.vital_bytes)
            .or_else(|| ring("events_bytes", self.events_bytes))
            .or_else(|| (self.cgroups == 0).then(|| "cgroups is 0".to_owned()))
            .or_else(|| self.drain_every.is_zero().then(|| "drain_every is 0".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_legal_with_any_page_size() {
        assert_eq!(Options::default().mistake(4096), None);
        assert_eq!(Options::default().mistake(65536), None);
    }

    #[test]
    fn a_ring_that_the_kernel_would_refuse_is_named() {
        let odd = Options { vital_bytes: 5000, ..Options::default() };
        assert!(odd.mistake(4096).unwrap().starts_with("vital_bytes is 5000"));
        let small = Options { events_bytes: 4096, ..Options::default() };
        assert_eq!(small.mistake(4096), None);
        assert!(small.mistake(16384).unwrap().starts_with("events_bytes is 4096"));
    }
}
