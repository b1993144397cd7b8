//! Replays AWStream's experiment in virtual time, from its published measurements. Prints a
//! line of JSON for each run of one contender. `mez bench awstream` computes shares and ratios.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use mez_testbed::awstream::{Contender, Measurements, Score, Second, replay, score};

use crate::Failure;

/// Replay AWStream's experiment
#[derive(Debug, Args)]
pub struct AwstreamArgs {
    /// Folder with mot.profile.csv, mot.source.csv and mot.stat.csv, as AWStream's authors published them
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Round-trip times of the link
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "20,50,70,140")]
    rtt_ms: Vec<u64>,
    /// Runs, each with the recording begun at another frame, evenly spread
    #[arg(long, value_name = "N", default_value_t = 10)]
    begins: usize,
    /// Print what each second of the first run had as well, for a plot
    #[arg(long)]
    seconds: bool,
}

pub(crate) fn run(args: AwstreamArgs) -> Result<(), Failure> {
    let measurements = read(&args.data)?;
    let begins = args.begins.clamp(1, measurements.frames);
    for index in 0..begins {
        let begin = index * measurements.frames / begins;
        for (place, rtt_ms) in args.rtt_ms.iter().enumerate() {
            for contender in Contender::all(measurements.profile.len()) {
                let replay = replay(&measurements, contender, Duration::from_millis(*rtt_ms), begin);
                let score = score(&measurements, &replay);
                let name = contender.name(&measurements);
                print(&name, *rtt_ms, begin, &score);
                if args.seconds && index == 0 && place == 0 {
                    print_seconds(&name, &score);
                }
            }
        }
    }
    Ok(())
}

fn read(folder: &Path) -> Result<Measurements, Failure> {
    let text = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path)
            .map_err(|error| Failure::from(format!("{} cannot be read: {error}", path.display())))
    };
    Measurements::parse(&text("mot.profile.csv")?, &text("mot.source.csv")?, &text("mot.stat.csv")?)
        .map_err(|error| Failure::from(format!("{}: {error}", folder.display())))
}

fn print(contender: &str, rtt_ms: u64, begin: usize, score: &Score) {
    let numbers = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|value| number(*value)).collect();
        format!("[{}]", values.join(","))
    };
    println!(
        r#"{{"kind":"run","contender":"{contender}","rtt_ms":{rtt_ms},"begin":{begin},"f1_deadline_aware":{},"f1_deadline_aware_all":{},"f1_delivered":{},"timely_share":{},"latency_ms":{},"frame_latency_ms":{},"recover_s":{}}}"#,
        number(score.f1_deadline_aware),
        number(score.f1_deadline_aware_all),
        number(score.f1_delivered),
        number(score.timely_share),
        numbers(&score.latency_ms),
        numbers(&score.frame_latency_ms),
        score.recover_s.map_or("null".into(), number),
    );
}

fn print_seconds(contender: &str, score: &Score) {
    let cells = |cell: &dyn Fn(&Second) -> String| {
        let cells: Vec<String> = score.seconds.iter().map(cell).collect();
        format!("[{}]", cells.join(","))
    };
    println!(
        r#"{{"kind":"seconds","contender":"{contender}","megabits":{},"latency_ms":{},"f1":{}}}"#,
        cells(&|second| number(second.megabits)),
        cells(&|second| second.latency_ms.map_or("null".into(), number)),
        cells(&|second| number(second.f1)),
    );
}

/// JSON has no value for a number that is not finite.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.5}") } else { "null".into() }
}
