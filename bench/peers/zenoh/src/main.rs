//! Zenoh at its best for one camera. The publisher connects to the router at the edge by TLS, without a router in between. The
//! subscriber is on the router's host, and uses a Unix socket or shared memory.
//!
//! The router is a session in router mode without plugins, like `zenohd`.

use std::error::Error;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::sync_channel;

use zenoh::bytes::ZBytes;
use zenoh::qos::{CongestionControl, Priority};
use zenoh::{Config, Session, Wait};

#[path = "../../../../crates/emulator/src/pace.rs"]
mod pace;
#[path = "../../../measure/src/stamp.rs"]
mod stamp;

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "write one of:
  router TLS_ADDRESS LOCAL_ENDPOINT KEYS SHARED_MEMORY(true|false)
  publish TLS_ADDRESS KEYS EXPRESS(true|false)
  subscribe LOCAL_ENDPOINT SHARED_MEMORY(true|false)";
const KEY: &str = "bench/cam";
const RECEIPTS_MAX: usize = 4096;
/// The value that Zenoh's documentation recommends for large messages.
const RECEIVE_BUFFER_BYTES: usize = 16 << 20;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["router", address, local, keys, shared_memory] => {
            router(address, local, Path::new(keys), shared_memory)
        }
        ["publish", address, keys, express] => publish(address, Path::new(keys), express.parse()?),
        ["subscribe", local, shared_memory] => subscribe(local, shared_memory),
        _ => Err(USAGE.into()),
    }
}

/// A session that connects only to the named endpoints.
fn open(mode: &str, settings: &[(&str, String)]) -> Result<Session, Failure> {
    let mut config = Config::default();
    let common = [
        ("mode", format!("{mode:?}")),
        ("scouting/multicast/enabled", "false".into()),
        ("scouting/gossip/enabled", "false".into()),
        ("transport/link/rx/buffer_size", RECEIVE_BUFFER_BYTES.to_string()),
    ];
    for (name, value) in common.iter().chain(settings) {
        config.insert_json5(name, value)?;
    }
    zenoh::open(config).wait()
}

fn file(keys: &Path, name: &str) -> String {
    format!("{:?}", keys.join(name).display().to_string())
}

fn router(address: &str, local: &str, keys: &Path, shared_memory: &str) -> Result<(), Failure> {
    let session = open(
        "router",
        &[
            ("listen/endpoints", format!(r#"["tls/{address}", {local:?}]"#)),
            ("transport/shared_memory/enabled", shared_memory.into()),
            ("transport/link/tls/root_ca_certificate", file(keys, "authority.pem")),
            ("transport/link/tls/listen_certificate", file(keys, "server.pem")),
            ("transport/link/tls/listen_private_key", file(keys, "server.key")),
            ("transport/link/tls/enable_mtls", "true".into()),
        ],
    )?;
    println!("ready {}", session.zid());
    // Until the standard input ends.
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

fn publish(address: &str, keys: &Path, express: bool) -> Result<(), Failure> {
    let session = open(
        "client",
        &[
            ("connect/endpoints", format!(r#"["tls/{address}"]"#)),
            // Shared memory would bypass the link.
            ("transport/shared_memory/enabled", "false".into()),
            ("transport/link/tls/root_ca_certificate", file(keys, "authority.pem")),
            ("transport/link/tls/connect_certificate", file(keys, "client.pem")),
            ("transport/link/tls/connect_private_key", file(keys, "client.key")),
            ("transport/link/tls/enable_mtls", "true".into()),
        ],
    )?;
    let publisher = session
        .declare_publisher(KEY)
        // By default, a frame is dropped if the queues have no room for it at once.
        .congestion_control(CongestionControl::Block)
        .priority(Priority::RealTime)
        .express(express)
        .wait()?;
    stamp::publish(|frame| publisher.put(frame).wait().map_err(|error| error.to_string()))?;
    Ok(())
}

fn subscribe(local: &str, shared_memory: &str) -> Result<(), Failure> {
    let session = open(
        "client",
        &[
            ("connect/endpoints", format!("[{local:?}]")),
            ("transport/shared_memory/enabled", shared_memory.into()),
        ],
    )?;
    let (sender, receipts) = sync_channel(RECEIPTS_MAX);
    let mut open = Vec::new();
    let subscribe = |count: usize| {
        open.truncate(count);
        while open.len() < count {
            let (index, sender) = (open.len(), sender.clone());
            let took = move |sample: zenoh::sample::Sample| {
                let received_ns = pace::now_ns();
                let payload = Whole { pieces: sample.payload().clone(), whole: OnceLock::new() };
                if sender.try_send(stamp::Receipt { subscription: index, received_ns, payload }).is_err() {
                    eprintln!("zenoh: a frame was dropped: frames arrive faster than they are compared");
                }
            };
            let subscriber = session.declare_subscriber(KEY).callback(took).wait();
            open.push(subscriber.map_err(|error| error.to_string())?);
        }
        Ok(())
    };
    stamp::subscribe(&receipts, subscribe)?;
    Ok(())
}

/// A payload that may arrive in pieces. The pieces are joined when the payload is compared. This is not timed, in Zenoh's favour,
/// although a decoder would need the joined payload.
struct Whole {
    pieces: ZBytes,
    whole: OnceLock<Vec<u8>>,
}

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.whole.get_or_init(|| self.pieces.to_bytes().into_owned())
    }
}
