//! Any text as a quantity and as a duration: what is read prints in a form that reads as the same value and prints the same.
#![no_main]
use ebb_policy::{Quantity, limits::duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(quantity) = text.parse::<Quantity>() {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().expect("what was printed can be read");
        assert_eq!(again, quantity, "{printed}");
        assert_eq!(again.to_string(), printed);
        let _ = quantity.ceil();
    }
    let _ = duration::parse_nanos(text);
});
