//! Sends frames over QUIC: a camera's frames, and an edge's answers.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::frame::FrameId;
use mez_core::trace::Stage;
use mez_core::wire::FrameHeader;
use quinn::Connection;
use tokio::sync::{mpsc, oneshot, watch};

use super::quic::{RESET_STALE, history_priority, live_priority, write_frame, write_history};
use super::sent::SentBytes;
use super::{LinkEvent, UNSENT_INTERVAL};
use crate::clock::monotonic_now;

/// Sends the frames of one connection, each on its own stream.
pub(super) struct FrameSender<E> {
    link: LinkId,
    connection: Connection,
    events: mpsc::Sender<E>,
    /// Counts the bytes that have left.
    sent: SentBytes,
    /// Cancels live frames that are not acknowledged yet.
    resets: HashMap<FrameId, oneshot::Sender<()>>,
    /// The number of live frames that have unsent bytes.
    live: Arc<watch::Sender<usize>>,
    /// The number of frames of the past so far.
    history: u32,
}

impl<E: LinkEvent> FrameSender<E> {
    /// Sends on `connection`. `sent` counts its bytes that have left.
    pub(super) fn new(
        link: LinkId,
        connection: Connection,
        events: mpsc::Sender<E>,
        sent: SentBytes,
    ) -> Self {
        let live = Arc::new(watch::Sender::new(0));
        Self { link, connection, events, sent, resets: HashMap::new(), live, history: 0 }
    }

    /// Sends a frame. A live frame goes behind older live frames; a frame of the past goes behind everything.
    pub(super) fn send(&mut self, header: FrameHeader, payload: Bytes) {
        if header.history > 0 {
            self.send_history(header, payload);
        } else {
            self.send_live(header, payload);
        }
    }

    /// Cancels a live frame.
    pub(super) fn reset(&mut self, frame: FrameId) {
        if let Some(reset) = self.resets.remove(&frame) {
            let _ = reset.send(());
        }
    }

    fn send_live(&mut self, mut header: FrameHeader, payload: Bytes) {
        self.resets.retain(|_, reset| !reset.is_closed());
        let (reset, cancelled) = oneshot::channel();
        self.resets.insert(header.meta.id, reset);
        let (link, connection, events) = (self.link, self.connection.clone(), self.events.clone());
        let sent = self.sent.clone();
        let sending = Sending::begin(&self.live);
        tokio::spawn(async move {
            let (frame, payload_bytes) = (header.meta.id, payload.len() as u64);
            tokio::pin!(cancelled);
            // The other side limits the number of streams, so opening may wait. A frame that is cancelled meanwhile must not stay in memory.
            let opened = tokio::select! {
                biased;
                Ok(()) = &mut cancelled => return,
                opened = connection.open_uni() => opened,
            };
            let Ok(mut stream) = opened else { return };
            let _ = stream.set_priority(live_priority(frame.sequence));
            let stopped = stream.stopped();
            header.trace.stamp(Stage::Sent, monotonic_now());
            let sent = sent.live_frame();
            let (watched, counted) = (sent.clone(), sent.clone());
            let tell = |bytes| {
                let told = events.send(E::unsent(link, frame, bytes));
                async { drop(told.await) }
            };
            tokio::select! {
                written = write_frame(sent, &mut stream, &header, payload) => {
                    if written.is_err() {
                        return;
                    }
                }
                Ok(()) = &mut cancelled => {
                    let _ = stream.reset(RESET_STALE);
                    return;
                }
                () = watched.tell_unsent(payload_bytes, UNSENT_INTERVAL, tell) => return,
                // Watched beside the write: the write waits for bytes to leave, and those of a stopped stream or a
                // lost connection never do. The other side reports a refused frame on the control stream.
                Err(_) | Ok(Some(_)) = stopped => return,
            }
            drop(sending);
            let _ = events.send(E::sent(link, frame, 0)).await;
            tokio::select! {
                // Lost bytes are sent again until everything is acknowledged, unless the frame is cancelled.
                _ = stream.stopped() => {}
                Ok(()) = &mut cancelled => {
                    let _ = stream.reset(RESET_STALE);
                    counted.give_up();
                }
            }
        });
    }

    /// Sends a frame of the past behind everything else, in pieces that wait while a live frame is being sent.
    fn send_history(&mut self, header: FrameHeader, payload: Bytes) {
        let (link, connection, events) = (self.link, self.connection.clone(), self.events.clone());
        let (sent, live) = (self.sent.clone(), self.live.subscribe());
        let priority = history_priority(self.history);
        self.history = self.history.wrapping_add(1);
        tokio::spawn(async move {
            let Ok(mut stream) = connection.open_uni().await else { return };
            let _ = stream.set_priority(priority);
            let stopped = stream.stopped();
            tokio::select! {
                written = write_history(&sent, live, &mut stream, &header, payload) => {
                    if written.is_err() {
                        return;
                    }
                }
                // The edge does not want the frame, so it counts as sent.
                _ = stopped => {}
            }
            let _ = events.send(E::sent(link, header.meta.id, header.history)).await;
            let _ = stream.stopped().await;
        });
    }
}

/// Counts a live frame as long as it has unsent bytes.
struct Sending(Arc<watch::Sender<usize>>);

impl Sending {
    fn begin(live: &Arc<watch::Sender<usize>>) -> Self {
        live.send_modify(|frames| *frames += 1);
        Self(Arc::clone(live))
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.send_modify(|frames| *frames -= 1);
    }
}
