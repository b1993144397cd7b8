//! Publishes and subscribes like a user's Rust program, driven by [`super::stamp`].

use std::path::PathBuf;
use std::pin::pin;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use mez_core::broker::Published;
use mez_core::frame::Encoding;
use mez_core::log::LogConfig;
use mez_core::name::{CameraName, CameraPattern};
use mez_node::background::{Background, Task};
use mez_node::camera::{CameraBroker, CameraOptions, Transport};
use mez_node::client::{
    Address, ClientOptions, EdgeClient, Event, PublisherClient, PublisherEvent, PublisherOptions,
    SubscribeOptions, Which,
};
use mez_node::identity::{Credentials, KeyFolder, Name, Role};
use mez_node::ports::EdgeAddress;

use super::stamp::{self, Receipt};
use crate::Failure;
use crate::pace::now_ns;

/// Maximum time that a broker may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of stamped frames that wait to be compared.
const RECEIPTS_MAX: usize = 4096;

/// Publish bursts of frames through a camera broker
#[derive(Debug, Args)]
pub struct PublishArgs {
    /// The camera broker: unix:///PATH
    #[arg(long, value_name = "BROKER")]
    broker: String,
    #[command(flatten)]
    pixels: PixelArgs,
}

/// What is told of the payloads.
#[derive(Clone, Copy, Debug, Args)]
struct PixelArgs {
    /// Pixels in a row of the payloads
    #[arg(long, value_name = "PIXELS")]
    width: u32,
    /// Rows of the payloads
    #[arg(long, value_name = "PIXELS")]
    height: u32,
}

impl PixelArgs {
    fn frame(self, payload: Vec<u8>) -> Published {
        let Self { width, height } = self;
        Published { payload: payload.into(), encoding: Encoding::Jpeg, width, height, captured: None }
    }
}

/// Publish bursts of frames through a camera broker in the same process, as Python's `mez.publisher(NAME, edge=…)` has it
#[derive(Debug, Args)]
pub struct PublishWithinArgs {
    /// The camera's name
    #[arg(long, value_name = "NAME")]
    camera: CameraName,
    /// Where it dials
    #[arg(long, value_name = "HOST:PORT")]
    edge: String,
    /// Over what
    #[arg(long, value_name = "WAY", value_parser = parse_transport)]
    link: Transport,
    /// Folder of keys
    #[arg(long, value_name = "DIR")]
    keys: PathBuf,
    /// Folder of state
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// How much memory the frames may take
    #[arg(long, value_name = "BYTES")]
    memory_bytes: u64,
    #[command(flatten)]
    pixels: PixelArgs,
}

fn parse_transport(text: &str) -> Result<Transport, String> {
    match text {
        "auto" => Ok(Transport::Auto),
        "quic" => Ok(Transport::Quic),
        "tcp" => Ok(Transport::Tcp),
        _ => Err("write auto, quic or tcp".into()),
    }
}

pub(crate) fn publish_within(args: PublishWithinArgs) -> Result<(), Failure> {
    let background = Background::start()?;
    let edge = EdgeAddress::parse(&args.edge)
        .ok_or_else(|| Failure::from(format!("--edge {}: write HOST:PORT", args.edge)))?;
    let name: Name = args.camera.as_str().parse()?;
    let credentials = KeyFolder::find(Some(&args.keys))?.credentials(Role::Camera, Some(&name))?;
    let options = CameraOptions {
        transport: args.link,
        log: LogConfig::with_bytes_max(args.memory_bytes),
        state: Some(args.state),
        ..CameraOptions::new(args.camera, vec![edge], credentials)
    };
    let camera = background.enter(|| CameraBroker::start(options))?;
    let send =
        |payload| camera.publish(args.pixels.frame(payload)).map(|_id| ()).map_err(|error| error.to_string());
    stamp::publish(send).map_err(Failure::from)
}

pub(crate) fn publish(args: PublishArgs) -> Result<(), Failure> {
    let background = Background::start()?;
    let PublishArgs { broker, pixels } = args;
    let address = Address::parse(&broker, Which::Camera)?;
    let connecting = PublisherClient::connect(address, None, None, PublisherOptions::default());
    let publisher = wait(&background, connecting)??;
    let send = |payload: Vec<u8>| {
        publisher.send(pixels.frame(payload)).map_err(|error| error.to_string())?;
        // An error of earlier frames is reported here. Otherwise it would look like a loss.
        while let Some(Some(event)) = background.wait(pin!(publisher.next_event()), Duration::ZERO) {
            match event {
                PublisherEvent::Refused { error, .. } => {
                    return Err(format!("the broker refused a frame: {error}"));
                }
                PublisherEvent::Failed { reason } | PublisherEvent::Disconnected { reason } => {
                    return Err(format!("lost the broker: {reason}"));
                }
                PublisherEvent::Accepted { .. }
                | PublisherEvent::OnDisk { .. }
                | PublisherEvent::Reply { .. }
                | PublisherEvent::Reconnected => {}
            }
        }
        Ok(())
    };
    stamp::publish(send).map_err(Failure::from)
}

/// Receive bursts of frames from an edge broker
#[derive(Debug, Args)]
pub struct SubscribeArgs {
    /// The edge broker: unix:///PATH or HOST:PORT
    #[arg(long, value_name = "EDGE")]
    edge: String,
    /// Folder of keys, for all but a Unix socket
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Which cameras
    #[arg(long, value_name = "PATTERN")]
    pattern: CameraPattern,
    /// A connection for each subscription, as separate programs would have
    #[arg(long)]
    connections: bool,
}

pub(crate) fn subscribe(args: SubscribeArgs) -> Result<(), Failure> {
    let background = Background::start()?;
    let address = Address::parse(&args.edge, Which::Edge)?;
    let credentials = match address {
        Address::Unix(_) => None,
        Address::Tcp { .. } => Some(KeyFolder::find(args.keys.as_deref())?.credentials(Role::App, None)?),
    };
    let connect = || connect(&background, &address, credentials.as_ref());
    let shared = connect().map_err(Failure::from)?;
    let (sender, receipts) = sync_channel(RECEIPTS_MAX);
    let mut open: Vec<Task> = Vec::new();
    let subscribe = |count: usize| {
        open.truncate(count);
        while open.len() < count {
            let client = if args.connections { connect()? } else { shared.clone() };
            open.push(follow(&background, client, &args.pattern, open.len(), sender.clone())?);
        }
        Ok(())
    };
    stamp::subscribe(&receipts, subscribe).map_err(Failure::from)
}

fn connect(
    background: &Background,
    address: &Address,
    credentials: Option<&Credentials>,
) -> Result<EdgeClient, String> {
    let connecting = EdgeClient::connect(vec![address.clone()], credentials, ClientOptions::default());
    wait(background, connecting).map_err(|failure| failure.to_string())?.map_err(|error| error.to_string())
}

/// Subscribes, and stamps frames when they arrive. Another thread compares their bytes.
fn follow(
    background: &Background,
    client: EdgeClient,
    pattern: &CameraPattern,
    index: usize,
    receipts: SyncSender<Receipt<Bytes>>,
) -> Result<Task, String> {
    let opening = client.subscribe(SubscribeOptions::new(pattern.clone()));
    let opened = wait(background, opening).map_err(|failure| failure.to_string())?;
    let mut subscription = opened.map_err(|error| error.to_string())?;
    Ok(background.spawn(async move {
        // The connection lives as long as the subscription.
        let _client = client;
        while let Some(event) = subscription.next().await {
            let received_ns = now_ns();
            match event {
                Event::Frame(frame) => {
                    let receipt = Receipt { subscription: index, received_ns, payload: frame.payload };
                    match receipts.try_send(receipt) {
                        Ok(()) => {}
                        // The frame counts as lost, because it is not compared.
                        Err(TrySendError::Full(_)) => {
                            eprintln!("mez: frames come faster than they are compared")
                        }
                        Err(TrySendError::Disconnected(_)) => return,
                    }
                }
                Event::Failed { reason } | Event::Disconnected { reason } => eprintln!("mez: {reason}"),
                Event::Camera { .. }
                | Event::Source { .. }
                | Event::Contract { .. }
                | Event::Waiting { .. }
                | Event::Reconnected
                | Event::Joined { .. }
                | Event::Held { .. }
                | Event::Ended { .. } => {}
            }
        }
    }))
}

fn wait<T>(background: &Background, work: impl Future<Output = T>) -> Result<T, Failure> {
    background.wait(pin!(work), PATIENCE).ok_or_else(|| Failure::from("the broker did not answer"))
}
