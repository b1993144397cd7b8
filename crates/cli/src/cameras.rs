//! `mez cameras`: lists the cameras of an edge, shows their starts, and resets one.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use mez_core::contract::ContractState;
use mez_core::name::{CameraName, CameraPattern};
use mez_core::units::Timestamp;
use mez_node::client::{
    CameraReset, CameraStart, CameraStarts, CameraSummary, ChannelStanding, ContractStanding, LogOnDisk,
};
use mez_node::clock::wall_now;
use mez_node::runtime::block_on;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::text::{bytes, milliseconds, table};

/// List the cameras of an edge: connected or not, frame rate, size, and what became of their frames
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mez cameras                      at the edge on this host
  mez cameras 'dock/*'             only cameras of the dock
  mez cameras --edge edge.local    at another edge, with the keys of an application
  mez cameras show dock/cam1       which certificate it started with, from where and when
  mez cameras reset dock/cam1      forget its earlier starts, so that it can connect again

A camera publishes all the time. Its frames cross the link only while somebody subscribes."
)]
pub(crate) struct CamerasArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// Which cameras, such as dock/cam1 or 'dock/*' [default: all]
    #[arg(value_name = "PATTERN")]
    pattern: Option<CameraPattern>,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which certificate a camera started with, from where and when, and when it was reset
    #[command(after_help = "\
Example:
  mez cameras show dock/cam1

Each frame, also in logs, has the epoch of its start. So frames of two hosts with the same identity can be told apart. The edge keeps the \
newest 64 starts, and at least one of each certificate and address.")]
    Show {
        /// The camera, such as dock/cam1
        #[arg(value_name = "CAMERA")]
        camera: CameraName,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Reset a camera that the edge refuses because somebody else used its keys: forget its starts, and put its log aside
    #[command(after_help = "\
Example:
  mez cameras reset dock/cam1      on the edge's host

First make sure that nobody else can use the camera's keys any more, because whoever has them can connect as the camera again. The edge then \
closes the camera's connection, forgets its starts, and puts its log on disk aside. The command prints the folder, which `mez store` reads. \
Subscriptions to the camera end, and clients subscribe again by themselves. The camera connects by itself; nothing is to be done there.

The command works only on the edge's own host, through its Unix socket. The edge records every reset: see `mez cameras show`.")]
    Reset {
        /// The camera, such as dock/cam1
        #[arg(value_name = "CAMERA")]
        camera: CameraName,
        /// Reset without asking
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(args: CamerasArgs) -> Result<(), Failure> {
    match args.command {
        Some(Command::Show { camera, connect }) => return show(&camera, &connect),
        Some(Command::Reset { camera, yes, connect }) => return reset(&camera, yes, &connect),
        None => {}
    }
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
                    let ContractStanding { subscription, application, state, reason, .. } = known;
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

fn show(camera: &CameraName, connect: &ConnectArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = connect.connect("mez cameras").await?;
        let CameraStarts { starts, resets } = edge.camera_starts(camera).await?;
        if starts.is_empty() && resets.is_empty() {
            return Err(Failure::text(format!(
                "this edge has never seen a camera {camera}; mez cameras lists those that it knows"
            )));
        }
        let rows: Vec<_> = starts.iter().map(start_cells).collect();
        print!(
            "{}",
            table(["EPOCH", "FIRST TAKEN IN (UTC)", "FROM", "IDENTITY", "CERTIFICATE", "SHA-256"], &rows)
        );
        for CameraReset { at, uid, epoch, identity, put_aside } in &resets {
            let known =
                epoch.map_or("nothing was known".into(), |epoch| format!("epoch {} was forgotten", epoch.0));
            let whose = if identity.is_empty() { String::new() } else { format!(", of {identity}") };
            let log = put_aside.as_ref().map(|folder| format!("; its log is in {}", folder.display()));
            println!("reset {} by user {uid}: {known}{whose}{}", seconds(*at), log.unwrap_or_default());
        }
        Ok(())
    })?
}

fn start_cells(start: &CameraStart) -> [String; 6] {
    let CameraStart { epoch, first, identity, serial, fingerprint, address } = start;
    // As much as is needed to tell certificates of one site apart.
    let short = |digits: &str| digits.get(..16).unwrap_or(digits).to_owned();
    [
        epoch.0.to_string(),
        seconds(*first),
        address.clone(),
        identity.clone(),
        short(serial),
        short(fingerprint),
    ]
}

/// A moment to the second.
fn seconds(at: Timestamp) -> String {
    at.to_string()[..19].to_owned()
}

fn reset(camera: &CameraName, yes: bool, connect: &ConnectArgs) -> Result<(), Failure> {
    if !yes {
        confirm(camera)?;
    }
    block_on(async {
        let edge = connect.connect("mez cameras").await?;
        let done = edge.reset_camera(camera).await?;
        match (done.epoch, done.connected) {
            (None, _) => println!(
                "nothing was known of camera {camera}; its next start is taken in whatever its epoch"
            ),
            (Some(epoch), connected) => {
                let was = if connected { "was connected" } else { "was not connected" };
                println!("camera {camera} is reset: it {was}, and epoch {} is forgotten", epoch.0);
            }
        }
        if let Some(folder) = done.put_aside {
            println!("its log was put aside: mez store ls --store {}", folder.display());
        }
        Ok(())
    })?
}

/// Asks on a terminal whether a camera is to be reset.
fn confirm(camera: &CameraName) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::text(format!(
            "cannot ask for confirmation without a terminal; to reset camera {camera}, add --yes"
        )));
    }
    eprint!(
        "Reset camera {camera}? Its connection is closed, what the edge knows of its starts is forgotten, and its log is put aside. [y/N] "
    );
    let mut answer = String::new();
    let read = io::stderr().flush().and_then(|()| io::stdin().lock().read_line(&mut answer));
    match read {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::text(format!("camera {camera} was not reset"))),
    }
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
        "ON TIME",
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
                on_time(camera),
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

/// The share of frames on time, and the share that the camera's policy had predicted.
fn on_time(camera: &CameraSummary) -> String {
    match (camera.observed_on_time_share, camera.predicted_on_time_share) {
        (Some(observed), Some(predicted)) => {
            format!("{:.1} % ({:.1} predicted)", observed * 1e2, predicted * 1e2)
        }
        _ => "-".into(),
    }
}

/// How many contracts there are in each state, the best first.
fn contracts(contracts: &[ContractStanding]) -> String {
    let count = |state| contracts.iter().filter(|known| known.state == state).count();
    let parts: Vec<String> = ContractState::ALL
        .into_iter()
        .rev()
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
