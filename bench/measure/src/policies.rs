//! Runs policies and an oracle on the same links, in virtual time. Prints a line of JSON
//! for each run of one policy on one link. `mez bench policies` computes shares and ratios.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant as Stopwatch};

use clap::Args;
use mez_core::controller::share::Goal;
use mez_testbed::channel::links::{Kind, LinkModel};
use mez_testbed::channel::packet_trace;
use mez_testbed::policies::entrants::Entrant;
use mez_testbed::policies::oracle::{self, Oracle};
use mez_testbed::policies::reference::{ACCURACY_BYTES, ACCURACY_BYTES_OF_FIVE, SIZE_NOISE, ladder};
use mez_testbed::policies::run::run as simulate;
use mez_testbed::policies::score::{Reaction, Score, reactions, score};
use mez_testbed::policies::setting::{CameraSetting, Queueing, Setting, Sizes, SlotResult, Slots};
use mez_testbed::random::Random;

use crate::Failure;

/// Frame interval of the reference set: 15 frames per second.
const INTERVAL: Duration = Duration::from_nanos(66_666_667);
/// Latency bound of the reference set.
const LATENCY_BOUND: Duration = Duration::from_millis(100);
/// Maximum bytes of a frame in flight.
const WINDOW_BYTES: f64 = 65_536.0;
/// How long links continue after the last capture, in milliseconds, so that the last frames can arrive.
const TAIL_MS: usize = 5_000;
/// With several cameras, the reference set has this share of one link's capacity per camera: three links for five cameras.
const CAPACITY_PER_CAMERA: f64 = 0.6;

/// Compare policies in virtual time
#[derive(Debug, Args)]
pub struct PoliciesArgs {
    /// Kinds of link, by name; left out, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    links: Vec<String>,
    /// Recorded links as well: files with the millisecond of one 1500-byte packet in each line
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Links of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u64,
    /// The seed of the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// How long each link is
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    seconds: u64,
    /// One-way delays of the network
    #[arg(long, value_name = "MS", value_delimiter = ',', default_value = "3")]
    delay_ms: Vec<u64>,
    /// Cameras on each link
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1")]
    cameras: Vec<usize>,
    /// Only these policies; left out, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Print every frame of the first seed as well, for a plot
    #[arg(long)]
    frames: bool,
}

/// One link with its cameras.
struct Stage {
    name: String,
    seed: u64,
    delay_ms: u64,
    link: LinkModel,
    setting: Setting,
    slots: Slots,
}

pub(crate) fn run(args: PoliciesArgs) -> Result<(), Failure> {
    let kinds: Vec<&(&str, Kind)> = Kind::ALL
        .iter()
        .filter(|(name, _)| args.links.is_empty() || args.links.iter().any(|link| link == name))
        .collect();
    if let Some(unknown) = args.links.iter().find(|link| kinds.iter().all(|(name, _)| name != link)) {
        let known: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
        return Err(Failure::from(format!("there is no link {unknown}; there are {}", known.join(", "))));
    }
    let ms = args.seconds as usize * 1_000 + TAIL_MS;
    let mut recorded = Vec::new();
    for path in &args.trace {
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::from(format!("{} cannot be read: {error}", path.display())))?;
        let capacity = packet_trace::read(&text, ms)
            .map_err(|error| Failure::from(format!("{}: {error}", path.display())))?;
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        recorded.push((name, LinkModel { capacity, marks: Vec::new() }));
    }
    for seed in args.first_seed..args.first_seed + args.seeds {
        for &delay_ms in &args.delay_ms {
            for &cameras in &args.cameras {
                let drawn = kinds.iter().map(|(name, kind)| {
                    // Each kind has its own random sequence, independent of the other kinds.
                    let place =
                        Kind::ALL.iter().position(|(other, _)| other == name).unwrap_or_default() as u64;
                    let link = kind.link(ms, &mut Random::seeded(seed * 1_000 + place));
                    ((*name).to_owned(), link)
                });
                let links: Vec<(String, LinkModel)> = drawn.chain(recorded.iter().cloned()).collect();
                for (name, link) in links {
                    let stage = Stage::new(name, link, seed, delay_ms, cameras, args.seconds);
                    stage.compare(&args, seed == args.first_seed);
                }
            }
        }
    }
    Ok(())
}

impl Stage {
    fn new(name: String, link: LinkModel, seed: u64, delay_ms: u64, cameras: usize, seconds: u64) -> Self {
        let accuracy = |index: usize| match cameras {
            1 => ACCURACY_BYTES,
            _ => ACCURACY_BYTES_OF_FIVE[index % ACCURACY_BYTES_OF_FIVE.len()],
        };
        let specs = (0..cameras).map(|index| CameraSetting {
            ladder: ladder(accuracy(index)),
            phase: INTERVAL * index as u32 / cameras as u32,
            latency_bound: LATENCY_BOUND,
            accuracy_floor: None,
        });
        let factor = if cameras == 1 { 1.0 } else { CAPACITY_PER_CAMERA * cameras as f64 };
        let setting = Setting {
            capacity: link.capacity.times(factor),
            delay: Duration::from_millis(delay_ms),
            interval: INTERVAL,
            cameras: specs.collect(),
            window_bytes: WINDOW_BYTES,
            duration: Duration::from_secs(seconds),
            sizes: Sizes::Drawn { noise: SIZE_NOISE, seed },
            queueing: Queueing::NewestWins,
            share: None,
        };
        let slots = Slots::new(&setting);
        Self { name, seed, delay_ms, link, setting, slots }
    }

    fn compare(mut self, args: &PoliciesArgs, first: bool) {
        let cameras = self.setting.cameras.len();
        let plan = oracle::plan(&self.setting, &self.slots);
        let oracles: Vec<Score> = (0..cameras).map(|camera| plan.score(&self.setting, camera)).collect();
        let print_frames = args.frames && first && cameras == 1;
        if print_frames {
            self.print_frames("oracle", &planned(&plan));
        }
        let mut entrants = Entrant::all();
        entrants.retain(|entrant| args.only.is_empty() || args.only.contains(&entrant.name()));
        for entrant in entrants {
            let shares: &[Option<Goal>] = match (cameras, entrant) {
                (2.., Entrant::Quantile) => &[Some(Goal::Sum), Some(Goal::MaxMin), None],
                _ => &[None],
            };
            for share in shares {
                self.setting.share = *share;
                let name = match share {
                    Some(Goal::MaxMin) => format!("{}_max_min", entrant.name()),
                    Some(Goal::Bandwidth) => format!("{}_bandwidth", entrant.name()),
                    Some(Goal::Sum) => entrant.name(),
                    None if cameras > 1 => format!("{}_alone", entrant.name()),
                    None => entrant.name(),
                };
                let mut policies: Vec<_> = (0..cameras).map(|_| entrant.policy(&self.setting)).collect();
                let watch = Stopwatch::now();
                let results = simulate(&self.setting, &self.slots, &mut policies);
                let took = watch.elapsed();
                for (camera, (results, oracle)) in results.iter().zip(&oracles).enumerate() {
                    let score = score(&self.setting, camera, results);
                    self.print(&name, camera, &score, oracle, results, took);
                }
                if print_frames {
                    self.print_frames(&name, &results[0]);
                }
            }
        }
    }

    fn print(
        &self,
        policy: &str,
        camera: usize,
        score: &Score,
        oracle: &Score,
        results: &[SlotResult],
        took: Duration,
    ) {
        let Score { utility, on_time_share, sent_share, latency_ms, predicted, bins } = score;
        let [p50, p95, p99, max] = latency_ms.map(number);
        let (frames, expected, actual) = predicted;
        let mut line = format!(
            r#"{{"kind":"run","link":"{}","seed":{},"delay_ms":{},"cameras":{},"camera":{camera},"policy":"{policy}","#,
            self.name,
            self.seed,
            self.delay_ms,
            self.setting.cameras.len(),
        );
        let _ = write!(
            line,
            r#""utility":{utility:.6},"oracle_utility":{:.6},"on_time_share":{on_time_share:.6},"oracle_on_time_share":{:.6},"sent_share":{sent_share:.6},"latency_ms_p50":{p50},"latency_ms_p95":{p95},"latency_ms_p99":{p99},"latency_ms_max":{max},"predicted_frames":{frames},"expected_late":{expected:.3},"actual_late":{actual},"run_ms":{:.3}"#,
            oracle.utility,
            oracle.on_time_share,
            took.as_secs_f64() * 1e3,
        );
        let listed = |values: Vec<f64>| {
            let values: Vec<String> = values.iter().map(|value| format!("{value:.3}")).collect();
            format!("[{}]", values.join(","))
        };
        let bin = |part: fn(&(u64, f64, u64)) -> f64| listed(bins.iter().map(part).collect());
        let _ = write!(
            line,
            r#","bin_frames":{},"bin_probability":{},"bin_on_time":{}"#,
            bin(|bin| bin.0 as f64),
            bin(|bin| bin.1),
            bin(|bin| bin.2 as f64)
        );
        let (mut settle, mut drain, mut recover) = (Vec::new(), Vec::new(), Vec::new());
        if self.setting.cameras.len() == 1 {
            for reaction in reactions(&self.setting, &self.slots, &self.link.marks, results) {
                match reaction {
                    Reaction::Slower { settle_ms, drain_ms } => {
                        settle.push(settle_ms);
                        drain.push(drain_ms);
                    }
                    // The time is infinite if the policy has not recovered by the end of the run. JSON has no value for this.
                    Reaction::Recovered { recover_ms } => recover.push(recover_ms.min(1e6)),
                }
            }
        }
        let (settle, drain, recover) = (listed(settle), listed(drain), listed(recover));
        println!(r#"{line},"settle_ms":{settle},"drain_ms":{drain},"recover_ms":{recover}}}"#);
    }

    fn print_frames(&self, policy: &str, results: &[SlotResult]) {
        let cells = |cell: &dyn Fn(&SlotResult) -> String| {
            let cells: Vec<String> = results.iter().map(cell).collect();
            format!("[{}]", cells.join(","))
        };
        let latencies = cells(&|slot| slot.latency_ms.map_or("null".into(), number));
        let rungs = cells(&|slot| slot.rung.map_or("null".into(), |rung| rung.to_string()));
        println!(
            r#"{{"kind":"frames","link":"{}","seed":{},"delay_ms":{},"policy":"{policy}","interval_ms":{:.4},"latency_ms":{latencies},"rung":{rungs}}}"#,
            self.name,
            self.seed,
            self.delay_ms,
            INTERVAL.as_secs_f64() * 1e3
        );
    }
}

/// The results of a plan, in the form of a run's results.
fn planned(plan: &Oracle) -> Vec<SlotResult> {
    let slots = plan.rungs[0].iter().zip(&plan.latency_ms[0]);
    slots
        .map(|(rung, latency_ms)| SlotResult {
            rung: *rung,
            latency_ms: *latency_ms,
            ..SlotResult::default()
        })
        .collect()
}

/// JSON has no value for a number that is not finite.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { "null".into() }
}
