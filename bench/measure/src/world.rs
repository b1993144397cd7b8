//! Runs scenario files in virtual time, and measures the speed. Prints a line
//! of JSON for each run of a scenario. `mez bench world` makes a table of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Stopwatch};

use clap::Args;
use mez_testbed::scenario_file::{Report, Scenario, Seen};
use mez_testbed::{ApplicationSpec, CameraSpec, World};

use crate::Failure;

/// Run scenario files in virtual time
#[derive(Debug, Args)]
pub struct WorldArgs {
    /// Scenario files (docs/scenarios.md)
    #[arg(long, value_name = "FILE")]
    scenario: Vec<PathBuf>,
    /// Run with this seed instead of the file's own
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs of each, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seeds: u64,
    /// Print a line for each expectation too, with what was seen
    #[arg(long)]
    seen: bool,
    /// Measure how fast virtual time passes, for so many seconds of it, with five cameras
    #[arg(long, value_name = "SECONDS")]
    speed: Option<u64>,
}

pub(crate) fn run(args: WorldArgs) -> Result<(), Failure> {
    if args.scenario.is_empty() && args.speed.is_none() {
        return Err(Failure::from("nothing to do; give --scenario FILE or --speed SECONDS"));
    }
    for path in &args.scenario {
        let scenario = read(path)?;
        let first = args.seed.unwrap_or(scenario.seed());
        for seed in first..first + args.seeds {
            run_one(path, &scenario, seed, args.seen)?;
        }
    }
    if let Some(seconds) = args.speed {
        measure_speed(seconds);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::from(format!("{} cannot be read: {error}", path.display())))?;
    text.parse().map_err(|error| Failure::from(format!("{}: {error}", path.display())))
}

/// Runs a scenario. Missed expectations are counted in the line and named on standard error; a broken rule is a failure.
fn run_one(path: &Path, scenario: &Scenario, seed: u64, shows_seen: bool) -> Result<(), Failure> {
    let watch = Stopwatch::now();
    let report = scenario
        .run(seed)
        .map_err(|failure| Failure::from(format!("{}, seed {seed}: {failure}", path.display())))?;
    print(scenario, seed, &report, watch.elapsed());
    if shows_seen {
        report.seen.iter().enumerate().for_each(|(place, seen)| print_seen(scenario, seed, place, seen));
    }
    for missed in report.missed() {
        eprintln!("{}, seed {seed}: {missed}", scenario.name());
    }
    Ok(())
}

fn print(scenario: &Scenario, seed: u64, report: &Report, took: Duration) {
    println!(
        r#"{{"kind":"scenario","scenario":"{}","seed":{seed},"virtual_s":{:.3},"frames":{},"expectations":{},"missed":{},"trace_entries":{},"trace_hash":"{:016x}","run_ms":{:.3}}}"#,
        scenario.name().escape_default(),
        scenario.length().as_secs_f64(),
        report.frames,
        report.seen.len(),
        report.missed().len(),
        report.trace_entries,
        report.trace_hash,
        took.as_secs_f64() * 1e3,
    );
}

fn print_seen(scenario: &Scenario, seed: u64, place: usize, seen: &Seen) {
    let ms = |time: Option<Duration>| {
        time.map_or_else(|| "null".into(), |time| format!("{:.3}", time.as_secs_f64() * 1e3))
    };
    println!(
        r#"{{"kind":"seen","scenario":"{}","seed":{seed},"expectation":{place},"frames":{},"on_time":{},"accuracy":{},"first_age_ms":{},"age_ms_p50":{},"age_ms_p95":{},"gap_ms":{},"infeasible":{},"unmeasured":{},"below_floor":{},"ok_below_floor":{},"missed":{}}}"#,
        scenario.name().escape_default(),
        seen.frames,
        seen.on_time,
        seen.accuracy.map_or_else(|| "null".into(), |accuracy| format!("{accuracy:.4}")),
        ms(seen.first_age),
        ms(seen.age_p50),
        ms(seen.age_p95),
        ms(Some(seen.gap)),
        seen.infeasible,
        seen.unmeasured,
        seen.below_floor,
        seen.ok_below_floor,
        seen.missed.len(),
    );
}

/// Runs five cameras of 15 frames per second, each on its own link, and an application that reads all of them, with all checks.
fn measure_speed(seconds: u64) {
    let mut world = World::seeded(1);
    for index in 0..5 {
        world.camera(&format!("dock/cam{index}"), CameraSpec::frames(15, 40_000));
    }
    world.application(ApplicationSpec::newest("dock/*"));
    let watch = Stopwatch::now();
    world.run(Duration::from_secs(seconds));
    let took = watch.elapsed();
    println!(
        r#"{{"kind":"speed","cameras":5,"virtual_s":{seconds},"run_ms":{:.3},"times_real_time":{:.1}}}"#,
        took.as_secs_f64() * 1e3,
        seconds as f64 / took.as_secs_f64().max(1e-9),
    );
}
