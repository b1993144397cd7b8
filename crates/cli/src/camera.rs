//! `mez camera`: runs a camera broker, which publishes a source or the frames of other programs.

use std::path::{Path, PathBuf};

use clap::Args;
use mez_core::broker::camera::{HISTORY_SHARE, HISTORY_SHARE_MIN};
use mez_core::controller::named::PolicyName;
use mez_core::log::LogConfig;
use mez_core::name::CameraName;
use mez_node::api::socket::{Which, default_path};
use mez_node::camera::{CameraOptions, H264Library, Transport};
use mez_node::feed::feed;
use mez_node::identity::{KeyFolder, Name, Role};
use mez_node::ports::EdgeAddress;
use mez_node::process::{CameraProcess, CameraProcessOptions};
use mez_node::runtime::{block_on, stop_signal, until_stopped};
use mez_node::source::{Source, SourceCredentials, SourceOptions, SourceSpec};

use crate::failure::Failure;
use crate::persist::PersistArgs;
use crate::text::{parse_bytes, parse_frame_bytes};

/// Run a camera broker: keep a camera's frames, and send them to the edge on demand
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez camera dock/cam1 --edge edge.local --source /dev/video0
  mez camera dock/cam1 --edge edge.local --source rtsp://10.0.0.9/stream --source-credentials dock.credentials
  mez camera dock/cam1 --edge localhost --source recording.mp4 --loop --fps 10
  mez camera dock/cam1 --edge edge1.local --edge edge2.local --source /dev/video0
  mez camera dock/cam1 --edge edge.local         frames come from other programs, through the Unix socket
  mez camera dock/cam1 --edge edge.local --store /var/lib/mez/store --store-age 72h

Do not put a camera's user name and password on the command line, which everybody on this machine can read with `ps`. Instead:
  (umask 077; cat > dock.credentials)             make a file: type USER:PASSWORD, Enter and Ctrl-D
  MEZ_SOURCE_CREDENTIALS=USER:PASSWORD            or set this variable, for example in a service manager
  secret-tool … | mez camera … --source-credentials -
If the address has a secret in its query, such as ?token=…, put the address into MEZ_SOURCE.

A source needs ffmpeg. Motion JPEG passes through unchanged; all else becomes JPEG of quality 95.
The line `ready …` says that frames can be published; with --source, that the first one has been.
The command ends with Ctrl-C, with SIGTERM, or when a recording ends.")]
pub(crate) struct CameraArgs {
    /// The camera's name, such as dock/cam1
    #[arg(value_name = "NAME")]
    camera: CameraName,
    /// The edge. Give several (repeated, or separated by commas) in order of preference: the camera uses the first that it can reach
    #[arg(long, value_name = "HOST[:PORT]", env = "MEZ_EDGE", required = true, value_delimiter = ',', value_parser = parse_edge)]
    edge: Vec<EdgeAddress>,
    /// The transport: QUIC, TLS over TCP, or automatic (QUIC, and TCP if UDP is blocked)
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LinkWay::Auto)]
    link: LinkWay,
    /// The policy that chooses a rung for each frame if applications set an accuracy floor; pi, awstream and none are for comparison
    #[arg(long, value_name = "POLICY", default_value_t = PolicyName::Quantile)]
    policy: PolicyName,
    /// The H.264 encoder: openh264, or x264 in builds that have it
    #[arg(long, value_name = "ENCODER", default_value_t = H264Library::Openh264)]
    h264_encoder: H264Library,
    /// Folder with the keys of this host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// The source of frames: a video file, /dev/videoN, or an rtsp:// or http:// address [default: programs publish through --socket]
    #[arg(long, value_name = "SOURCE", env = "MEZ_SOURCE", hide_env_values = true)]
    source: Option<String>,
    /// File with the source's USER:PASSWORD, which only its owner may read (mode 0600), or - for standard input [env: MEZ_SOURCE_CREDENTIALS=USER:PASSWORD]
    #[arg(long, value_name = "FILE|-", requires = "source")]
    source_credentials: Option<PathBuf>,
    /// Play a file again when it ends
    #[arg(long = "loop", requires = "source")]
    looped: bool,
    /// Frames per second: the rate at which a file is played, or to which a live source is reduced
    #[arg(long, value_name = "F", requires = "source")]
    fps: Option<f64>,
    /// Unix socket through which programs on this host publish and subscribe, or `off` [default: off with --source]
    #[arg(long, value_name = "PATH|off", env = "MEZ_CAMERA_SOCKET")]
    socket: Option<PathBuf>,
    /// Memory for the camera's frames; beyond that the oldest frames are dropped
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes, env = "MEZ_CAMERA_MEMORY_BYTES")]
    memory_bytes: u64,
    /// Largest frame that is accepted
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_frame_bytes)]
    frame_bytes_max: u32,
    /// Folder for state, which the broker needs again at its next start [default: $MEZ_STATE, /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Share of the link's time that frames of the past may take beside live ones, 0.01 to 1
    #[arg(long, value_name = "SHARE", default_value_t = HISTORY_SHARE, value_parser = parse_history_share)]
    history_share: f64,
    #[command(flatten)]
    persist: PersistArgs,
}

/// What `--link` may be.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum LinkWay {
    Auto,
    Quic,
    Tcp,
}

impl From<LinkWay> for Transport {
    fn from(way: LinkWay) -> Self {
        match way {
            LinkWay::Auto => Self::Auto,
            LinkWay::Quic => Self::Quic,
            LinkWay::Tcp => Self::Tcp,
        }
    }
}

fn parse_edge(text: &str) -> Result<EdgeAddress, String> {
    EdgeAddress::parse(text).ok_or_else(|| "write HOST or HOST:PORT".into())
}

fn parse_history_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (HISTORY_SHARE_MIN..=1.0).contains(share));
    share.ok_or_else(|| format!("write a share between {HISTORY_SHARE_MIN} and 1"))
}

/// The environment variable that holds a source's credentials if no file is given.
const SOURCE_CREDENTIALS: &str = "MEZ_SOURCE_CREDENTIALS";

/// Adds the credentials to a source. They come from a file, standard input or the environment, never from the command line.
fn with_credentials(source: SourceSpec, file: Option<&Path>) -> Result<SourceSpec, Failure> {
    if source.holds_credentials() && is_on_command_line() {
        return Err(Failure::text(format!(
            "the address of {source} holds a password, and everybody on this machine can read command lines (ps); remove it, \
             and give USER:PASSWORD with --source-credentials FILE (or - for standard input), or in {SOURCE_CREDENTIALS}"
        )));
    }
    let credentials = match file {
        Some(path) if path.as_os_str() == "-" => Some(SourceCredentials::read_stdin()?),
        Some(path) => Some(SourceCredentials::read_file(path)?),
        None => match std::env::var(SOURCE_CREDENTIALS) {
            // Set for all cameras of a host, it is not for its files and devices.
            Ok(text) if !text.is_empty() && source.is_network() => Some(SourceCredentials::parse(&text)?),
            _ => None,
        },
    };
    Ok(match credentials {
        Some(credentials) => source.with_credentials(&credentials)?,
        None => source,
    })
}

/// Whether the source was named on the command line, and not in the environment.
fn is_on_command_line() -> bool {
    std::env::args_os().any(|word| {
        let word = word.to_string_lossy();
        word == "--source" || word.starts_with("--source=")
    })
}

pub(crate) fn run(args: CameraArgs) -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let source = args.source.as_deref().map(SourceSpec::parse).transpose()?;
    let source =
        source.map(|source| with_credentials(source, args.source_credentials.as_deref())).transpose()?;
    let keys = KeyFolder::find(args.keys.as_deref())?;
    let name: Name = args.camera.as_str().parse()?;
    let mut options =
        CameraOptions::new(args.camera.clone(), args.edge, keys.credentials(Role::Camera, Some(&name))?);
    options.log = LogConfig::with_bytes_max(args.memory_bytes);
    options.frame_bytes_max = args.frame_bytes_max;
    options.transport = args.link.into();
    options.policy = args.policy;
    options.h264 = args.h264_encoder;
    options.state = args.state;
    options.persist = args.persist.options(args.keys.as_deref())?;
    options.history_share = args.history_share;
    let socket = match args.socket {
        Some(path) if path.as_os_str() == "off" => None,
        Some(path) => Some(path),
        None if source.is_some() => None,
        None => Some(default_path(Which::Camera)),
    };
    block_on(async {
        let process = CameraProcess::start(CameraProcessOptions { camera: options, socket }).await?;
        match source {
            Some(spec) => {
                let source_options =
                    SourceOptions { fps: args.fps, looped: args.looped, ..SourceOptions::default() };
                let mut source = Source::spawn(spec, source_options).await?;
                let ready = || println!("ready {process}");
                let fed = until_stopped(feed(process.camera(), &mut source, ready)).await?;
                source.stop().await;
                if fed.is_some() {
                    // What became of the source is to reach the edge.
                    process.camera().leave().await;
                }
                fed.transpose()?;
            }
            None => {
                println!("ready {process}");
                stop_signal().await?;
            }
        }
        process.stop().await;
        Ok(())
    })?
}
