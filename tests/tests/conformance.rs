//! Every scenario of every rule.
use ebb_tests::conformance::{check, name, rules};

#[test]
fn every_scenario_of_every_rule_is_decided_as_the_rule_says() {
    let mut failures = Vec::new();
    let mut count = 0;
    for rule in rules().unwrap() {
        for scenario in &rule.scenarios {
            count += 1;
            if let Err(error) = check(scenario) {
                failures.push(format!(
                    "{}/{}/{}: {error:#}",
                    rule.section,
                    rule.name,
                    name(scenario)
                ));
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {count} scenarios:\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}
