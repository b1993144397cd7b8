//! Emulates a slow link for UDP, in user space.

use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::Arc;

use clap::Args;
use mez_emulator::pace::wake_on_time;
use mez_emulator::relay::{Conductor, Relay, RelaySpec};
use mez_testbed::channel::timetable::Timetable;

use crate::Failure;

/// Pass datagrams on at a rate
#[derive(Debug, Args)]
pub struct LinkArgs {
    /// Where datagrams go: the edge's link port
    #[arg(long, value_name = "ADDRESS:PORT")]
    to: SocketAddr,
    /// The rate of each direction
    #[arg(long, value_name = "N")]
    bits_per_second: u64,
    /// What may wait in each direction; beyond that datagrams are dropped
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    queue_bytes_max: u64,
}

/// Prints `ready ADDRESS`. Then answers every line of the standard input with the traffic so far, and ends when the input ends.
pub(crate) fn run(args: LinkArgs) -> Result<(), Failure> {
    // Threads that are started from here on wake on time.
    wake_on_time();
    let spec = RelaySpec {
        timetable: Timetable::constant(args.bits_per_second),
        delay_ns: [0, 0],
        queue_bytes_max: args.queue_bytes_max,
        lost_once_in: 0,
    };
    let relay = Relay::start(&spec, args.to, &Arc::new(Conductor::default()))?;
    println!("ready {}", relay.address());
    for line in io::stdin().lock().lines() {
        line?;
        println!("{}", relay.json());
    }
    Ok(())
}
