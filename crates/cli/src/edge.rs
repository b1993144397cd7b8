//! `mez edge`: an edge broker.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use mez_core::broker::edge::EdgeConfig;
use mez_core::controller::share::{Channels, DeclaredChannel};
use mez_node::api::socket::{Which, default_path};
use mez_node::identity::{KeyFolder, Name};
use mez_node::ports;
use mez_node::process::{EdgeProcess, EdgeProcessOptions};
use mez_node::runtime::{block_on, stop_signal};

use crate::failure::Failure;
use crate::persist::PersistArgs;
use crate::text::{parse_bytes, parse_frame_bytes};

/// Run an edge broker: cameras connect to it, applications subscribe at it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mez edge                                       all defaults: cameras at UDP 7650, applications on this host
  mez edge --dns edge.example --log-bytes 4GiB   foreign clients call it edge.example; four gigabytes of frames
  mez edge --grpc off --enrol off                no applications on other hosts, no new devices
  mez edge --channel 'hall=dock/*,yard/cam1'     these cameras have one radio cell between them: share it fairly

Prints one line `ready …` on the standard output when it serves. Ends with Ctrl-C or SIGTERM.")]
pub(crate) struct EdgeArgs {
    /// Folder of keys [default: $MEZ_KEYS, else ~/.config/mez/keys]
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Name of this edge within the site [default: any edge identity in the folder, else the host's name]
    #[arg(long, value_name = "NAME")]
    name: Option<Name>,
    /// A further host name or address for foreign gRPC clients; may be repeated
    #[arg(long, value_name = "NAME")]
    dns: Vec<String>,
    /// Where cameras connect (UDP)
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = every_address(ports::LINK), env = "MEZ_EDGE_LISTEN")]
    listen: SocketAddr,
    /// Where applications on other hosts connect (TCP, TLS); `off` for none
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::GRPC)), env = "MEZ_EDGE_GRPC")]
    grpc: Port,
    /// Where new devices are enrolled (TCP, TLS), if this host made the site; `off` for nowhere
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value_t = Port::On(every_address(ports::ENROL)), env = "MEZ_EDGE_ENROL")]
    enrol: Port,
    /// Where applications on this host connect (Unix socket)
    #[arg(long, value_name = "PATH", default_value_os_t = default_path(Which::Edge), env = "MEZ_EDGE_SOCKET")]
    socket: PathBuf,
    /// How much memory the frames of all cameras may take together
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = parse_bytes, env = "MEZ_EDGE_LOG_BYTES")]
    log_bytes: u64,
    /// The most cameras
    #[arg(long, value_name = "N", default_value_t = 64)]
    cameras_max: usize,
    /// The largest frame that is accepted
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = parse_frame_bytes)]
    frame_bytes_max: u32,
    /// Folder for what is remembered between starts [default: $MEZ_STATE, /var/lib/mez for root, else ~/.local/state/mez]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Folder of profiles that applications may name [default: profiles in the folder of --state]
    #[arg(long, value_name = "DIR", env = "MEZ_EDGE_PROFILES")]
    profiles: Option<PathBuf>,
    /// Cameras that share a channel, such as a radio cell, which is then divided between them: the worst off first, or with `NAME:sum=…` where it
    /// gains most; may be repeated
    #[arg(long = "channel", value_name = "NAME=PATTERN,…", env = "MEZ_EDGE_CHANNELS", value_delimiter = ';')]
    channels: Vec<DeclaredChannel>,
    #[command(flatten)]
    persist: PersistArgs,
}

/// An address to listen on, or none.
#[derive(Clone, Copy, Debug)]
enum Port {
    On(SocketAddr),
    Off,
}

impl Port {
    fn address(self) -> Option<SocketAddr> {
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

fn every_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)
}

pub(crate) fn run(args: EdgeArgs) -> Result<(), Failure> {
    mez_node::memory::give_large_blocks_back();
    let keys = KeyFolder::find(args.keys.as_deref())?;
    let channels = Channels::new(args.channels)?;
    let options = EdgeProcessOptions {
        credentials: keys.edge_credentials(args.name.as_ref(), &args.dns)?,
        keys,
        listen: args.listen,
        grpc: args.grpc.address(),
        enrol: args.enrol.address(),
        socket: Some(args.socket),
        config: EdgeConfig {
            log_bytes_max: args.log_bytes,
            cameras_max: args.cameras_max,
            frame_bytes_max: args.frame_bytes_max,
            channels,
            ..EdgeConfig::default()
        },
        state: args.state,
        profiles: args.profiles,
        persist: args.persist.options(args.keys.as_deref())?,
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
