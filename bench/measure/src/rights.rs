//! Measures the time of one check of rights and of the deny list. Prints a line of JSON for each. `mez bench rights` reads them.

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use mez_core::name::CameraName;
use mez_core::revocation::{Certificate, ENTRIES_MAX, Entry, Revocations};
use mez_core::rights::{Bearer, Grant, Rights, Stance, Verb};
use mez_core::units::Timestamp;

use crate::Failure;

/// Measure how long one check takes
#[derive(Debug, Args)]
pub struct RightsArgs {
    /// Numbers of grants
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,1000")]
    grants: Vec<usize>,
    /// Rounds; each gives a figure
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// Checks of a round
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    checks: u32,
}

pub(crate) fn run(args: RightsArgs) -> Result<(), Failure> {
    let who = Bearer::App("counter".parse()?);
    let (own, foreign): (CameraName, CameraName) = ("dock/cam0".parse()?, "yard/cam0".parse()?);
    // The longest possible list. A certificate that is not in it is searched for in all of it.
    let mut list = Revocations::none("bench");
    let entry = Entry { since: Timestamp::MIN, until: Timestamp::MAX, because: String::new() };
    for number in 1..=ENTRIES_MAX / 2 {
        for what in [format!("{number:x}"), format!("app/other{number}")] {
            list = list.with(Timestamp::MIN, what.parse()?, entry.clone())?;
        }
    }
    let shown = Certificate {
        member: "app/counter".parse()?,
        serial: "ffffffffffffffff".parse()?,
        issued: Timestamp::MAX,
    };
    let tables = args.grants.iter().map(|count| Ok((*count, rights(*count)?)));
    let tables: Vec<(usize, Rights)> = tables.collect::<Result<_, Failure>>()?;
    for round in 0..args.rounds {
        for (count, rights) in &tables {
            for (outcome, camera) in [("allowed", &own), ("refused", &foreign)] {
                let ns = timed(args.checks, || {
                    let _ = black_box(rights.check(black_box(&who), Verb::Watch, camera));
                    black_box(list.denies(black_box(&shown)));
                });
                println!(
                    r#"{{"kind":"check","round":{round},"grants":{count},"revoked":{},"outcome":"{outcome}","ns":{ns:.1}}}"#,
                    list.len()
                );
            }
        }
    }
    Ok(())
}

/// Grants of one application, each for one camera.
fn rights(count: usize) -> Result<Rights, Failure> {
    let grant = |number: usize| -> Result<Grant, Failure> {
        Ok(Grant {
            grantee: "app/counter".parse()?,
            verb: Verb::Watch,
            cameras: format!("dock/cam{number}").parse()?,
        })
    };
    Ok(Rights::new(Stance::Deny, (0..count).map(grant).collect::<Result<Vec<_>, _>>()?))
}

/// The mean time of one check, in nanoseconds.
fn timed(checks: u32, mut check: impl FnMut()) -> f64 {
    let begun = Instant::now();
    for _ in 0..checks {
        check();
    }
    begun.elapsed().as_nanos() as f64 / f64::from(checks)
}
