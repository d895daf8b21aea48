//! Any bytes as records from the rings: each is refused with a reason or becomes an event that can be printed.
//!
//! The input is a list of records, each with two bytes for its length.
#![no_main]
use ebb_probes::KernelEvent;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let [low, high, tail @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (one, next) = tail.split_at(length);
        rest = next;
        match ebb_wire::decode(one) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(record) => {
                let event = KernelEvent::from(record);
                let _ = event.ts_ns();
                serde_json::to_string(&event).expect("an event can be printed");
            }
        }
    }
});
