//! Receives frames over QUIC: a camera's frames at the edge, and an edge's answers at the camera.

use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::units::Instant;
use mez_core::wire::{FRAME_HEADER_BYTES_MAX, FrameHeader};
use quinn::{Connection, RecvStream};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::StreamExt;
use tracing::debug;

use super::LinkEvent;
use super::quic::STOP_REFUSED;
use crate::clock::monotonic_now;
use crate::memory::buffer;

/// The shortest time between two progress events of a frame.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(10);

/// Receives all frames of a connection until it is closed and all that has arrived is taken.
///
/// One task receives all frames, in the order in which they were sent. With several tasks, the runtime
/// would run that of the newest frame first, and this frame would displace all others of a burst.
pub(super) async fn receive_frames<E: LinkEvent>(
    link: LinkId,
    connection: Connection,
    events: mpsc::Sender<E>,
) {
    let mut receiving = FuturesUnordered::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => match stream {
                Ok(stream) => receiving.push(receive_frame(link, stream, &events)),
                Err(_) => break,
            },
            Some(()) = receiving.next() => {}
        }
    }
    while receiving.next().await.is_some() {}
}

/// Receives one frame. Allocates nothing for the payload before the broker has accepted its size.
async fn receive_frame<E: LinkEvent>(link: LinkId, mut stream: RecvStream, events: &mpsc::Sender<E>) {
    let header = match read_header(&mut stream).await {
        Ok(header) => header,
        Err(reason) => {
            debug!(?link, reason, "the header of a frame cannot be parsed");
            let _ = stream.stop(STOP_REFUSED);
            return;
        }
    };
    let (frame, history, bytes) = (header.meta.id, header.history, header.payload_bytes as usize);
    let (answer, agreed) = oneshot::channel();
    if events.send(E::header(link, Box::new(header), answer)).await.is_err() {
        return;
    }
    match agreed.await {
        Ok(Ok(())) => {}
        Ok(Err(refused)) => {
            debug!(?link, %frame, %refused, "refused a frame");
            let _ = stream.stop(STOP_REFUSED);
            return;
        }
        Err(_) => return,
    }
    let mut payload = buffer(bytes);
    let mut reported = None;
    let complete = loop {
        match stream.read_chunk(bytes - payload.len() + 1, true).await {
            Ok(Some(chunk)) if payload.len() + chunk.bytes.len() <= bytes => {
                payload.extend_from_slice(&chunk.bytes);
                if history == 0 {
                    report_progress(link, frame, payload.len(), &mut reported, events).await;
                }
            }
            Ok(None) => break payload.len() == bytes,
            Ok(Some(_)) | Err(_) => break false,
        }
    };
    if !complete {
        let _ = stream.stop(STOP_REFUSED);
    }
    let payload = complete.then(|| payload.freeze());
    let _ = events.send(E::received(link, frame, history, payload)).await;
}

/// Reports the number of payload bytes so far, at most once per [`PROGRESS_INTERVAL`]. The first bytes are always reported.
pub(super) async fn report_progress<E: LinkEvent>(
    link: LinkId,
    frame: FrameId,
    bytes: usize,
    reported: &mut Option<Instant>,
    events: &mpsc::Sender<E>,
) {
    let now = monotonic_now();
    if reported.is_none_or(|reported| now.saturating_since(reported) >= PROGRESS_INTERVAL) {
        *reported = Some(now);
        if let Some(progress) = E::progress(link, frame, bytes as u32) {
            let _ = events.send(progress).await;
        }
    }
}

async fn read_header(stream: &mut RecvStream) -> Result<FrameHeader, String> {
    let mut bytes = [0; FRAME_HEADER_BYTES_MAX];
    stream.read_exact(&mut bytes[..2]).await.map_err(|error| error.to_string())?;
    let length = FrameHeader::length([bytes[0], bytes[1]]).map_err(|error| error.to_string())?;
    stream.read_exact(&mut bytes[2..length]).await.map_err(|error| error.to_string())?;
    FrameHeader::decode(&bytes[..length]).map_err(|error| error.to_string())
}
