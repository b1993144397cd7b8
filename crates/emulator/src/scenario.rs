//! Runs a UDP relay for each camera of a scenario file, at the rates of its links.

use std::fs;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use mez_core::name::CameraPattern;
use mez_testbed::scenario_file::{SHIPPED, Scenario, ScenarioError};
use serde_json::{Value, json};
use thiserror::Error;

use crate::pace::wake_on_time;
use crate::relay::{Conductor, Relay, RelaySpec};

/// Why a scenario's links cannot be emulated.
#[derive(Debug, Error)]
pub enum EmulateError {
    /// There is no such file, and no such shipped scenario.
    #[error("{word} cannot be read ({source}); give a scenario file, or one of {shipped}")]
    Unreadable {
        /// What was given.
        word: String,
        /// The names of the shipped scenarios whose links can be emulated.
        shipped: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file cannot be read as a scenario, or requires something that relays cannot do.
    #[error("{word}: {source}")]
    Scenario {
        /// What was given.
        word: String,
        /// What is wrong with it.
        source: ScenarioError,
    },
    /// A socket could not be made, or the standard input could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Prints a line of JSON with the content of the scenario and the address of each camera's link. Then reads
/// commands from standard input: `begin` starts the scenario's clock, which stands at 0 before; `open` removes
/// the rate limit of all links. Each line is answered with the counts so far. Returns when the input ends.
///
/// `word` is the scenario's file, or the name of a shipped one. `to` is the edge's
/// link port. `seed` draws the links; without it, the file's own seed is used.
///
/// # Errors
/// There is no such scenario, relays cannot do what it requires, or a socket fails.
pub fn emulate(word: &str, to: SocketAddr, seed: Option<u64>) -> Result<(), EmulateError> {
    let scenario = read(word)?;
    scenario.check_emulated().map_err(|source| EmulateError::Scenario { word: word.into(), source })?;
    // Threads that start from here on wake on time.
    wake_on_time();
    let seed = seed.unwrap_or(scenario.seed());
    let conductor = Arc::new(Conductor::default());
    let mut relays: Vec<Relay> = Vec::new();
    for (index, (_, camera)) in scenario.cameras().enumerate() {
        let spec = RelaySpec {
            timetable: scenario.timetable(index, seed),
            delay_ns: [camera.link.delay_up, camera.link.delay_down].map(|delay| delay.as_nanos() as u64),
            queue_bytes_max: camera.link.queue_bytes_max,
            lost_once_in: camera.link.lost_once_in,
        };
        let shared = scenario.shared_queue();
        let first = shared.first().filter(|first| **first < index && shared.contains(&index));
        relays.push(match first {
            Some(first) => relays[*first].beside(to)?,
            None => Relay::start(&spec, to, &conductor)?,
        });
    }
    println!("{}", describe(&scenario, seed, &relays));
    for line in io::stdin().lock().lines() {
        match line?.trim() {
            "begin" => conductor.begin(),
            "open" => conductor.open(),
            _ => {}
        }
        println!("{}", Value::from_iter(relays.iter().map(Relay::json)));
    }
    Ok(())
}

/// A scenario by its file or by its name.
fn read(word: &str) -> Result<Scenario, EmulateError> {
    let text = match SHIPPED.iter().find(|(name, _)| *name == word) {
        Some((_, text)) => (*text).to_owned(),
        None => fs::read_to_string(Path::new(word)).map_err(|source| {
            let runs =
                |text: &str| text.parse().is_ok_and(|scenario: Scenario| scenario.check_emulated().is_ok());
            let names: Vec<&str> =
                SHIPPED.iter().filter(|(_, text)| runs(text)).map(|(name, _)| *name).collect();
            EmulateError::Unreadable { word: word.into(), shipped: names.join(", "), source }
        })?,
    };
    text.parse().map_err(|source| EmulateError::Scenario { word: word.into(), source })
}

fn describe(scenario: &Scenario, seed: u64, relays: &[Relay]) -> Value {
    let first = scenario.wanted().next().and_then(|wanted| wanted.cameras.parse::<CameraPattern>().ok());
    let wants = |name: &str| match (&first, name.parse()) {
        (Some(pattern), Ok(name)) => pattern.matches(&name),
        _ => true,
    };
    let cameras = scenario.cameras().zip(relays).enumerate().map(|(index, ((name, spec), relay))| {
        let steps = scenario.timetable(index, seed);
        let steps = steps.steps().map(|(at, rate)| json!([at.as_secs_f64(), rate]));
        json!({
            "name": name,
            "wanted": wants(name),
            "address": relay.address().to_string(),
            "frames_per_second": (1e5 / spec.interval.as_secs_f64()).round() / 1e5,
            "bits_per_second": steps.collect::<Vec<_>>(),
        })
    });
    let wanted = scenario.wanted().map(|wanted| {
        json!({
            "name": wanted.name,
            "cameras": wanted.cameras,
            "latency_ms": wanted.contract.latency_bound.map(|bound| bound.as_secs_f64() * 1e3),
            "accuracy": wanted.contract.accuracy_floor,
        })
    });
    json!({
        "name": scenario.name(),
        "about": scenario.about(),
        "seconds": scenario.length().as_secs_f64(),
        "seed": seed,
        "edge_channels": scenario.edge_channels().collect::<Vec<_>>(),
        "shared": scenario.shared_queue(),
        "cameras": cameras.collect::<Vec<_>>(),
        "subscriptions": wanted.collect::<Vec<_>>(),
    })
}
