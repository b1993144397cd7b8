//! Carries the requests of a camera host for its next certificate to the edge, and the answers back.

use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::wire::Message;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::driver::Driver;
use crate::identity::renew::Way;
use crate::link::Command;
use crate::ports::EdgeAddress;

/// How long a request waits for an edge.
const CONNECTED_TIME_MAX: Duration = Duration::from_secs(5);

/// A request, and the channel for its answer.
pub(super) type Asking = (Bytes, oneshot::Sender<Bytes>);

/// A camera host's way to its edge: over the link.
pub(super) struct Link {
    asks: mpsc::Sender<Asking>,
    edge: watch::Receiver<Option<EdgeAddress>>,
}

impl Link {
    /// The link, and the channel from which the broker's loop takes requests.
    pub(super) fn new(edge: watch::Receiver<Option<EdgeAddress>>) -> (Self, mpsc::Receiver<Asking>) {
        let (asks, asked) = mpsc::channel(1);
        (Self { asks, edge }, asked)
    }
}

impl Way for Link {
    async fn ask(&self, request: Bytes) -> Result<Bytes, String> {
        let mut edge = self.edge.clone();
        let connected = timeout(CONNECTED_TIME_MAX, edge.wait_for(Option::is_some)).await.is_ok();
        if !connected {
            return Err("no edge is connected".into());
        }
        let (answer, answered) = oneshot::channel();
        let stopped = |_| "the camera broker has stopped".to_owned();
        self.asks.send((request, answer)).await.map_err(stopped)?;
        answered.await.map_err(|_| "the connection to the edge was lost".into())
    }

    async fn reconnected(&mut self) -> bool {
        loop {
            tokio::select! {
                () = self.asks.closed() => return false,
                changed = self.edge.changed() => match changed {
                    Ok(()) if self.edge.borrow_and_update().is_some() => return true,
                    Ok(()) => {}
                    Err(_) => return false,
                },
            }
        }
    }
}

impl Driver {
    /// Sends a request to the edge that has the camera connected. If there is none, `answer` is dropped, which tells the asker.
    pub(super) fn ask_for_certificate(&mut self, (request, answer): Asking) {
        if let Some(link) = self.broker.link() {
            self.renewal = Some((link, answer));
            self.command(link, Command::Send(Message::RenewalRequest(request)));
        }
    }

    /// Passes on the edge's answer. `None`: the connection has ended, and the asker is told by dropping its channel.
    pub(super) fn handle_renewal(&mut self, link: LinkId, answer: Option<Bytes>) {
        if let Some((_, waiting)) = self.renewal.take_if(|(asked, _)| *asked == link)
            && let Some(answer) = answer
        {
            let _ = waiting.send(answer);
        }
    }
}
