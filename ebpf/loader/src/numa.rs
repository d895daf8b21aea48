//! The NUMA nodes of this machine.

/// How many there can be, those that may be added later included; `None` when that cannot be told.
pub(crate) fn possible_nodes() -> Option<u32> {
    let nodes = std::fs::read_to_string("/sys/devices/system/node/possible");
    // Without the directory the kernel knows of no other node than the first.
    nodes.map_or(Some(1), |text| highest(&text)?.checked_add(1))
}

/// The highest number in a list such as `0-3,5`.
fn highest(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_list_is_the_highest() {
        assert_eq!(highest("0\n"), Some(0));
        assert_eq!(highest("0-3\n"), Some(3));
        assert_eq!(highest("0-1,6"), Some(6));
        assert_eq!(highest(""), None);
    }
}
