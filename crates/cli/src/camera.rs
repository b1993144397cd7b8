//! `mez camera`: runs a camera broker, which publishes a source or frames of other programs.

use std::path::{Path, PathBuf};

use clap::Args;
use mez_core::broker::camera::{HISTORY_SHARE, HISTORY_SHARE_MIN};
use mez_core::controller::named::PolicyName;
use mez_core::log::LogConfig;
use mez_core::name::CameraName;
use mez_node::api::socket::{Which, default_path};
use mez_node::camera::{CameraOptions, EDGES_MAX, H264Library, Transport};
use mez_node::decoders::{DecoderChoice, Decoders};
use mez_node::feed::Feeding;
use mez_node::identity::{KeyFolder, Name, Role};
use mez_node::ports::EdgeAddress;
use mez_node::process::{CameraProcess, CameraProcessOptions};
use mez_node::runtime::{block_on_camera, until_stopped_reloading};
use mez_node::source::{
    OnvifChoice, PreparedSource, SOURCE_CREDENTIALS_VARIABLE, SourceCredentials, SourceOptions, SourceSpec,
};

use crate::config::{self, Contradictions, OfRole, Take, Typed};
use crate::failure::Failure;
use crate::limits::LimitArgs;
use crate::persist::PersistArgs;
use crate::text::{parse_frame_bytes, parse_rate, parse_room};
use crate::unnamed;

/// Run a camera broker: keep a camera's frames, and send them to the edge on demand
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez camera dock/cam1 --edge edge.local --source /dev/video0
  mez camera dock/cam1 --edge edge.local --source rtsp://10.0.0.9/stream --source-credentials dock.credentials
  mez camera dock/cam1 --edge localhost --source recording.mp4 --loop --fps 10
  mez camera dock/cam1 --edge edge1.local --edge edge2.local --source /dev/video0
  mez camera dock/cam1 --source /dev/video0       finds the edge on the local network (mez edge --announce)
  mez camera dock/cam1 --edge edge.local         other programs publish frames through the Unix socket
  mez camera dock/cam1 --edge edge.local --store /var/lib/mez/store --store-age 72h

Do not write a network camera's user name and password on the command line: everybody on this machine can read it with `ps`. Use one of these:
  (umask 077; cat > dock.credentials)             a file: type USER:PASSWORD, Enter and Ctrl-D; then --source-credentials dock.credentials
  MEZ_SOURCE_CREDENTIALS=USER:PASSWORD            this variable, for example in a service manager
  secret-tool … | mez camera … --source-credentials -
If the address has a secret in its query, such as ?token=…, put the address into MEZ_SOURCE.

Settings can be in a file: --config FILE. Without --config, the broker reads ~/.config/mez/camera.toml (or $XDG_CONFIG_HOME/mez/camera.toml) if it exists, \
otherwise /etc/mez/camera.toml if it exists. Flags and variables override the file. On SIGHUP, the broker reads its file again. `mez config check FILE` finds \
errors in a file. `mez config show camera` prints the settings in force.

A source needs ffmpeg. Motion JPEG, AV1, and H.264 and H.265 without B-frames pass through unchanged. Everything else becomes JPEG of quality 95; with --decode, video too.
When frames can be published, the broker prints a line `ready …`; with --source, when the first frame was published.
The command ends with Ctrl-C, with SIGTERM, or when a recording ends.")]
pub(crate) struct CameraArgs {
    /// The camera's name, such as dock/cam1
    #[arg(value_name = "NAME", env = "MEZ_CAMERA")]
    camera: Option<CameraName>,
    /// File of settings (TOML), or `off` for none [default: camera.toml in ~/.config/mez, else in /etc/mez]
    #[arg(long, value_name = "FILE|off", env = "MEZ_CAMERA_CONFIG")]
    config: Option<PathBuf>,
    /// The edge. To give several edges, repeat the option or write commas between them, in order of preference: the camera uses the first one that it can reach [default: the edge on this host, if one runs; else the edge of the site that answers on the local network]
    #[arg(long, value_name = "HOST[:PORT]", env = "MEZ_EDGE", value_delimiter = ',', value_parser = parse_edge)]
    edge: Vec<EdgeAddress>,
    /// The transport: quic, tcp (TLS over TCP), or auto (QUIC, but TCP if UDP is blocked)
    #[arg(long, value_name = "WAY", value_enum, default_value_t = LinkWay::Auto, env = "MEZ_CAMERA_LINK")]
    link: LinkWay,
    /// The policy that chooses a rung for each frame if applications set an accuracy floor. pi, awstream and none are for comparisons
    #[arg(long, value_name = "POLICY", default_value_t = PolicyName::Quantile, env = "MEZ_CAMERA_POLICY")]
    policy: PolicyName,
    /// The H.264 encoder: openh264, or x264 if the build contains it
    #[arg(long, value_name = "ENCODER", default_value_t = H264Library::Openh264, env = "MEZ_CAMERA_H264_ENCODER")]
    h264_encoder: H264Library,
    /// Decoder for video: software (H.264 in this process; H.265 and AV1 by ffmpeg), a hardware decoder through ffmpeg (v4l2m2m, vaapi, cuda), ffmpeg's own decoders (ffmpeg), or auto (the first hardware decoder that works and is faster than software)
    #[arg(long, value_name = "DECODER", default_value_t = DecoderChoice::Software, env = "MEZ_CAMERA_DECODER")]
    decoder: DecoderChoice,
    /// Folder with the keys of this host [default: ~/.config/mez/keys]
    #[arg(long, value_name = "DIR", env = "MEZ_KEYS")]
    keys: Option<PathBuf>,
    /// The source of frames: a video file, /dev/videoN, or an rtsp:// or http:// address [default: programs publish through --socket]
    #[arg(long, value_name = "SOURCE", env = "MEZ_SOURCE", hide_env_values = true)]
    source: Option<String>,
    /// File with the source's USER:PASSWORD, or - for standard input. Only its owner may have access to the file (mode 0600) [default: the content of the variable MEZ_SOURCE_CREDENTIALS, else of the systemd credential mez-source-credentials]
    #[arg(long, value_name = "FILE|-", env = "MEZ_SOURCE_CREDENTIALS_FILE")]
    source_credentials: Option<PathBuf>,
    /// ONVIF device service at which Mez requests key frames from a network camera whose video passes through unchanged, such as http://10.0.0.9/onvif/device_service; or `off` [default: that path on the host of an rtsp:// source]
    #[arg(long, value_name = "URL|off", env = "MEZ_SOURCE_ONVIF")]
    source_onvif: Option<OnvifChoice>,
    /// Play a file again when it ends
    #[arg(long = "loop", env = "MEZ_CAMERA_LOOP")]
    looped: bool,
    /// Frames per second: plays a file at this rate, or reduces a live source to it
    #[arg(long, value_name = "F", value_parser = parse_rate, env = "MEZ_CAMERA_FPS")]
    fps: Option<f64>,
    /// Decode video, and publish each picture as JPEG of quality 95 [default: H.264, H.265 and AV1 without B-frames pass through unchanged]
    #[arg(long, env = "MEZ_CAMERA_DECODE")]
    decode: bool,
    /// Unix socket for programs on this host that publish or subscribe, or `off` [default: off with a source; else camera.sock in /run/mez for root, or in $XDG_RUNTIME_DIR/mez or ~/.cache/mez]
    #[arg(long, value_name = "PATH|off", env = "MEZ_CAMERA_SOCKET")]
    socket: Option<PathBuf>,
    /// Memory for the camera's frames. If it is full, the oldest frames are dropped
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_room, env = "MEZ_CAMERA_MEMORY_BYTES")]
    memory_bytes: u64,
    /// Maximum size of a frame
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_frame_bytes, env = "MEZ_CAMERA_FRAME_BYTES_MAX")]
    frame_bytes_max: u32,
    /// Folder for state that the broker needs at its next start [default: /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR", env = "MEZ_STATE")]
    state: Option<PathBuf>,
    /// Share of the link's time that frames of the past may use while live frames are sent, 0.01 to 1
    #[arg(long, value_name = "SHARE", default_value_t = HISTORY_SHARE, value_parser = parse_history_share, env = "MEZ_CAMERA_HISTORY_SHARE")]
    history_share: f64,
    #[command(flatten)]
    persist: PersistArgs,
    #[command(flatten)]
    limits: LimitArgs,
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

/// Adds the credentials to a source. They come from a file, standard input or the environment, never from the command line.
fn with_credentials(source: SourceSpec, file: Option<&Path>) -> Result<SourceSpec, Failure> {
    if source.holds_credentials() && is_on_command_line() {
        return Err(Failure::text(format!(
            "the address of {source} holds a password, and everybody on this machine can read command lines (ps); remove it, \
             and give USER:PASSWORD with --source-credentials FILE (or - for standard input), or in {SOURCE_CREDENTIALS_VARIABLE}"
        )));
    }
    let credentials = match file {
        Some(path) if path.as_os_str() == "-" => Some(SourceCredentials::read_stdin()?),
        Some(path) => Some(SourceCredentials::read_file(path)?),
        // The variable may be set for all cameras of a host, so files and devices must not use it.
        None if source.is_network() => SourceCredentials::of_environment()?,
        None => None,
    };
    Ok(match credentials {
        Some(credentials) => source.with_credentials(&credentials)?,
        None => source,
    })
}

/// Whether the source was given on the command line, and not in the environment.
fn is_on_command_line() -> bool {
    std::env::args_os().any(|word| {
        let word = word.to_string_lossy();
        word == "--source" || word.starts_with("--source=")
    })
}

impl OfRole for CameraArgs {
    const ROLE: config::Role = config::Role::Camera;

    const RELOADED: &'static [(&'static str, Take<Self>)] = &[
        ("history_share", |args, new| args.history_share = new.history_share),
        ("connections_per_principal_max", |args, new| args.limits.take_connections(&new.limits)),
        ("subscriptions_max", |args, new| args.limits.take_subscriptions(&new.limits)),
        ("subscriptions_per_principal_max", |args, new| args.limits.take_subscriptions_of_one(&new.limits)),
        ("unread_bytes_max", |args, new| args.limits.take_unread(&new.limits)),
        ("unread_bytes_per_principal_max", |args, new| args.limits.take_unread_of_one(&new.limits)),
        ("unread_patience", |args, new| args.limits.take_patience(&new.limits)),
        ("past_bytes_per_second", |args, new| args.limits.take_past(&new.limits)),
    ];

    fn contradictions(&self, given: &dyn Fn(&str) -> bool) -> Contradictions {
        let mut found = self.persist.contradictions(given);
        let mut add = |key, what: &str| found.push((key, what.to_owned()));
        if self.camera.is_none() {
            add(
                "camera",
                "no camera is named; name it: `mez camera dock/cam1`, or camera = \"dock/cam1\" in a file",
            );
        }
        let edges = self.edge.len();
        if edges == 0 && given("edge") {
            add(
                "edge",
                "the list is empty, so there is no edge to connect to; write edge = [\"HOST\"], or leave this setting out to find an edge on the local network",
            );
        } else if edges > EDGES_MAX {
            add(
                "edge",
                &format!("{edges} edges are named, but at most {EDGES_MAX} are allowed; leave some out"),
            );
        }
        if let Some(place) = (1..edges).find(|place| self.edge[..*place].contains(&self.edge[*place])) {
            add("edge", &format!("{} is named twice; name each edge once", self.edge[place]));
        }
        if self.source.is_none() {
            for key in ["source_credentials", "source_onvif", "loop", "fps", "decode"]
                .into_iter()
                .filter(|key| given(key))
            {
                add(
                    key,
                    "this setting has no effect without a source; name a source with source (--source), or leave this setting out",
                );
            }
            if self.socket.as_ref().is_some_and(|path| path.as_os_str() == "off") {
                add(
                    "socket",
                    "without a source, frames arrive only through the socket; name a source, or leave this setting out",
                );
            }
        }
        if u64::from(self.frame_bytes_max) > self.memory_bytes && given("frame_bytes_max") {
            add(
                "frame_bytes_max",
                "a frame may not be larger than memory_bytes; reduce frame_bytes_max, or increase memory_bytes",
            );
        }
        found.extend(self.limits.faults(given));
        found
    }

    fn computed(&self) -> Vec<(&'static str, String)> {
        let shown = |path: PathBuf| path.display().to_string();
        let socket = match self.source {
            Some(_) => "off".into(),
            None => default_path(Which::Camera),
        };
        let known = [
            ("keys", KeyFolder::location(self.keys.as_deref()).ok()),
            ("socket", Some(socket)),
            ("state", mez_node::state::folder(self.state.as_deref()).ok()),
        ];
        known.into_iter().filter_map(|(key, path)| Some((key, shown(path?)))).collect()
    }
}

impl CameraArgs {
    /// The broker's options, and the source, if there is one.
    fn options(&self) -> Result<(CameraProcessOptions, Option<SourceSpec>), Failure> {
        let source = self.source.as_deref().map(SourceSpec::parse).transpose()?;
        let source =
            source.map(|source| with_credentials(source, self.source_credentials.as_deref())).transpose()?;
        let keys = KeyFolder::find(self.keys.as_deref())?;
        // The settings have been checked before.
        let camera = self.camera.clone().ok_or_else(|| Failure::usage("no camera is named"))?;
        let name: Name = camera.as_str().parse()?;
        let credentials = keys.credentials(Role::Camera, Some(&name))?;
        let mut options = CameraOptions::new(camera, self.edge.clone(), credentials);
        options.log = LogConfig::with_bytes_max(self.memory_bytes);
        options.frame_bytes_max = self.frame_bytes_max;
        options.transport = self.link.into();
        options.policy = self.policy;
        options.h264 = self.h264_encoder;
        options.decoders = Decoders::start(self.decoder);
        options.state.clone_from(&self.state);
        options.persist = self.persist.options(self.keys.as_deref())?;
        options.history_share = self.history_share;
        let socket = match &self.socket {
            Some(path) if path.as_os_str() == "off" => None,
            Some(path) => Some(path.clone()),
            None if source.is_some() => None,
            None => Some(default_path(Which::Camera)),
        };
        Ok((CameraProcessOptions { camera: options, socket, limits: self.limits.limits() }, source))
    }
}

pub(crate) fn run(typed: &Typed) -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let mut in_force = config::begin::<CameraArgs>(typed)?;
    let (options, source) = in_force.args.options()?;
    let CameraArgs { fps, looped, decode, .. } = in_force.args;
    let onvif = in_force.args.source_onvif.clone().unwrap_or_default();
    let keys = in_force.args.keys.clone();
    block_on_camera(async {
        let mut options = options;
        let decoders = options.camera.decoders.clone();
        let source_options =
            SourceOptions { fps, looped, packets: !decode, decoders, onvif, ..SourceOptions::default() };
        // Before the edge knows of the camera, so that a mistyped file name does not leave a camera at the edge.
        let source = match source {
            Some(spec) => Some(PreparedSource::prepare(spec, source_options).await?),
            None => None,
        };
        if options.camera.edges.is_empty() {
            options
                .camera
                .edges
                .push(unnamed::for_camera(&options.camera.credentials, keys.as_deref()).await?);
        }
        let process = CameraProcess::start(options).await?;
        let reload = async || {
            if let Some(args) = config::reload(&mut in_force, typed) {
                process.change(args.limits.limits(), args.history_share);
            }
        };
        match source {
            Some(prepared) => {
                let ready = format!("ready {process}");
                let ready = move || println!("{ready}");
                let mut feeding = Feeding::start(process.camera().clone(), prepared.start(), ready);
                let fed = until_stopped_reloading(feeding.ended(), reload).await?;
                feeding.stop().await;
                if fed.is_some() {
                    // So that the edge gets the final state of the source.
                    process.camera().leave().await;
                }
                fed.transpose()?;
            }
            None => {
                println!("ready {process}");
                until_stopped_reloading(std::future::pending::<()>(), reload).await?;
            }
        }
        process.stop().await;
        Ok(())
    })?
}
