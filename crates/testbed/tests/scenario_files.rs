//! The shipped scenarios: each meets its expectations, with its own seed and with others, and is the same twice.

use std::fs;
use std::path::Path;

use mez_testbed::scenario_file::{SHIPPED, Scenario};

fn shipped() -> Vec<Scenario> {
    let read = |(name, text): &(&str, &str)| {
        let scenario: Scenario = text.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(*name, scenario.name());
        scenario
    };
    SHIPPED.iter().map(read).collect()
}

#[test]
fn every_file_is_shipped_and_described() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let description = fs::read_to_string(root.join("../../docs/scenarios.md")).expect("it is there");
    for entry in fs::read_dir(root.join("scenarios")).expect("a folder") {
        let path = entry.expect("readable").path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        assert!(SHIPPED.iter().any(|(shipped, _)| *shipped == name), "{name}: shipped.rs does not list it");
        assert!(description.contains(&format!("`{name}`")), "{name}: docs/scenarios.md does not list it");
    }
}

/// Runs with its own seed twice, which must give the same trace, and with another seed.
fn assert_holds(scenario: &Scenario) {
    let run = |seed| {
        let report = scenario.run(seed).unwrap_or_else(|failure| panic!("{}: {failure}", scenario.name()));
        let missed = report.missed();
        assert!(missed.is_empty(), "{}, seed {seed}:\n{}", scenario.name(), missed.join("\n"));
        report.trace_hash
    };
    let own = run(scenario.seed());
    assert_eq!(own, run(scenario.seed()), "{}", scenario.name());
    assert_ne!(own, run(1_001), "{}", scenario.name());
}

#[test]
fn what_five_cameras_expect_is_seen() {
    shipped().iter().filter(|scenario| scenario.name() == "five_cameras").for_each(assert_holds);
}

#[test]
fn what_the_other_shipped_scenarios_expect_is_seen() {
    let scenarios = shipped();
    scenarios.iter().filter(|scenario| scenario.name() != "five_cameras").for_each(assert_holds);
}

/// Expectations that cannot fail would prove nothing.
#[test]
fn what_is_not_seen_is_missed() {
    let text = "name = \"x\"\nseconds = 4\n[[camera]]\nname = \"c\"\n[[subscription]]\nname = \"s\"\ncameras = \"c\"\n\
                [[change]]\nat_s = 2\ncamera = \"c\"\nfault = \"cut\"\n\
                [[expect]]\nsubscription = \"s\"\nframes_min = 100\nframes_max = 1\nage_ms_p50_max = 0.1\n\
                age_ms_p95_max = 0.1\ngap_ms_max = 500\n";
    let report = text.parse::<Scenario>().expect("sound").run(1).expect("rules hold");
    assert_eq!(report.missed().len(), 5, "{:?}", report.missed());
}
