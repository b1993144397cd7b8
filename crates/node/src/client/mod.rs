//! Connects programs to a broker: the Python package, the command, and any Rust program.
//!
//! The same calls work over a Unix socket on the broker's own host ([`crate::local`]), and over gRPC with TLS.
//!
//! | type | what it does |
//! | --- | --- |
//! | [`Address`] | where a broker is |
//! | [`EdgeClient`] | cameras, subscriptions, replies and answers at an edge broker |
//! | [`Subscription`] | delivers frames as they come; reconnects by itself |
//! | [`PublisherClient`] | publishes through a camera broker in another process, or a derived stream at an edge |
//!
//! All types need a tokio runtime. [`PublisherClient::send`] and [`EdgeClient::reply`] may be called from any thread, and never wait.

mod address;
mod answers;
mod chains;
mod checkup;
mod dial;
mod edge;
mod edges;
mod error;
mod frame;
mod groups;
mod mailbox;
mod publisher;
mod remote;
mod renewals;
mod revocations;
mod signer;
mod starts;
mod streams;
mod subscription;

use std::time::Duration;

use tracing::warn;

pub use self::address::{Address, AddressError};
pub use self::answers::{AnswerContent, AnswerCounts, AnswerError};
pub use self::checkup::{Checkup, InForce, WallDifference, checkup};
pub use self::edge::{ClientOptions, EdgeClient, PageLink, ReplyCounts, ReplyError};
pub use self::error::ClientError;
pub use self::frame::{
    CameraSummary, ChannelStanding, ClockRelation, ContractStanding, LogOnDisk, ReceivedFrame, Traffic,
};
pub use self::groups::{DeadLetter, GroupAccount, GroupLane, GroupMemberSummary, GroupSummary};
pub use self::publisher::{
    DerivedStream, PublisherClient, PublisherCounts, PublisherEvent, PublisherOptions, SendError,
};
pub(crate) use self::revocations::OtherEdge;
pub use self::signer::signer_at;
pub use self::starts::{CameraReset, CameraStart, CameraStarts, ForgottenCamera, ResetCamera};
pub use self::subscription::{
    DECODED_HERE, Event, Membership, Resume, SubscribeOptions, Subscription, SubscriptionControl,
};
pub use crate::api::contract::Profile;
pub use crate::api::socket::Which;

/// The pause between two attempts to reach a lost broker.
pub const REDIAL_INTERVAL: Duration = Duration::from_millis(250);

/// A task that ends with its owner.
#[derive(Debug)]
struct OwnedTask(tokio::task::JoinHandle<()>);

impl OwnedTask {
    fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(task))
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Calls `attempt` until it succeeds, fails permanently, or `patience` is over. Logs the first failure, so that the user knows why the program waits.
async fn persist<T>(
    patience: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut told = false;
    loop {
        match attempt().await {
            Err(error)
                if error.is_worth_waiting() && tokio::time::Instant::now() + REDIAL_INTERVAL < deadline =>
            {
                if !std::mem::replace(&mut told, true) {
                    warn!("{error}; trying for {} s", patience.as_secs_f32());
                }
                tokio::time::sleep(REDIAL_INTERVAL).await;
            }
            result => return result,
        }
    }
}
