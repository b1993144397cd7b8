//! Runs Mez's own policy with its mechanisms switched off one at a time, in virtual time.
//! Prints a line of JSON for each run. `mez bench ablation` computes the differences.

use std::time::Duration;

use clap::Args;
use mez_testbed::channel::links::Kind;
use mez_testbed::policies::ablation::{ABLATIONS, Ablation, Traffic};
use mez_testbed::random::Random;

use crate::Failure;

/// How long links continue after the last capture, in milliseconds, so that the last frames can arrive.
const TAIL_MS: usize = 5_000;

/// Switch off the policy's mechanisms one by one
#[derive(Debug, Args)]
pub struct AblationArgs {
    /// Kinds of link, by name; left out, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    links: Vec<String>,
    /// What is sent: stills, small_stills, video or five_cameras
    #[arg(long, value_name = "NAME", default_value = "stills")]
    traffic: String,
    /// Links of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    seeds: u64,
    /// The seed of the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// How long each link is
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    seconds: u64,
    /// One-way delay of the network
    #[arg(long, value_name = "MS", default_value_t = 3)]
    delay_ms: u64,
    /// Only these mechanisms; left out, all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

pub fn run(args: AblationArgs) -> Result<(), Failure> {
    let names = |all: Vec<&str>| all.join(", ");
    let traffic = Traffic::named(&args.traffic).ok_or_else(|| {
        let known = names(Traffic::ALL.map(|(name, _)| name).to_vec());
        Failure::from(format!("there is no traffic {}; there are {known}", args.traffic))
    })?;
    let all: Vec<&str> = Kind::ALL.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = args.links.iter().find(|link| !all.contains(&link.as_str())) {
        return Err(format!("there is no link {unknown}; there are {}", names(all)).into());
    }
    if let Some(unknown) = args.only.iter().find(|name| Ablation::named(name).is_none()) {
        let known = names(ABLATIONS.iter().map(|ablation| ablation.name).collect());
        return Err(format!("there is no mechanism {unknown}; there are {known}").into());
    }
    let duration = Duration::from_secs(args.seconds);
    let ms = args.seconds as usize * 1_000 + TAIL_MS;
    for seed in args.first_seed..args.first_seed + args.seeds {
        for (place, (name, kind)) in (0..).zip(Kind::ALL) {
            if !args.links.is_empty() && !args.links.iter().any(|link| link == name) {
                continue;
            }
            // The same links as those of `mez measure policies` with this seed.
            let link = kind.link(ms, &mut Random::seeded(seed * 1_000 + place)).capacity;
            let setting = traffic.setting(&link, Duration::from_millis(args.delay_ms), duration, seed);
            for ablation in &ABLATIONS {
                if !args.only.is_empty() && !args.only.iter().any(|only| only == ablation.name) {
                    continue;
                }
                let (utility, on_time_share) = ablation.run(&setting);
                println!(
                    r#"{{"link":"{name}","traffic":"{}","delay_ms":{},"seed":{seed},"off":"{}","utility":{utility:.6},"on_time_share":{on_time_share:.6}}}"#,
                    args.traffic, args.delay_ms, ablation.name,
                );
            }
        }
    }
    Ok(())
}
