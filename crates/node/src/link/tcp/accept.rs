//! The edge's side of a TCP link.

use std::pin::pin;

use mez_core::broker::LinkId;
use tokio::io::{AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::receive::Receiver;
use super::send::{Over, Sender};
use super::{STOPS_MAX, Side};
use crate::identity::door::Pass;
use crate::link::{CLOSE_TIME_MAX, CommandSender, EdgeEvent, Shown};

/// Serves a connection until it ends.
pub(in crate::link) async fn serve(
    link: LinkId,
    stream: TlsStream<TcpStream>,
    shown: Shown,
    events: mpsc::Sender<EdgeEvent>,
    pass: Pass,
) {
    let (commands, receiver) = CommandSender::channel();
    // A connection that has already ended has no peer address.
    let Ok(from) = stream.get_ref().0.peer_addr() else { return };
    if events.send(EdgeEvent::Connected(link, shown, from.ip(), commands)).await.is_err() {
        return;
    }
    let (reader, writer) = split(stream);
    let (stop, stops) = mpsc::channel(STOPS_MAX);
    let (said, dropped) = pass.until_said();
    let mut sender = Sender::new(link, Side::Edge, &events, writer);
    let mut read = Receiver::new(link, Side::Edge, &events, (stop, Some(said)), reader);
    let (reason, mut reader) = {
        let mut writing = pin!(sender.run(receiver, stops));
        let reason = tokio::select! {
            over = &mut writing => Ok(over),
            dropped = dropped => Err(dropped.to_string()),
            reason = read.run() => Err(reason),
        };
        // Dropping the receiver closes `stops`, so the sender ends after the broker's last messages, such as the reason for a refusal.
        let reader = read.into_reader();
        let reason = match reason {
            Ok(Over::Write(error)) => error.to_string(),
            Ok(Over::Asked(reason)) => reason,
            Err(reason) => {
                let _ = tokio::time::timeout(CLOSE_TIME_MAX, writing).await;
                reason
            }
        };
        (reason, reader)
    };
    debug!(?link, reason, "a connection ended");
    // Closing a socket with unread bytes would discard the last messages.
    let farewell = async {
        sender.writer.shutdown().await?;
        tokio::io::copy(&mut reader, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(CLOSE_TIME_MAX, farewell).await;
    let _ = events.send(EdgeEvent::Closed(link, reason)).await;
}
