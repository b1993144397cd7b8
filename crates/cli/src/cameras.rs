//! `mez cameras`: what an edge broker knows of its cameras.

use std::fmt::Write;

use clap::Args;
use mez_core::name::CameraPattern;
use mez_node::client::CameraSummary;
use mez_node::clock::wall_now;
use mez_node::runtime::block_on;

use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::text::{bytes, milliseconds};

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
            print!("{}", table(&cameras));
        }
        Ok(())
    })?
}

fn table(cameras: &[CameraSummary]) -> String {
    let now = wall_now();
    let header = [
        "CAMERA",
        "STATE",
        "PUBLISHES",
        "SIZE",
        "NEWEST HERE",
        "RECEIVED",
        "LATE",
        "LINK",
        "LOG",
        "RTT",
        "SUBSCRIBERS",
    ];
    let mut rows = vec![header.map(String::from)];
    for camera in cameras {
        rows.push([
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
            bytes(camera.edge_log_bytes),
            camera.clock.map_or("-".into(), |clock| milliseconds(clock.round_trip_time)),
            camera.subscriptions.to_string(),
        ]);
    }
    let widths: Vec<usize> =
        (0..header.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    out
}
