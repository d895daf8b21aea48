//! Properties of texts: quantities, durations and configurations read back as they were printed, and nothing that is read panics.
use crate::config::raw;
use ebb_agent::config::{Config, Mode};
use ebb_model::quantity::Format;
use ebb_policy::{Quantity, limits::duration};
use proptest::prelude::*;

/// A configuration file made of what was made up, in the form that a person would write.
fn file(raw: &ebb_policy::RawEviction) -> String {
    // The printed form of any configuration with these limits is such a file.
    // Beside a kubelet, since elsewhere thresholds that can never act are refused.
    let config =
        Config { mode: Mode::Kubernetes, eviction: raw.clone(), ..Config::standalone_default() };
    config.to_yaml()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), ..ProptestConfig::default() })]

    #[test]
    fn a_configuration_reads_back_as_it_was_printed(raw in raw()) {
        let once = Config::parse(&file(&raw)).unwrap();
        prop_assert_eq!(&Config::parse(&once.to_yaml()).unwrap(), &once);
        // What was left out is filled in with the defaults of the mode; what was there is there.
        if raw.eviction_hard.is_some() {
            prop_assert_eq!(&once.eviction, &raw);
        }
    }

    #[test]
    fn a_quantity_reads_back_as_it_was_printed(value in any::<i64>(), decimal in any::<bool>()) {
        let format = if decimal { Format::DecimalSi } else { Format::BinarySi };
        let quantity = Quantity::whole(value.into(), format);
        let back: Quantity = quantity.to_string().parse().unwrap();
        prop_assert_eq!(back, quantity);
        // One of binary form that prints without a suffix reads back as a decimal one, which may print shorter: "1000" as "1k".
        let again: Quantity = back.to_string().parse().unwrap();
        prop_assert_eq!(again, quantity);
    }

    #[test]
    fn reading_a_quantity_or_a_duration_never_panics(text in "[-+0-9.eEinumkKMGTPhs%µ ]{0,40}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            let canonical = quantity.to_string();
            prop_assert_eq!(canonical.parse::<Quantity>().map(|back| back.to_string()), Ok(canonical));
        }
        let _ = duration::parse_nanos(&text);
    }

    #[test]
    fn reading_a_configuration_never_panics(text in "(evictionHard|ebb|memory.available|[a-zA-Z]{0,8}|: |\n|  |- |\"|\\{|\\}|5%|100Mi|\\[|#|&a|\\*a){0,30}") {
        match Config::parse(&text) {
            Ok(config) => prop_assert_eq!(Config::parse(&config.to_yaml()).unwrap(), config),
            Err(errors) => prop_assert!(!errors.mistakes.is_empty()),
        }
    }
}
