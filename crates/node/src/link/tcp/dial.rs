//! The camera's side of a TCP link.

use std::pin::pin;

use mez_core::broker::{EdgeIndex, LinkId};
use tokio::io::{AsyncWriteExt, split};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

use super::receive::Receiver;
use super::send::{Over, Sender};
use super::{STOPS_MAX, Side};
use crate::link::dial::EdgeRevoked;
use crate::link::{CLOSE_TIME_MAX, CameraEvent, CommandSender};

/// Serves a connection until it ends.
pub(in crate::link) async fn serve(
    (link, edge): (LinkId, EdgeIndex),
    stream: TlsStream<TcpStream>,
    (events, revoked): (mpsc::Sender<CameraEvent>, EdgeRevoked),
) {
    let (commands, receiver) = CommandSender::channel();
    if events.send(CameraEvent::Dialled(link, edge, commands)).await.is_err() {
        return;
    }
    let (reader, writer) = split(stream);
    let (stop, stops) = mpsc::channel(STOPS_MAX);
    let mut sender = Sender::new(link, Side::Camera, &events, writer);
    let mut read = Receiver::new(link, Side::Camera, &events, (stop, None), reader);
    let mut reading = pin!(read.run());
    let reason = tokio::select! {
        // An edge that has ended the connection has said why, and this may not have been read yet.
        failed = sender.run(receiver, stops) => match failed {
            Over::Write(error) => {
                tokio::time::timeout(CLOSE_TIME_MAX, reading).await.unwrap_or_else(|_| error.to_string())
            }
            Over::Asked(reason) => reason,
        },
        reason = &mut reading => reason,
        reason = revoked.reason() => reason,
    };
    let _ = tokio::time::timeout(CLOSE_TIME_MAX, sender.writer.shutdown()).await;
    let _ = events.send(CameraEvent::Closed(link, reason)).await;
}
