//! Amounts of resources by name, as Kubernetes lists them: `cpu`, `memory`, `pid`, `hugepages-2Mi`, …
//!
//! Adding and taking the larger go resource by resource, the way the kubelet sums containers into a pod.
use crate::Quantity;
use alloc::{
    collections::BTreeMap,
    string::{String, ToString},
};

/// CPUs, in cores.
pub const CPU: &str = "cpu";
/// Bytes of memory.
pub const MEMORY: &str = "memory";
/// Bytes of local disk.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Task ids; only in a node's capacity and in reservations.
pub const PID: &str = "pid";
/// What precedes the page size in the name of a huge page resource.
const HUGE_PAGES: &str = "hugepages-";

/// Amounts by resource name. A resource that is not listed is not known to be zero: it was not mentioned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(transparent)
)]
pub struct Amounts(BTreeMap<String, Quantity>);

impl Amounts {
    /// No resource at all.
    #[must_use]
    pub const fn none() -> Amounts {
        Amounts(BTreeMap::new())
    }

    /// Sets the amount of one resource.
    pub fn set(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_string(), amount);
    }

    /// Takes one resource off the list.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The amount of one resource, if it is listed.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Thousandths of a resource, rounded up; 0 when it is not listed or negative.
    #[must_use]
    pub fn milli(&self, name: &str) -> u64 {
        self.get(name).map_or(0, milli)
    }

    /// Whole units of a resource, rounded up; 0 when it is not listed or negative.
    #[must_use]
    pub fn value(&self, name: &str) -> u64 {
        self.get(name).map_or(0, value)
    }

    /// Whether a resource is listed with more than zero.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some_and(Quantity::is_positive)
    }

    /// Whether nothing is listed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each resource with its amount, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Adds every amount of `other`.
    pub fn add(&mut self, other: &Amounts) {
        for (name, amount) in other.iter() {
            let sum = self.get(name).map_or(amount, |mine| mine.plus(amount));
            self.set(name, sum);
        }
    }

    /// Raises every amount to at least that of `other`.
    pub fn raise_to(&mut self, other: &Amounts) {
        for (name, amount) in other.iter() {
            if self.get(name).is_none_or(|mine| mine < amount) {
                self.set(name, amount);
            }
        }
    }

    /// Bytes by huge page size in bytes, for every huge page resource that is listed.
    #[must_use]
    pub fn huge_pages(&self) -> BTreeMap<u64, u64> {
        let sized = |(name, amount): (&str, Quantity)| Some((huge_page_size(name)?, value(amount)));
        self.iter().filter_map(sized).collect()
    }
}

impl<'a> FromIterator<(&'a str, Quantity)> for Amounts {
    fn from_iter<I: IntoIterator<Item = (&'a str, Quantity)>>(items: I) -> Amounts {
        Amounts(items.into_iter().map(|(name, amount)| (name.to_string(), amount)).collect())
    }
}

/// Whether a resource's name is that of huge pages, whatever their size.
#[must_use]
pub fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// The smallest page of any kernel that has huge pages.
const SMALLEST_PAGE: u64 = 4096;

/// Whether a kernel may have pages of this size.
#[must_use]
pub fn is_page_size(bytes: u64) -> bool {
    bytes >= SMALLEST_PAGE && bytes.is_power_of_two()
}

/// The page size in bytes of a resource name such as `hugepages-2Mi`; `None` for every other name, and for a size that no kernel has.
#[must_use]
pub fn huge_page_size(name: &str) -> Option<u64> {
    let size = name.strip_prefix(HUGE_PAGES)?.parse::<Quantity>().ok()?;
    u64::try_from(size.ceil()).ok().filter(|size| is_page_size(*size))
}

/// A huge page size as the kernel writes it in file names: `2MB`, `1GB`, `64KB`.
#[must_use]
pub fn huge_page_name(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KB", "MB", "GB", "TB", "PB"];
    let (mut size, mut unit) = (bytes, 0);
    while size >= 1024 && unit + 1 < UNITS.len() {
        size /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    alloc::format!("{size}{name}")
}

fn milli(amount: Quantity) -> u64 {
    const MILLI: i128 = 1_000_000;
    let nanos = amount.nanos();
    let whole = nanos.div_euclid(MILLI) + i128::from(nanos.rem_euclid(MILLI) != 0);
    u64::try_from(whole.max(0)).unwrap_or(u64::MAX)
}

fn value(amount: Quantity) -> u64 {
    u64::try_from(amount.ceil().max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_and_units_round_up() {
        let amounts: Amounts =
            [(CPU, "100100u".parse().unwrap()), (MEMORY, "1500m".parse().unwrap())]
                .into_iter()
                .collect();
        assert_eq!((amounts.milli(CPU), amounts.value(MEMORY)), (101, 2));
        assert_eq!(amounts.value("nvidia.com/gpu"), 0);
    }

    #[test]
    fn huge_page_sizes_read_as_kubernetes_and_print_as_the_kernel_names_them() {
        assert_eq!(huge_page_size("hugepages-2Mi"), Some(2 << 20));
        assert_eq!(huge_page_size("memory"), None);
        assert_eq!(huge_page_size("hugepages-x"), None);
        let names = [64 << 10, 2 << 20, 1 << 30].map(huge_page_name);
        assert_eq!(names, ["64KB", "2MB", "1GB"]);
    }
}
