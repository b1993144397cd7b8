//! `mez subscribe`: shows a live line for each camera, and optionally saves frames.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::data::ContentType;
use mez_core::frame::{Encoding, Rung};
use mez_core::history::{QualityError, quality};
use mez_core::name::{CameraName, CameraPattern};
use mez_core::subscription::{Deliver, NotHeld};
use mez_node::client::{
    EdgeClient, Event, Profile, ReceivedFrame, Resume, SubscribeOptions, Subscription, Traffic,
};
use mez_node::clock::wall_now;
use mez_node::runtime::{beside, block_on, pause, until_stopped, within};

use crate::camera_line::{COLUMNS, CameraLine, Row};
use crate::columns::{self, Table};
use crate::connect::ConnectArgs;
use crate::failure::Failure;
use crate::live::{Screen, wrap};
use crate::text::{parse_duration, parse_time};

/// Watch cameras: a live line for each, with frame rate, age, bytes on the link, and skipped frames by reason
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez subscribe 'dock/*'                              newest frames of every camera in dock/
  mez subscribe dock/cam1 --save frames               write each delivered frame to a file
  mez subscribe '**' --since -10m --until now --save frames
  mez subscribe dock/cam1 --resume fill --save frames every frame that the camera has, also after restarts
  mez subscribe dock/cam1 --since -10m --until now --quality jpeg/w640/q70/420 --save frames
  mez subscribe dock/cam1 --quality original --save frames   originals; contracts on the camera have priority on the link
  mez subscribe 'dock/*' --edge edge.local --latency-ms 100 --accuracy 0.95 --profile people.json

In patterns, * means one segment of a name, and ** any number of segments. Put patterns in quotes; otherwise the shell replaces them with file names. \
Frames cross the link only while somebody subscribes. The command ends with Ctrl-C, with SIGTERM, or at --until or --seconds.")]
pub(crate) struct SubscribeArgs {
    /// The cameras: a name or a pattern, such as dock/cam1, 'dock/*' or '**'
    #[arg(value_name = "PATTERN")]
    pattern: CameraPattern,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Latency bound: the maximum time from capture until this program has a frame, in milliseconds
    #[arg(long, value_name = "MS")]
    latency_ms: Option<f64>,
    /// Accuracy floor: the lowest acceptable accuracy, from 0 to 1
    #[arg(long, value_name = "SHARE")]
    accuracy: Option<f64>,
    /// Profile of the application's detector: a file, or a name in the edge's profile folder. Every edge has pedestrian-hog-vtest
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<String>,
    /// What to do while no rung keeps both the latency bound and the accuracy floor
    #[arg(long, value_enum, default_value_t = Infeasible::Degrade)]
    on_infeasible: Infeasible,
    /// Lowest useful frame rate, in frames per second
    #[arg(long, value_name = "F", default_value_t = 0.0)]
    min_fps: f64,
    /// Priority of the contract. If a camera cannot keep all contracts, it keeps those of higher priority first
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// Deliver every frame that crosses the link, in order, instead of the newest one
    #[arg(long)]
    every: bool,
    /// What to do with frames that were missed, because newer ones came, the link was down, or a broker was restarted
    #[arg(long, value_enum, default_value_t = ResumeArg::Newest, conflicts_with = "held_only")]
    resume: ResumeArg,
    /// Capture time to begin at: -10m, 2026-11-20T21:38:46Z, or nanoseconds since 1970 [default: now]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Capture time to end at: now, +30s, or as for --since [default: no end]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,
    /// Rung of frames of the past, such as original or jpeg/w640/q70/420. For live frames only original, in the part of the link that contracts leave
    /// [default: frames of the past as the edge has them, live frames at the rung of the contracts on their camera]
    #[arg(long, value_name = "RUNG", conflicts_with = "held_only", value_parser = parse_quality)]
    quality: Option<Rung>,
    /// Deliver only those frames of the past that the edge has. Do not ask cameras
    #[arg(long, requires = "since")]
    held_only: bool,
    /// End after this time, such as 30 or 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    seconds: Option<Duration>,
    /// Columns to show, with commas between them [default: the most important ones that fit into the terminal; all if the output is not a terminal]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = columns::parser(COLUMNS))]
    columns: Vec<String>,
    /// Write each frame to DIR/CAMERA/EPOCH-SEQUENCE.jpg. This also needs the right `export`
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Infeasible {
    /// Deliver the best frames that fit, marked
    Degrade,
    /// Deliver nothing until a rung keeps both
    Skip,
    /// End the subscription
    Stop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResumeArg {
    /// Count them, or report a missing time span
    Newest,
    /// Fetch them from the camera and deliver every frame that it still has, in order
    Fill,
}

pub(crate) fn run(args: SubscribeArgs) -> Result<(), Failure> {
    let mut options = SubscribeOptions { for_export: args.save.is_some(), ..options(&args)? };
    if options.for_export {
        // Saved files should be images that other programs can open.
        options.accept_encodings = Vec::new();
    }
    let past = options.begin.is_some() && options.end.is_some_and(|end| end <= wall_now());
    let originals = options.quality.is_some() && options.begin.is_none();
    block_on(async {
        let edge = args.connect.connect("mez subscribe").await?;
        let subscription = edge.subscribe(options).await?;
        let bounded = args.latency_ms.is_some() || args.accuracy.is_some() || args.min_fps > 0.0 || originals;
        let traffic = TrafficOf::default();
        let mut watch = Watch {
            edge: &edge,
            subscription,
            save: args.save,
            screen: Screen::new(),
            table: Table::new(COLUMNS, args.columns),
            cameras: BTreeMap::new(),
            traffic: &traffic,
            note: None,
            rights: None,
            saved: 0,
            bounded,
            past,
        };
        let asking = ask_for_traffic(&edge, &args.pattern, &traffic);
        let watching = async {
            match args.seconds {
                Some(limit) => within(limit, watch.run()).await.unwrap_or(Ok(())),
                None => watch.run().await,
            }
        };
        let result = until_stopped(beside(watching, asking)).await?.unwrap_or(Ok(()));
        watch.draw()?;
        result
    })?
}

fn parse_quality(text: &str) -> Result<Rung, QualityError> {
    quality(text).map(|setting| setting.rung())
}

fn options(args: &SubscribeArgs) -> Result<SubscribeOptions, Failure> {
    let now = wall_now();
    let time = |flag: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| parse_time(text, now)).transpose();
        parsed.map_err(|error| Failure::text(format!("{flag}: {error}")))
    };
    let latency = args.latency_ms.map(|ms| Duration::try_from_secs_f64(ms / 1e3)).transpose();
    let profile = args.profile.as_deref().map(|text| match fs::read(text) {
        Ok(content) => Ok(Profile::Inline(Bytes::from(content))),
        // A text that looks like a path is one.
        Err(error) if text.contains(['/', '.']) => Err(Failure::text(format!(
            "--profile {text}: {error}; give the path of a profile, or the name of a profile at the edge"
        ))),
        Err(_) => Ok(Profile::Name(text.into())),
    });
    Ok(SubscribeOptions {
        begin: time("--since", &args.since)?,
        end: time("--until", &args.until)?,
        contract: Contract {
            latency_bound: latency.map_err(|error| Failure::text(format!("--latency-ms: {error}")))?,
            accuracy_floor: args.accuracy,
            min_fps: args.min_fps,
            on_infeasible: match args.on_infeasible {
                Infeasible::Degrade => OnInfeasible::Degrade,
                Infeasible::Skip => OnInfeasible::Skip,
                Infeasible::Stop => OnInfeasible::Stop,
            },
            priority: args.priority,
            ..Contract::default()
        },
        profile: profile.transpose()?,
        deliver: args.every.then_some(Deliver::Every),
        quality: args.quality.clone(),
        held_only: args.held_only,
        resume: match args.resume {
            ResumeArg::Newest => Resume::Newest,
            ResumeArg::Fill => Resume::Fill,
        },
        ..SubscribeOptions::new(args.pattern.clone())
    })
}

/// The most existing cameras that a note names if no camera matches. More would not fit on a line.
const NAMED_MAX: usize = 5;

/// The edge's last report of what cameras publish, and what of it crosses their links.
type TrafficOf = Mutex<BTreeMap<CameraName, Traffic>>;

/// Asks the edge every second for the traffic of its cameras. Runs beside the subscription, so that no frame waits for the answer.
async fn ask_for_traffic(edge: &EdgeClient, pattern: &CameraPattern, traffic: &TrafficOf) {
    loop {
        // Without an answer or the right to one, the traffic is unknown. The subscription reports the loss of the edge.
        let cameras = edge.observable(Some(pattern)).await.ok().flatten().unwrap_or_default();
        let known = cameras.into_iter().filter_map(|camera| Some((camera.camera, camera.traffic?)));
        *traffic.lock().unwrap_or_else(PoisonError::into_inner) = known.collect();
        pause(Duration::from_secs(1)).await;
    }
}

struct Watch<'a> {
    edge: &'a EdgeClient,
    subscription: Subscription,
    save: Option<PathBuf>,
    screen: Screen,
    table: Table<Row>,
    cameras: BTreeMap<CameraName, CameraLine>,
    traffic: &'a TrafficOf,
    /// A note about all cameras.
    note: Option<String>,
    /// The rights that this program lost or gained since its start.
    rights: Option<String>,
    saved: u64,
    /// Whether there are requirements that can fail, or for which the link may be too slow.
    bounded: bool,
    /// Whether this reads the past only, and ends with it.
    past: bool,
}

impl Watch<'_> {
    /// Watches until the subscription ends.
    async fn run(&mut self) -> Result<(), Failure> {
        let mut drawn = Instant::now();
        loop {
            let interval = self.screen.interval();
            let left = interval.saturating_sub(drawn.elapsed());
            match within(left, self.subscription.next()).await {
                Some(None) => return Ok(()),
                Some(Some(Event::Failed { reason })) => return Err(Failure::new(reason)),
                Some(Some(Event::Waiting { matching: 0 })) => self.note = Some(self.none_matches().await),
                Some(Some(event)) => self.take(event)?,
                None => {}
            }
            if drawn.elapsed() >= interval {
                drawn = Instant::now();
                self.draw()?;
            }
        }
    }

    /// A note that no camera matches, with the names of existing ones, since the pattern is most often mistyped.
    async fn none_matches(&self) -> String {
        let waits = "no camera matches yet; waiting for one";
        let Ok(Some(mut cameras)) = self.edge.observable(None).await else { return waits.into() };
        let more = cameras.len().saturating_sub(NAMED_MAX);
        cameras.truncate(NAMED_MAX);
        let names: Vec<_> = cameras.iter().map(|camera| camera.camera.as_str()).collect();
        match (names.is_empty(), more) {
            (true, _) => format!("{waits}; this edge has no cameras yet"),
            (false, 0) => format!("{waits}; this edge has {}", names.join(", ")),
            (false, _) => format!("{waits}; this edge has {} and {more} more", names.join(", ")),
        }
    }

    fn take(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Frame(frame) => {
                self.note = None;
                let line = self.cameras.entry(frame.camera.clone()).or_default();
                line.note(Instant::now(), &frame);
                if self.past {
                    line.note_size();
                }
                line.down = None;
                line.source = None;
                if let Some(not_held) = &frame.not_held {
                    line.not_held = Some(stretch(not_held));
                }
                if self.bounded {
                    line.contract = Some((frame.contract_state, frame.contract_reason.clone()));
                }
                for (reason, count) in frame.skipped.iter() {
                    *line.skipped.entry(reason.name()).or_default() += count;
                }
                if let Some(folder) = &self.save {
                    save(folder, &frame)?;
                    self.saved += 1;
                }
            }
            Event::Camera { camera, up, reason } => {
                let reason = (!up).then(|| reason.unwrap_or_else(|| "gone".into()));
                self.cameras.entry(camera).or_default().down = reason;
            }
            Event::Source { camera, source } => {
                self.cameras.entry(camera).or_default().source = source.sentence();
            }
            Event::Contract { camera, state, reason } => {
                self.cameras.entry(camera).or_default().contract = Some((state, reason));
            }
            Event::Waiting { matching } => {
                let cameras =
                    if matching == 1 { "1 camera matches" } else { &format!("{matching} cameras match") };
                let then = if self.past { "reading the frames that the edge holds" } else { "waiting" };
                self.note = Some(format!("{cameras}, but none is connected; {then}"));
            }
            Event::Disconnected { reason } if reason.is_change_of_rights() => {
                self.rights = Some(reason.to_string());
            }
            Event::Disconnected { reason } => {
                self.note = Some(format!("lost the edge: {reason}; reconnecting"))
            }
            Event::Reconnected => self.note = None,
            // This command does not join groups.
            Event::Joined { .. } | Event::Held { .. } => {}
            Event::Ended { rest } => {
                for (camera, counts, not_held) in rest {
                    let line = self.cameras.entry(camera).or_default();
                    for (reason, count) in counts.iter() {
                        *line.skipped.entry(reason.name()).or_default() += count;
                    }
                    if let Some(not_held) = not_held {
                        line.not_held = Some(stretch(&not_held));
                    }
                }
            }
            Event::Failed { .. } => {}
        }
        Ok(())
    }

    fn draw(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        let width = self.screen.width();
        let traffic = self.traffic.lock().unwrap_or_else(PoisonError::into_inner);
        self.cameras.iter_mut().for_each(|(camera, line)| line.traffic = traffic.get(camera).copied());
        drop(traffic);
        let rows: Vec<Row> =
            self.cameras.iter().map(|(camera, line)| line.row(camera.as_str(), now)).collect();
        let mut lines = Vec::new();
        if !rows.is_empty() {
            let (table, shows) = self.table.lines(&rows, width);
            lines.extend(table);
            let (worst, others): (Vec<_>, Vec<_>) =
                self.cameras.iter().partition(|(_, line)| line.is_in_trouble());
            for (camera, line) in worst.into_iter().chain(others) {
                lines.extend(line.notes(camera.as_str(), width, !shows("reasons")));
            }
        }
        if self.saved > 0
            && let Some(folder) = &self.save
        {
            lines.push(format!("{} frames saved to {}", self.saved, folder.display()));
        }
        lines.extend(self.rights.iter().chain(&self.note).flat_map(|note| wrap(note, width)));
        Ok(self.screen.draw(&lines)?)
    }
}

fn stretch(not_held: &NotHeld) -> String {
    format!("{} to {}: {}", not_held.begin, not_held.end, not_held.reason.name())
}

/// The file extension of a data record, by its content type.
fn extension_of(frame: &ReceivedFrame) -> &'static str {
    match frame.content_type.as_ref().map(ContentType::essence) {
        Some("application/json") => "json",
        Some("text/plain") => "txt",
        Some("application/x-npy") => "npy",
        Some("application/vnd.apache.arrow.stream") => "arrows",
        _ => "bin",
    }
}

fn save(folder: &Path, frame: &ReceivedFrame) -> Result<(), Failure> {
    let folder = folder.join(frame.camera.as_str());
    let extension = match frame.meta.encoding {
        Encoding::Jpeg => "jpg",
        Encoding::Png => "png",
        Encoding::Bgr8 => "bgr",
        Encoding::Gray8 => "gray",
        Encoding::H264 => "h264",
        Encoding::H265 => "h265",
        Encoding::Av1 => "obu",
        Encoding::Tiles => "tiles",
        Encoding::Data => extension_of(frame),
    };
    let id = frame.meta.id;
    let path = folder.join(format!("{:06}-{:09}.{extension}", id.epoch.0, id.sequence.0));
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &frame.payload));
    written.map_err(|error| Failure::text(format!("cannot write {}: {error}", path.display())))
}
