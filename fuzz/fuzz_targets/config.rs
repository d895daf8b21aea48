//! Any text as a configuration: it is refused with at least one mistake, or it reads back as it was printed.
#![no_main]
use ebb_agent::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Err(errors) => assert!(!errors.mistakes.is_empty() && !errors.to_string().is_empty()),
        Ok(config) => match Config::parse(&config.to_yaml()) {
            Ok(again) => assert_eq!(config, again),
            Err(errors) => panic!("what was printed is refused: {errors}\n{}", config.to_yaml()),
        },
    }
});
