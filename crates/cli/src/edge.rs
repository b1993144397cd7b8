//! `mez edge`: runs an edge broker.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use mez_core::audit::Rotation;
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::{Channels, DeclaredChannel};
use mez_node::api::socket::{Which, default_path};
use mez_node::identity::{KeyFolder, Name};
use mez_node::persist::PersistOptions;
use mez_node::ports;
use mez_node::process::{EdgeProcess, EdgeProcessOptions};
use mez_node::runtime::{block_on, stop_signal};

use crate::failure::Failure;
use crate::persist::PersistArgs;
use crate::text::{parse_bytes, parse_duration, parse_frame_bytes};

/// Run an edge broker: cameras connect to it, and applications subscribe to their frames
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez edge                                       all defaults: cameras at UDP 7650, gRPC at TCP 7651
  mez edge --dns edge.example --memory-bytes 4GiB  gRPC clients dial edge.example; 4 GiB of memory for frames
  mez edge --grpc off --enrol off                no applications on other hosts, no new devices
  mez edge --channel 'hall=dock/*,yard/cam1'     these cameras share one radio cell: divide it fairly

The line `ready …` on the standard output says that the broker serves. The command ends with Ctrl-C or SIGTERM.")]
pub(crate) struct EdgeArgs {
    /// Folder with the keys of this host [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Name of this edge within the site [default: an edge identity in the folder of keys, else the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// Host name or address that gRPC clients in other languages dial; may be repeated
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// Address and port where cameras connect (UDP, and TCP on the same number)
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = every_address(ports::LINK), env = "MEZ_EDGE_LISTEN")]
    listen: SocketAddr,
    /// Address and port where applications on other hosts connect (gRPC over TLS), or `off`
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::GRPC)), env = "MEZ_EDGE_GRPC")]
    grpc: Port,
    /// Address and port where new devices enrol (TLS), if this host made the site, or `off`
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::ENROL)), env = "MEZ_EDGE_ENROL")]
    enrol: Port,
    /// Unix socket where applications on this host connect
    #[arg(long, value_name = "PATH", default_value_os_t = default_path(Which::Edge), env = "MEZ_EDGE_SOCKET")]
    socket: PathBuf,
    /// Memory for the frames of all cameras together; beyond that the oldest frames are dropped
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes, env = "MEZ_EDGE_MEMORY_BYTES")]
    memory_bytes: u64,
    /// Most cameras that may connect
    #[arg(long, value_name = "N", default_value_t = 64)]
    cameras_max: usize,
    /// How long a camera may be absent before the edge forgets it, such as 7d, or `never`. It is not forgotten while the edge's disk holds frames of it, or a subscription names it without a pattern
    #[arg(long, value_name = "TIME|never", default_value = "7d", env = "MEZ_EDGE_FORGET_AFTER")]
    forget_after: Age,
    /// Largest frame that is accepted
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_frame_bytes)]
    frame_bytes_max: u32,
    /// Folder for state, which the broker needs again at its next start [default: $MEZ_STATE, /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Folder with profiles that applications may choose by name [default: profiles in the folder of --state]
    #[arg(long, value_name = "DIR", env = "MEZ_EDGE_PROFILES")]
    profiles: Option<PathBuf>,
    /// Cameras that share a channel, such as a radio cell. Mez divides it so that the worst-off camera fares best, or with `NAME:sum=…` so that the sum of accuracies is highest; may be repeated
    #[arg(long = "channel", value_name = "NAME=PATTERN,…", env = "MEZ_EDGE_CHANNELS", value_delimiter = ';')]
    channels: Vec<DeclaredChannel>,
    /// Most bytes of the audit log, which `mez keys audit` reads
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_bytes, env = "MEZ_EDGE_AUDIT_BYTES")]
    audit_bytes: u64,
    /// How long the audit log keeps records
    #[arg(long, value_name = "TIME", default_value = "400d", value_parser = parse_duration, env = "MEZ_EDGE_AUDIT_AGE")]
    audit_age: Duration,
    #[command(flatten)]
    persist: PersistArgs,
    /// Keep only frames on disk, not the replies of applications and the changes of their contracts [default: both are kept with --store,
    /// in a sixteenth of --store-bytes]
    #[arg(long, requires = "store", help_heading = "Frames on disk")]
    no_notes: bool,
}

/// How long a camera may be absent, if that is limited.
#[derive(Clone, Copy, Debug)]
struct Age(Option<Duration>);

impl FromStr for Age {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "never" => Ok(Self(None)),
            _ => {
                parse_duration(text).map(|age| Self(Some(age))).map_err(|error| format!("{error}; or never"))
            }
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

pub(crate) fn every_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

pub(crate) fn run(args: EdgeArgs) -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let keys = KeyFolder::find(args.keys.as_deref())?;
    let channels = Channels::new(args.channels)?;
    let persist = args.persist.options(args.keys.as_deref())?;
    let options = EdgeProcessOptions {
        credentials: keys.edge_credentials(args.name.as_ref(), &args.dns)?,
        keys,
        listen: args.listen,
        grpc: args.grpc.address(),
        enrol: args.enrol.address(),
        socket: Some(args.socket),
        config: EdgeConfig {
            log_bytes_max: args.memory_bytes,
            cameras_max: args.cameras_max,
            frame_bytes_max: args.frame_bytes_max,
            channels,
            forget_after: args.forget_after.0,
            ..EdgeConfig::default()
        },
        state: args.state,
        profiles: args.profiles,
        rights: None,
        audit: Rotation::new(args.audit_bytes, args.audit_age),
        persist: persist.map(|persist| PersistOptions { notes: !args.no_notes, ..persist }),
    };
    block_on(async {
        let process = EdgeProcess::start(options).await?;
        println!("ready {process}");
        let signal = stop_signal().await?;
        tracing::info!("stopping ({signal:?})");
        process.stop().await;
        Ok(())
    })?
}
