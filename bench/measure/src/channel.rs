//! Compares the model of a Wi-Fi channel with the measurements of the Mez authors. Prints
//! a line of JSON for each cell of their tables. `mez bench channel` computes the errors.

use clap::Args;
use mez_testbed::channel::wifi::Constants;
use mez_testbed::channel::wifi::tables::{CELLS, Cell, Distance, Room, error, modelled_ms};

use crate::Failure;

/// Candidates for the part of the rate that remains after a failure. Constants are chosen on one table only.
const FALLS: [f64; 4] = [0.7, 0.75, 0.8, 0.85];
/// Candidates for the factor of the rate after a success.
const RISES: [f64; 4] = [1.1, 1.15, 1.2, 1.3];
/// Candidates for the share of lost MPDUs.
const LOSSES: [f64; 3] = [0.005, 0.01, 0.02];
/// Candidates for the highest rate at 12 m, in Mbit/s. Table 1 has no data for this distance; the single camera there determines its rate.
const FAR_MBPS: [f64; 8] = [200.0, 215.0, 230.0, 245.0, 260.0, 275.0, 290.0, 305.0];
/// Frames of each cell while constants are chosen.
const CHOOSING_FRAMES: usize = 60;
/// Runs while constants are chosen. The 95th percentile of one run depends on chance.
const CHOOSING_RUNS: u64 = 5;

/// Compare the model of a channel with measurements
#[derive(Debug, Args)]
pub struct ChannelArgs {
    /// Runs of each cell
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u64,
    /// The seed of the first
    #[arg(long, value_name = "N", default_value_t = 1)]
    first_seed: u64,
    /// Frames of each camera
    #[arg(long, value_name = "N", default_value_t = 100)]
    frames: usize,
}

pub(crate) fn run(args: ChannelArgs) -> Result<(), Failure> {
    let chosen = chosen_on_table_1(args.first_seed);
    let Room { near: Constants { rate_fall, rate_rise, mpdu_loss, .. }, far_mbps } = chosen;
    println!(
        r#"{{"kind":"chosen","rate_fall":{rate_fall},"rate_rise":{rate_rise},"mpdu_loss":{mpdu_loss},"far_mbps":{far_mbps}}}"#
    );
    for seed in args.first_seed..args.first_seed + args.seeds {
        for (name, room) in [("calibrated", Room::CALIBRATED), ("chosen_on_table_1", chosen)] {
            for cell in &CELLS {
                print(name, &room, cell, args.frames, seed);
            }
        }
    }
    Ok(())
}

/// The best constants of the grid for the cells of table 1, with the best rate for one camera at 12 m.
fn chosen_on_table_1(seed: u64) -> Room {
    let near = FALLS
        .iter()
        .flat_map(|fall| RISES.iter().flat_map(move |rise| LOSSES.map(|loss| (*fall, *rise, loss))))
        .map(|(rate_fall, rate_rise, mpdu_loss)| Room {
            near: Constants { rate_fall, rate_rise, mpdu_loss, ..Constants::CALIBRATED },
            ..Room::CALIBRATED
        });
    let near = best(near, seed, |cell| cell.table == 1);
    let far = FAR_MBPS.iter().map(|far_mbps| Room { far_mbps: *far_mbps, ..near });
    best(far, seed, |cell| cell.distance == Distance::Far && cell.cameras == 1)
}

fn best(rooms: impl Iterator<Item = Room>, seed: u64, which: impl Fn(&Cell) -> bool) -> Room {
    let judged = rooms.map(|room| {
        let errors = (seed..seed + CHOOSING_RUNS).map(|seed| error(&room, CHOOSING_FRAMES, seed, &which));
        (errors.sum::<f64>(), room)
    });
    judged.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(Room::CALIBRATED, |(_, room)| room)
}

fn print(name: &str, room: &Room, cell: &Cell, frames: usize, seed: u64) {
    let Cell { table, kilobytes, cameras, frames_per_second, distance, latency_ms_p95 } = cell;
    let metres = distance.metres();
    let modelled = modelled_ms(room, cell, frames, seed);
    println!(
        r#"{{"kind":"cell","constants":"{name}","seed":{seed},"table":{table},"frame_kilobytes":{kilobytes},"cameras":{cameras},"frames_per_second":{frames_per_second},"metres":{metres},"measured_ms_p95":{latency_ms_p95},"modelled_ms_p95":{modelled:.2}}}"#
    );
}
