//! `mez cameras`: what an edge broker knows of its cameras.

use clap::Args;
use mez_core::contract::ContractState;
use mez_core::name::CameraPattern;
use mez_node::client::{CameraSummary, ChannelStanding, ContractStanding, LogOnDisk};
use mez_node::clock::wall_now;
use mez_node::runtime::block_on;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::text::{bytes, milliseconds, table};

/// List the cameras of an edge: connected or not, rate, size, what became of their frames
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez cameras                      at the edge on this host
  mez cameras 'dock/*'             only these
  mez cameras --edge edge.local    at another edge, with the keys of an application

A camera publishes whether or not somebody subscribes; frames cross the link only if somebody does.")]
pub(crate) struct CamerasArgs {
    /// Which cameras [default: all]
    #[arg(value_name = "PATTERN")]
    pattern: Option<CameraPattern>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: CamerasArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = args.connect.connect("mez cameras").await?;
        let cameras = edge.cameras(args.pattern.as_ref()).await?;
        if cameras.is_empty() {
            println!(
                "no camera{}; one joins with: mez camera NAME --edge HOST",
                match &args.pattern {
                    Some(pattern) => format!(" matches {pattern}"),
                    None => String::new(),
                }
            );
        } else {
            print!("{}", rows(&cameras));
            for camera in &cameras {
                for (disk, whose) in [(&camera.camera_disk, "camera's"), (&camera.edge_disk, "edge's")] {
                    if let Some(why) = disk.as_ref().and_then(|disk| disk.degraded.as_ref()) {
                        println!("{}: the log on the {whose} disk is degraded: {why}", camera.camera);
                    }
                }
                for known in camera.contracts.iter().filter(|known| known.state != ContractState::Ok) {
                    let ContractStanding { subscription, application, state, reason } = known;
                    println!(
                        "{}: subscription {subscription} ({application}) {}: {reason}",
                        camera.camera,
                        state.name()
                    );
                }
            }
        }
        Ok(())
    })?
}

fn rows(cameras: &[CameraSummary]) -> String {
    let now = wall_now();
    let head = [
        "CAMERA",
        "STATE",
        "PUBLISHES",
        "SIZE",
        "NEWEST HERE",
        "RECEIVED",
        "LATE",
        "LINK",
        "CARRIES",
        "CHANNEL",
        "LOG",
        "CAMERA'S DISK",
        "EDGE'S DISK",
        "RTT",
        "SUBSCRIBERS",
        "CONTRACTS",
    ];
    let rows: Vec<_> = cameras
        .iter()
        .map(|camera| {
            [
                camera.camera.to_string(),
                if camera.connected { "connected".into() } else { "gone".into() },
                format!("{:.1} fps", camera.frames_per_second),
                if camera.width > 0 { format!("{}x{}", camera.width, camera.height) } else { "-".into() },
                camera
                    .newest
                    .map_or("-".into(), |(_, at)| format!("{} ago", milliseconds(now.saturating_since(at)))),
                camera.frames_received.to_string(),
                camera.frames_late.to_string(),
                bytes(camera.link_bytes),
                camera.link_bits_per_second.map_or("-".into(), |rate| format!("{:.1} Mbit/s", rate / 1e6)),
                camera.channel.as_ref().map_or("-".into(), channel),
                bytes(camera.edge_log_bytes),
                camera.camera_disk.as_ref().map_or("-".into(), disk),
                camera.edge_disk.as_ref().map_or("-".into(), disk),
                camera.clock.map_or("-".into(), |clock| milliseconds(clock.round_trip_time)),
                camera.subscriptions.to_string(),
                contracts(&camera.contracts),
            ]
        })
        .collect();
    table(head, &rows)
}

/// How many contracts there are in each state, the best first.
fn contracts(contracts: &[ContractStanding]) -> String {
    let states = [
        ContractState::Ok,
        ContractState::Unverified,
        ContractState::AccuracyMiss,
        ContractState::LatencyMiss,
        ContractState::Infeasible,
    ];
    let count = |state| contracts.iter().filter(|known| known.state == state).count();
    let parts: Vec<String> = states
        .into_iter()
        .map(|state| (state, count(state)))
        .filter(|(_, count)| *count > 0)
        .map(|(state, count)| format!("{count} {}", state.name()))
        .collect();
    if parts.is_empty() { "-".into() } else { parts.join(", ") }
}

/// A channel, what it carries, and the camera's share of that.
fn channel(channel: &ChannelStanding) -> String {
    let mut text = channel.name.clone();
    if let Some(rate) = channel.bits_per_second {
        text += &format!(" {:.1} Mbit/s", rate / 1e6);
    }
    match channel.frame_bytes {
        None => text,
        Some(0) => text + ", no room",
        Some(most) => text + &format!(", {} a frame", bytes(most)),
    }
}

fn disk(disk: &LogOnDisk) -> String {
    if disk.degraded.is_some() { "degraded".into() } else { bytes(disk.bytes) }
}
