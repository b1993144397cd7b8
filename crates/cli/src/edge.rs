//! `mez edge`: runs an edge broker.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use mez_core::audit::Rotation;
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::{Channels, DeclaredChannel};
use mez_node::api::ApiLimits;
use mez_node::api::socket::{Which, default_path};
use mez_node::client::Address;
use mez_node::decoders::{DecoderChoice, Decoders};
use mez_node::discovery::Network;
use mez_node::identity::{KeyFolder, Name};
use mez_node::persist::PersistOptions;
use mez_node::pictures::PictureService;
use mez_node::ports;
use mez_node::process::{EdgeChanges, EdgeProcess, EdgeProcessOptions};
use mez_node::runtime::{block_on, until_stopped_reloading};
use mez_node::web::{EventBounds, ProxyHeader, ProxyHeaderName, ProxySender, ScrapeToken, WebOptions};

use crate::Itself;
use crate::config::{self, Contradictions, OfRole, Role, Take, Typed};
use crate::failure::Failure;
use crate::limits::LimitArgs;
use crate::page::PAGE;
use crate::persist::PersistArgs;
use crate::text::{parse_count, parse_frame_bytes, parse_period, parse_room};

/// Run an edge broker: cameras connect to it, and applications subscribe to their frames
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez edge                                       all defaults: cameras at UDP 7650, gRPC at TCP 7651
  mez edge --dns edge.example --memory-bytes 4GiB  gRPC clients connect to edge.example; 4 GiB of memory for frames
  mez edge --grpc off --enrol off                no applications on other hosts, no new devices
  mez edge --signer unix:///run/mez/signer.sock  `mez keys serve` of another user has the authority's key
  mez edge --channel 'hall=dock/*,yard/cam1'     these cameras share one radio cell, which Mez divides
  mez edge --web                                 the page, health and metrics at https://localhost:7653
  mez edge --announce                            cameras and applications on this network find it without --edge
  mez edge open                                  a link that signs a browser in to the page of the edge on this host
  mez edge --config edge.toml                    settings from a file; flags and variables override it

Without --config, the edge reads ~/.config/mez/edge.toml (or $XDG_CONFIG_HOME/mez/edge.toml) if it exists, otherwise /etc/mez/edge.toml if it \
exists. On SIGHUP, the edge reads its file again. `mez config check FILE` finds errors in a file. `mez config show edge` prints the settings in force.
When the broker is ready, it prints a line `ready …` to the standard output. The command ends with Ctrl-C or SIGTERM.")]
pub(crate) struct EdgeArgs {
    /// File of settings (TOML), or `off` for none [default: edge.toml in ~/.config/mez, else in /etc/mez]
    #[arg(long, value_name = "FILE|off", env = "MEZ_EDGE_CONFIG")]
    config: Option<PathBuf>,
    /// Folder with the keys of this host [default: ~/.config/mez/keys]
    #[arg(long, value_name = "DIR", env = "MEZ_KEYS")]
    keys: Option<PathBuf>,
    /// Name of this edge within the site [default: the edge identity in the folder of keys, else the host's name]
    #[arg(long, value_name = "NAME", env = "MEZ_EDGE_NAME")]
    name: Option<Name>,
    /// Host name or address to which gRPC clients in other languages connect; may be repeated
    #[arg(long, value_name = "NAME", env = "MEZ_EDGE_DNS", value_delimiter = ',')]
    dns: Vec<String>,
    /// Address and port for cameras (UDP, and TCP with the same number)
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = every_address(ports::LINK), value_parser = parse_address, env = "MEZ_EDGE_LISTEN")]
    listen: SocketAddr,
    /// Address and port for applications on other hosts (gRPC over TLS), or `off`
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::GRPC)), env = "MEZ_EDGE_GRPC")]
    grpc: Port,
    /// Address and port for the enrolment of new devices (TLS), or `off`. Only used on the host where the site was made
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::ENROL)), env = "MEZ_EDGE_ENROL")]
    enrol: Port,
    /// Address and port of the page with its data, of health and of metrics (HTTPS); `on` means 127.0.0.1:7653; or `off`
    #[arg(long, value_name = "ADDRESS:PORT|on|off", default_value_t = Web(None), num_args = 0..=1, default_missing_value = "on", env = "MEZ_EDGE_WEB")]
    web: Web,
    /// File with a token for reading metrics without a certificate (`Authorization: Bearer TOKEN`): one line of 16 to 1024 characters
    #[arg(long, value_name = "FILE", env = "MEZ_EDGE_SCRAPE_TOKEN_FILE")]
    scrape_token_file: Option<PathBuf>,
    /// Header in which a reverse proxy gives the name of the user, such as X-Remote-User, for the page and its data. This user has the rights of the application app/proxy/NAME. Needs web_proxy_from
    #[arg(long, value_name = "HEADER", env = "MEZ_EDGE_WEB_PROXY_HEADER")]
    web_proxy_header: Option<ProxyHeaderName>,
    /// Who may send this header: `loopback` (every program on this host), or the application whose certificate the proxy has, such as app/gateway; may be repeated. If others send the header, the edge refuses the request
    #[arg(long, value_name = "loopback|app/NAME", env = "MEZ_EDGE_WEB_PROXY_FROM", value_delimiter = ',')]
    web_proxy_from: Vec<ProxySender>,
    /// How many days before the end of a certificate the edge sends the event `ends_soon`
    #[arg(long, value_name = "DAYS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=36_500), env = "MEZ_EDGE_EVENT_CERTIFICATE_DAYS")]
    event_certificate_days: u32,
    /// If more records of a camera than this wait for a group of readers, the edge sends the event `behind`; and `ok` when at most half of that wait
    #[arg(long, value_name = "N", default_value_t = EventBounds::default().lag_records_max, value_parser = clap::value_parser!(u64).range(1..), env = "MEZ_EDGE_EVENT_LAG_RECORDS")]
    event_lag_records: u64,
    /// Announce this edge on the local network (multicast DNS), with its site's name and its ports. Then cameras and applications of the site find it without --edge
    #[arg(long, env = "MEZ_EDGE_ANNOUNCE")]
    announce: bool,
    /// Who renews certificates: the Unix socket of `mez keys serve --signer` (unix:///PATH), or another edge of the site (HOST). Then this edge
    /// does not use the authority's key, does not enrol devices, and needs its own identity [default: this edge, if it finds the authority's key]
    #[arg(long, value_name = "unix:///PATH|HOST", env = "MEZ_EDGE_SIGNER", value_parser = parse_signer)]
    signer: Option<Address>,
    /// Unix socket for applications on this host [default: edge.sock in /run/mez for root, else in $XDG_RUNTIME_DIR/mez or ~/.cache/mez]
    #[arg(long, value_name = "PATH", env = "MEZ_EDGE_SOCKET")]
    socket: Option<PathBuf>,
    /// Memory for the frames of all cameras together. If it is full, the oldest frames are dropped
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_room, env = "MEZ_EDGE_MEMORY_BYTES")]
    memory_bytes: u64,
    /// Maximum number of cameras
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = parse_count, env = "MEZ_EDGE_CAMERAS_MAX")]
    cameras_max: usize,
    /// The edge forgets a camera that is absent for this long, such as 7d, or `never`. It does not forget a camera while its disk holds frames of it, or a subscription names it without a pattern
    #[arg(long, value_name = "TIME|never", default_value = "7d", env = "MEZ_EDGE_FORGET_AFTER")]
    forget_after: Age,
    /// Maximum size of a frame
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_frame_bytes, env = "MEZ_EDGE_FRAME_BYTES_MAX")]
    frame_bytes_max: u32,
    /// Decoder that makes still images of video: software (H.264 in this process; H.265 and AV1 by ffmpeg), a hardware decoder through ffmpeg (v4l2m2m, vaapi, cuda), ffmpeg's own decoders (ffmpeg), or auto (the first hardware decoder that works and is faster than software)
    #[arg(long, value_name = "DECODER", default_value_t = DecoderChoice::Software, env = "MEZ_EDGE_DECODER")]
    decoder: DecoderChoice,
    /// Folder for state that the broker needs at its next start [default: /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR", env = "MEZ_STATE")]
    state: Option<PathBuf>,
    /// Folder with profiles that applications can use by name [default: profiles in the folder of --state]
    #[arg(long, value_name = "DIR", env = "MEZ_EDGE_PROFILES")]
    profiles: Option<PathBuf>,
    /// Cameras that share a channel, such as a radio cell. Mez divides the channel: by default it maximises the accuracy of the worst camera; with `NAME:sum=…` the sum of accuracies; with `NAME:bandwidth=…` all cameras get the same bandwidth. May be repeated
    #[arg(long = "channel", value_name = "NAME=PATTERN,…", env = "MEZ_EDGE_CHANNEL", value_delimiter = ';')]
    channels: Vec<DeclaredChannel>,
    /// Maximum size of the audit log, which `mez keys audit` prints
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_room, env = "MEZ_EDGE_AUDIT_BYTES")]
    audit_bytes: u64,
    /// How long the audit log keeps records
    #[arg(long, value_name = "TIME", default_value = "400d", value_parser = parse_period, env = "MEZ_EDGE_AUDIT_AGE")]
    audit_age: Duration,
    #[command(flatten)]
    persist: PersistArgs,
    /// Keep only frames on disk, no notes (replies of applications, states of contracts and sources) [default: with --store, notes are kept
    /// in a sixteenth of --store-bytes]
    #[arg(long, help_heading = "Frames on disk", env = "MEZ_EDGE_NO_NOTES")]
    no_notes: bool,
    /// If at least this many programs on this host decode a camera's video, the edge decodes it once for all of them; `off`: each program decodes by itself
    #[arg(long, value_name = "N|off", default_value_t = SharedFrom(ApiLimits::default().shared_pictures_from), env = "MEZ_EDGE_SHARED_PICTURES_FROM")]
    shared_pictures_from: SharedFrom,
    /// Where the edge decodes for several programs of this host: in a separate process, which it starts when needed, or in its own process
    #[arg(long, value_name = "WHERE", value_enum, default_value_t, env = "MEZ_EDGE_SHARED_PICTURES_IN")]
    shared_pictures_in: SharedIn,
    #[command(flatten)]
    limits: LimitArgs,
}

/// The number of programs from which on their pictures are shared. 0: never.
#[derive(Clone, Copy, Debug)]
struct SharedFrom(usize);

/// Where shared pictures are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum SharedIn {
    /// In a separate process.
    #[default]
    Process,
    /// In the edge's process.
    Edge,
}

impl FromStr for SharedFrom {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(0)),
            _ => parse_count(text).map(Self).map_err(|error| format!("{error}; or off")),
        }
    }
}

impl std::fmt::Display for SharedFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("off") } else { self.0.fmt(f) }
    }
}

/// How long a camera may be absent. `None`: forever.
#[derive(Clone, Copy, Debug)]
struct Age(Option<Duration>);

impl FromStr for Age {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self(None)),
            _ => parse_period(text).map(|age| Self(Some(age))).map_err(|error| format!("{error}; or never")),
        }
    }
}

/// The address of the page, if it is served.
#[derive(Clone, Copy, Debug)]
struct Web(Option<SocketAddr>);

impl FromStr for Web {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            "on" => Ok(Self(Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), ports::WEB)))),
            _ => text
                .parse()
                .map(|address| Self(Some(address)))
                .map_err(|_| "write ADDRESS:PORT, such as [::]:7653, or on, or off".into()),
        }
    }
}

impl std::fmt::Display for Web {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("off"),
        }
    }
}

/// An address to listen on, or `off`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Port {
    On(SocketAddr),
    Off,
}

impl Port {
    pub(crate) fn address(self) -> Option<SocketAddr> {
        match self {
            Self::On(address) => Some(address),
            Self::Off => None,
        }
    }
}

impl FromStr for Port {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ => text
                .parse()
                .map(Self::On)
                .map_err(|_| "write ADDRESS:PORT, such as 0.0.0.0:7651, or off".into()),
        }
    }
}

impl std::fmt::Display for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::On(address) => address.fmt(f),
            Self::Off => f.write_str("off"),
        }
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, such as 0.0.0.0:7650 or [::]:7650".into())
}

fn parse_signer(text: &str) -> Result<Address, String> {
    // As an edge's address this means the edge of this host, which is this process.
    if text.trim().trim_end_matches('/') == "unix:" {
        return Err(
            "name the socket of `mez keys serve --signer`, such as unix:///run/mez/signer.sock".into()
        );
    }
    Address::parse(text, Which::Edge).map_err(|error| error.to_string())
}

pub(crate) fn every_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

impl OfRole for EdgeArgs {
    const ROLE: Role = Role::Edge;

    const RELOADED: &'static [(&'static str, Take<Self>)] = &[
        ("forget_after", |args, new| args.forget_after = new.forget_after),
        ("channel", |args, new| args.channels.clone_from(&new.channels)),
        ("connections_per_principal_max", |args, new| args.limits.take_connections(&new.limits)),
        ("subscriptions_max", |args, new| args.limits.take_subscriptions(&new.limits)),
        ("subscriptions_per_principal_max", |args, new| args.limits.take_subscriptions_of_one(&new.limits)),
        ("unread_bytes_max", |args, new| args.limits.take_unread(&new.limits)),
        ("unread_bytes_per_principal_max", |args, new| args.limits.take_unread_of_one(&new.limits)),
        ("unread_patience", |args, new| args.limits.take_patience(&new.limits)),
        ("past_bytes_per_second", |args, new| args.limits.take_past(&new.limits)),
        ("shared_pictures_from", |args, new| args.shared_pictures_from = new.shared_pictures_from),
        ("shared_pictures_in", |args, new| args.shared_pictures_in = new.shared_pictures_in),
    ];

    fn contradictions(&self, given: &dyn Fn(&str) -> bool) -> Contradictions {
        let mut found = self.persist.contradictions(given);
        if self.no_notes && !self.persist.is_on() {
            found.push((
                "no_notes",
                "notes are kept only with frames on disk; name a folder with store, or leave this setting out".into(),
            ));
        }
        if let Err(error) = Channels::new(self.channels.clone()) {
            found.push(("channel", error.to_string()));
        }
        if self.scrape_token_file.is_some() && self.web.0.is_none() {
            let why =
                "metrics are served at the port of web, which is off; turn web on, or leave this setting out";
            found.push(("scrape_token_file", why.into()));
        }
        for key in ["event_certificate_days", "event_lag_records"] {
            if given(key) && self.web.0.is_none() {
                let why = "events are served at the port of web, which is off; turn web on, or leave this setting out";
                found.push((key, why.into()));
            }
        }
        found.extend(self.proxy_faults());
        if self.announce && self.listen.ip().to_canonical().is_loopback() {
            let why = "the edge listens only on loopback, where no other host can reach it; give listen another address, or leave this setting out";
            found.push(("announce", why.into()));
        }
        let ports = [
            ("listen", Some(self.listen)),
            ("grpc", self.grpc.address()),
            ("enrol", self.enrol.address()),
            ("web", self.web.0),
        ];
        for (place, (key, address)) in ports.iter().enumerate() {
            // With port 0 the system chooses different ports.
            let same = |(_, other): &&(&str, Option<SocketAddr>)| {
                other.is_some() && other == address && address.is_some_and(|address| address.port() != 0)
            };
            if let Some((other, _)) = ports[..place].iter().find(same) {
                found.push((
                    key,
                    format!("{other} has the same address and port; choose another port, or off"),
                ));
            }
        }
        if u64::from(self.frame_bytes_max) > self.memory_bytes && given("frame_bytes_max") {
            found.push((
                "frame_bytes_max",
                "a frame may not be larger than memory_bytes; reduce frame_bytes_max, or increase memory_bytes"
                    .into(),
            ));
        }
        found.extend(self.limits.faults(given));
        found
    }

    fn computed(&self) -> Vec<(&'static str, String)> {
        let shown = |path: PathBuf| path.display().to_string();
        let state = mez_node::state::folder(self.state.as_deref()).ok();
        let known = [
            ("keys", KeyFolder::location(self.keys.as_deref()).ok()),
            ("socket", Some(default_path(Which::Edge))),
            ("profiles", state.as_ref().map(|state| state.join("profiles"))),
            ("state", state.clone()),
        ];
        known.into_iter().filter_map(|(key, path)| Some((key, shown(path?)))).collect()
    }
}

impl EdgeArgs {
    fn options(&self, itself: Itself) -> Result<EdgeProcessOptions, Failure> {
        let keys = KeyFolder::find(self.keys.as_deref())?;
        let keys = if self.signer.is_some() { keys.without_authority_key() } else { keys };
        let persist = self.persist.options(self.keys.as_deref())?;
        Ok(EdgeProcessOptions {
            credentials: keys.edge_credentials(self.name.as_ref(), &self.dns)?,
            keys,
            listen: self.listen,
            grpc: self.grpc.address(),
            enrol: self.enrol.address(),
            socket: Some(self.socket.clone().unwrap_or_else(|| default_path(Which::Edge))),
            web: self.web()?,
            announce: self.announce.then_some(Network::LOCAL),
            config: EdgeConfig {
                log_bytes_max: self.memory_bytes,
                cameras_max: self.cameras_max,
                frame_bytes_max: self.frame_bytes_max,
                channels: Channels::new(self.channels.clone())?,
                forget_after: self.forget_after.0,
                ..EdgeConfig::default()
            },
            state: self.state.clone(),
            profiles: self.profiles.clone(),
            signer: self.signer.clone(),
            rights: None,
            audit: Rotation::new(self.audit_bytes, self.audit_age),
            persist: persist.map(|persist| PersistOptions { notes: !self.no_notes, ..persist }),
            limits: self.api_limits(),
            decoders: Decoders::start(self.decoder),
            pictures: self.pictures(itself),
        })
    }

    fn web(&self) -> Result<Option<WebOptions>, Failure> {
        let Some(listen) = self.web.0 else { return Ok(None) };
        let scrape_token = self.scrape_token_file.as_deref().map(ScrapeToken::read).transpose()?;
        let from = self.web_proxy_from.clone();
        let proxy = self.web_proxy_header.clone().map(|name| ProxyHeader { name, from });
        let events = EventBounds {
            certificate_ends_within: Duration::from_secs(u64::from(self.event_certificate_days) * 86_400),
            lag_records_max: self.event_lag_records,
        };
        Ok(Some(WebOptions { scrape_token, proxy, assets: PAGE, events, ..WebOptions::new(listen) }))
    }

    fn proxy_faults(&self) -> Contradictions {
        let (has_header, has_sender) = (self.web_proxy_header.is_some(), !self.web_proxy_from.is_empty());
        let mut found = Contradictions::new();
        if has_header && !has_sender {
            let why = "nobody may send this header, so every request with it is refused; name the sender with web_proxy_from, or leave this setting out";
            found.push(("web_proxy_header", why.into()));
        }
        if has_sender && !has_header {
            let why = "the header that these senders may send is not named; name it with web_proxy_header, or leave this setting out";
            found.push(("web_proxy_from", why.into()));
        }
        if has_header && self.web.0.is_none() {
            let why =
                "proxies connect to the port of web, which is off; turn web on, or leave this setting out";
            found.push(("web_proxy_header", why.into()));
        }
        found
    }

    fn pictures(&self, itself: Itself) -> PictureService {
        let pictures = PictureService::new(itself.with(crate::DECODE_PICTURES));
        pictures.set_on(self.shared_pictures_in == SharedIn::Process);
        pictures
    }

    fn api_limits(&self) -> ApiLimits {
        ApiLimits { shared_pictures_from: self.shared_pictures_from.0, ..self.limits.limits() }
    }

    /// The settings that can change while the edge runs.
    fn changes(&self) -> Result<EdgeChanges, Failure> {
        Ok(EdgeChanges {
            limits: self.api_limits(),
            forget_after: self.forget_after.0,
            channels: Channels::new(self.channels.clone())?,
            pictures_beside: self.shared_pictures_in == SharedIn::Process,
        })
    }
}

pub(crate) fn run(typed: &Typed, itself: Itself) -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let mut in_force = config::begin::<EdgeArgs>(typed)?;
    let options = in_force.args.options(itself)?;
    block_on(async {
        let process = EdgeProcess::start(options).await?;
        println!("ready {process}");
        let reload = async || {
            let Some(changes) = config::reload(&mut in_force, typed).map(EdgeArgs::changes) else { return };
            match changes {
                // An error means that the edge is ending.
                Ok(changes) => drop(process.change(changes).await),
                Err(failure) => tracing::error!("{failure}"),
            }
        };
        until_stopped_reloading(std::future::pending::<()>(), reload).await?;
        process.stop().await;
        Ok(())
    })?
}
