//! NATS at its best for one camera. The publisher connects to the server at the edge by TLS, without a broker in between, or to
//! a server on its own host by plain TCP. The subscriber is on the edge server's host, and connects by plain TCP.

use std::error::Error;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use async_nats::ConnectOptions;
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

#[path = "../../../../crates/emulator/src/pace.rs"]
mod pace;
#[path = "../../../measure/src/stamp.rs"]
mod stamp;

type Failure = Box<dyn Error + Send + Sync>;

const USAGE: &str = "write one of:
  publish ADDRESS [KEYS]     by TLS, where there are keys
  subscribe ADDRESS";
const SUBJECT: &str = "bench.cam";
const RECEIPTS_MAX: usize = 4096;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["publish", address] => publish(address, None),
        ["publish", address, keys] => publish(address, Some(Path::new(keys))),
        ["subscribe", address] => subscribe(address),
        _ => Err(USAGE.into()),
    }
}

/// A runtime with as many threads as in Mez's programs.
fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

fn publish(address: &str, keys: Option<&Path>) -> Result<(), Failure> {
    let runtime = runtime()?;
    let mut options = ConnectOptions::new();
    if let Some(keys) = keys {
        options = options
            .require_tls(true)
            .add_root_certificates(keys.join("authority.pem"))
            .add_client_certificate(keys.join("client.pem"), keys.join("client.key"));
    }
    let client = runtime.block_on(options.connect(address))?;
    let largest = client.server_info().max_payload;
    eprintln!("nats: connected to {address}; payloads up to {largest} bytes");
    // `publish` returns once the client has the frame; a task of the client writes the frame.
    let send = |frame: Vec<u8>| {
        runtime.block_on(client.publish(SUBJECT, frame.into())).map_err(|error| error.to_string())
    };
    stamp::publish(send)?;
    Ok(())
}

fn subscribe(address: &str) -> Result<(), Failure> {
    let runtime = runtime()?;
    let client = runtime.block_on(ConnectOptions::new().connect(address))?;
    let (sender, receipts) = sync_channel(RECEIPTS_MAX);
    let mut open = Vec::new();
    let subscribe = |count: usize| {
        open.truncate(count);
        while open.len() < count {
            let (index, sender) = (open.len(), sender.clone());
            let subscribed =
                runtime.block_on(client.subscribe(SUBJECT)).map_err(|error| error.to_string())?;
            let follow = async move {
                let mut subscriber = subscribed;
                while let Some(message) = subscriber.next().await {
                    let received_ns = pace::now_ns();
                    let receipt =
                        stamp::Receipt { subscription: index, received_ns, payload: message.payload };
                    if sender.try_send(receipt).is_err() {
                        eprintln!("nats: a frame was dropped: frames arrive faster than they are compared");
                    }
                }
            };
            open.push(Task(runtime.spawn(follow)));
        }
        // The server must know the subscriptions before any frame is sent.
        runtime.block_on(client.flush()).map_err(|error| error.to_string())
    };
    stamp::subscribe(&receipts, subscribe)?;
    Ok(())
}

/// A task that ends with its owner.
struct Task(tokio::task::JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
