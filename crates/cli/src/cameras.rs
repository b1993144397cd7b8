//! `mez cameras`: lists the cameras of an edge, shows their starts, and resets or forgets one.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::{Args, Subcommand};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::units::Timestamp;
use mez_node::client::{CameraReset, CameraStart, CameraStarts, CameraSummary, EdgeClient, ForgottenCamera};
use mez_node::clock::{monotonic_now, wall_now};
use mez_node::runtime::{block_on, pause, until_stopped};

use crate::camera_row::{self, COLUMNS, Row, to_json};
use crate::columns::{self, Table};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::live::{Screen, wrap};
use crate::text::table;

/// How often `--watch` asks the edge.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// List the cameras of an edge: connected or absent, source, frame rate, bytes on the link, and what happened to their frames
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mez cameras                      at the edge on this host
  mez cameras 'dock/*'             only cameras in dock/
  mez cameras --watch              update every second
  mez cameras --columns camera,rtt,log
  mez cameras --json               a line of JSON for each camera
  mez cameras --edge edge.local    at another edge, with the keys of an application
  mez cameras show dock/cam1       its starts: certificate, address and time
  mez cameras reset dock/cam1      forget its starts, so that a refused camera can connect again
  mez cameras forget dock/old      forget a camera that was removed

SOURCE is the state of the camera's source (a publisher, a file, a device or a network camera): live (it gives frames), stalled (no frame for several of \
its usual intervals), lost (it failed or cannot be read) or ended (it ended normally). `-`: the camera has published no frame yet, or is absent.

A camera always publishes. Its frames cross the link only while somebody subscribes."
)]
pub(crate) struct CamerasArgs {
    #[command(subcommand)]
    command: Option<Command>,
    /// The cameras: a name or a pattern, such as dock/cam1 or 'dock/*' [default: all]
    #[arg(value_name = "PATTERN")]
    pattern: Option<CameraPattern>,
    /// Update the list every second, until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print one line of JSON for each camera, with the field names of mez.CameraInfo in Python
    #[arg(long, conflicts_with = "columns")]
    json: bool,
    /// Columns to show, with commas between them [default: the most important ones that fit into the terminal; all if the output is not a terminal]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = columns::parser(COLUMNS))]
    columns: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the starts of a camera (certificate, address and time), and its resets
    #[command(after_help = "\
Example:
  mez cameras show dock/cam1

Every frame, live or in a log, has the epoch of its camera's start. So you can distinguish frames of two hosts that used the same identity. The edge keeps \
the newest 64 starts, and at least one for each certificate and address.")]
    Show {
        /// The camera, such as dock/cam1
        #[arg(value_name = "CAMERA")]
        camera: CameraName,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Reset a camera that the edge refuses because somebody else used its keys: forget its starts, and move its log aside
    #[command(after_help = "\
Example:
  mez cameras reset dock/cam1      on the edge's host

First make sure that nobody else can use the camera's keys any more. Otherwise they can connect as the camera again. The edge closes the camera's \
connection, forgets its starts, and moves its log on disk to another folder. The command prints this folder; `mez store` can read it. \
Subscriptions to the camera end, and clients subscribe again automatically. The camera connects again automatically.

The command works only on the edge's host, through its Unix socket. The edge records every reset: see `mez cameras show`.")]
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
    /// Forget an absent camera: it is no longer listed, and contracts no longer report it as absent
    #[command(after_help = "\
Example:
  mez cameras forget dock/old      on the edge's host

The edge drops the camera's frames from memory, and moves its log on disk to another folder. The command prints this folder; `mez store` can read it. \
Subscriptions continue without the camera. If it connects again, it counts as a new camera. To forget a connected camera, stop it first.

The edge automatically forgets a camera that was absent for a week, unless its disk holds frames of the camera or a subscription names it: \
see `mez edge --forget-after`. The command works only on the edge's host, through its Unix socket.")]
    Forget {
        /// The camera, such as dock/old
        #[arg(value_name = "CAMERA")]
        camera: CameraName,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

pub(crate) fn run(args: CamerasArgs) -> Result<(), Failure> {
    match args.command {
        Some(Command::Show { camera, connect }) => return show(&camera, &connect),
        Some(Command::Reset { camera, yes, connect }) => return reset(&camera, yes, &connect),
        Some(Command::Forget { camera, connect }) => return forget(&camera, &connect),
        None => {}
    }
    let (json, watch) = (args.json, args.watch);
    block_on(async {
        let edge = args.connect.connect("mez cameras").await?;
        let pattern = args.pattern.as_ref();
        let mut screen = Screen::new();
        let mut table = Table::new(COLUMNS, args.columns);
        if watch {
            let watching = watch_cameras(&edge, pattern, json, &mut screen, &mut table);
            return until_stopped(watching).await?.unwrap_or(Ok(()));
        }
        let cameras = edge.cameras(pattern).await?;
        if json {
            return print_json(&cameras);
        }
        let lines = lines(cameras, pattern, &mut table, screen.width());
        lines.iter().try_for_each(|line| writeln!(io::stdout(), "{line}")).map_err(Failure::new)
    })?
}

/// Shows the cameras repeatedly until the command is stopped. Says so while the edge is gone.
async fn watch_cameras(
    edge: &EdgeClient,
    pattern: Option<&CameraPattern>,
    json: bool,
    screen: &mut Screen,
    table: &mut Table<Row>,
) -> Result<(), Failure> {
    loop {
        match edge.cameras(pattern).await {
            Ok(cameras) if json => print_json(&cameras)?,
            Ok(cameras) => screen.draw(&lines(cameras, pattern, table, screen.width()))?,
            Err(error) if json => return Err(Failure::new(error)),
            Err(error) => screen.draw(&wrap(&format!("{error}; trying again"), screen.width()))?,
        }
        pause(WATCH_INTERVAL).await;
    }
}

/// The table of the cameras, and the notes below it.
fn lines(
    cameras: Vec<CameraSummary>,
    pattern: Option<&CameraPattern>,
    table: &mut Table<Row>,
    width: Option<usize>,
) -> Vec<String> {
    if cameras.is_empty() {
        let matches = pattern.map(|pattern| format!(" matches {pattern}")).unwrap_or_default();
        return vec![format!("no camera{matches}; start one with: mez camera NAME --edge HOST")];
    }
    let (now, monotonic) = (wall_now(), monotonic_now());
    let notes: Vec<String> = cameras
        .iter()
        .flat_map(|camera| camera_row::notes(camera, monotonic))
        .flat_map(|note| wrap(&note, width))
        .collect();
    let rows: Vec<Row> = cameras.into_iter().map(|camera| Row { camera, now, monotonic }).collect();
    let (mut lines, _) = table.lines(&rows, width);
    lines.extend(notes);
    lines
}

/// Prints a line of JSON for each camera.
fn print_json(cameras: &[CameraSummary]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let now = monotonic_now();
    cameras.iter().try_for_each(|camera| writeln!(out, "{}", to_json(camera, now)))?;
    Ok(out.flush()?)
}

fn show(camera: &CameraName, connect: &ConnectArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = connect.connect("mez cameras").await?;
        let CameraStarts { starts, resets } = edge.camera_starts(camera).await?;
        if starts.is_empty() && resets.is_empty() {
            return Err(Failure::text(format!(
                "this edge does not know a camera {camera}; mez cameras lists the cameras that it knows"
            )));
        }
        let rows: Vec<_> = starts.iter().map(start_cells).collect();
        print!(
            "{}",
            table(["EPOCH", "FIRST ACCEPTED (UTC)", "FROM", "IDENTITY", "SERIAL", "SHA-256"], &rows)
        );
        for CameraReset { at, uid, epoch, identity, put_aside } in &resets {
            let known =
                epoch.map_or("no start was known".into(), |epoch| format!("epoch {} was forgotten", epoch.0));
            let whose = if identity.is_empty() { String::new() } else { format!(", of {identity}") };
            let log = put_aside.as_ref().map(|folder| format!("; its log is in {}", folder.display()));
            println!("reset {} by user {uid}: {known}{whose}{}", seconds(*at), log.unwrap_or_default());
        }
        Ok(())
    })?
}

fn start_cells(start: &CameraStart) -> [String; 6] {
    let CameraStart { epoch, first, identity, serial, fingerprint, address } = start;
    // Long enough to distinguish certificates of one site. The serial number is shown in full, because it can be revoked.
    let short = fingerprint.get(..16).unwrap_or(fingerprint).to_owned();
    [epoch.0.to_string(), seconds(*first), address.clone(), identity.clone(), serial.clone(), short]
}

/// A time to the second.
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
                "the edge knew no start of camera {camera}; it accepts the next start with any epoch"
            ),
            (Some(epoch), connected) => {
                let was = if connected { "was connected" } else { "was not connected" };
                println!("camera {camera} is reset: it {was}, and epoch {} is forgotten", epoch.0);
            }
        }
        if let Some(folder) = done.put_aside {
            println!("its log was moved; to list it: mez store ls --store {}", folder.display());
        }
        Ok(())
    })?
}

fn forget(camera: &CameraName, connect: &ConnectArgs) -> Result<(), Failure> {
    block_on(async {
        let edge = connect.connect("mez cameras").await?;
        let ForgottenCamera { epoch, put_aside, .. } = edge.forget_camera(camera).await?;
        println!("camera {camera} is forgotten; its last start was epoch {}", epoch.0);
        if let Some(folder) = put_aside {
            println!("its log was moved; to list it: mez store ls --store {}", folder.display());
        }
        Ok(())
    })?
}

/// Asks on a terminal for confirmation of a reset.
fn confirm(camera: &CameraName) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::text(format!(
            "cannot ask for confirmation without a terminal; to reset camera {camera}, add --yes"
        )));
    }
    eprint!(
        "Reset camera {camera}? The edge closes its connection, forgets its starts, and moves its log to another folder. [y/N] "
    );
    let mut answer = String::new();
    let read = io::stderr().flush().and_then(|()| io::stdin().lock().read_line(&mut answer));
    match read {
        Ok(_) if matches!(answer.trim(), "y" | "Y" | "yes") => Ok(()),
        _ => Err(Failure::text(format!("camera {camera} was not reset"))),
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::Epoch;

    use super::*;

    /// `mez keys revoke` takes the printed serial number. A shortened one would match no certificate.
    #[test]
    fn a_start_is_shown_with_the_whole_serial_number_of_its_certificate() {
        let start = CameraStart {
            epoch: Epoch(3),
            first: Timestamp::from_nanos(0),
            identity: "spiffe://harbour/camera/dock/cam1".into(),
            serial: "3f2a90c4d1e65b7788990a1b2c3d4e5f".into(),
            fingerprint: "ab".repeat(32),
            address: "127.0.0.1".into(),
        };
        let cells = start_cells(&start);
        assert_eq!(cells[4], start.serial);
        assert_eq!(cells[5], "ab".repeat(8));
    }
}
