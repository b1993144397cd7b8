//! Sends frames over QUIC: a camera's frames, and the edge's answers.

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

/// Sends the frames of one connection, each on a stream of its own.
pub(super) struct FrameSender<E> {
    link: LinkId,
    connection: Connection,
    events: mpsc::Sender<E>,
    /// Counts what has left.
    sent: SentBytes,
    /// How to cancel the frames that are on their way.
    resets: HashMap<FrameId, oneshot::Sender<()>>,
    /// Live frames that have bytes not yet sent.
    live: Arc<watch::Sender<usize>>,
    /// How many frames of the past were sent.
    history: u32,
}

impl<E: LinkEvent> FrameSender<E> {
    /// Sends on `connection`, of which `sent` counts what has left.
    pub(super) fn new(
        link: LinkId,
        connection: Connection,
        events: mpsc::Sender<E>,
        sent: SentBytes,
    ) -> Self {
        let live = Arc::new(watch::Sender::new(0));
        Self { link, connection, events, sent, resets: HashMap::new(), live, history: 0 }
    }

    /// Sends a frame: a live one behind what older ones still have, one of the past behind all others.
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
            // The other side says how many streams there may be, and must not keep in memory what was cancelled meanwhile.
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
                // Looked at beside the writing, which waits for bytes to leave: those of a stopped stream never do, nor those of a connection that
                // is lost. That the frame was refused, and so is over, the other side says on the control stream.
                Err(_) | Ok(Some(_)) = stopped => return,
            }
            drop(sending);
            let _ = events.send(E::sent(link, frame, 0)).await;
            tokio::select! {
                // Until everything is acknowledged, what was lost is sent again, unless the frame is cancelled.
                _ = stream.stopped() => {}
                Ok(()) = &mut cancelled => {
                    let _ = stream.reset(RESET_STALE);
                    counted.give_up();
                }
            }
        });
    }

    /// Sends a frame of the past: behind everything else, and in pieces that wait while a live frame is being sent.
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
                // The edge does not want it; it is over.
                _ = stopped => {}
            }
            let _ = events.send(E::sent(link, header.meta.id, header.history)).await;
            let _ = stream.stopped().await;
        });
    }
}

/// Counts a live frame for as long as it has bytes not yet sent.
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
