//! Subscriptions of a program: a mailbox that the program empties, and a task that fills it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | opens a subscription, and hands its events to the program |
//! | `options` | what a program asks for |
//! | `event` | what happens on a subscription |
//! | `event_reader` | the task that reads events, and subscribes again when the broker is lost |
//! | `decoded` | takes the pictures of decoders |
//! | `shared` | what program and task share |
//! | `terms` | changes a running subscription |

mod decoded;
mod event;
mod event_reader;
mod options;
mod shared;
mod terms;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use mez_core::name::CameraName;
use mez_core::subscription::Deliver;
use mez_core::trace::Stage;
use tokio::sync::Notify;

use self::decoded::DecodedFrames;
pub use self::event::Event;
use self::event_reader::EventReader;
pub use self::options::{Profile, Resume, SubscribeOptions};
use self::shared::{Asked, Shared};
pub use self::terms::Terms;
use super::OwnedTask;
use super::chains::ChainDecoders;
use super::dial::Dialler;
use super::edges::Edges;
use super::error::ClientError;
use super::mailbox::Mailbox;
use crate::api::pb;
use crate::clock::wall_now;

/// A subscription of a program. Dropping it unsubscribes.
///
/// A task reads all that comes without waiting for the program. With [`Deliver::Newest`] it keeps the newest frame of
/// each camera, so that what [`Subscription::next`] returns is the newest however long the program took, and counts the
/// ones in between as `application_busy`; cameras take turns. With [`Deliver::Every`] it keeps a few, and then lets the broker wait.
///
/// Per camera, frames come at most once and in order, also when the connection was lost in between.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    deliver: Deliver,
    cameras: Vec<CameraName>,
    _task: OwnedTask,
}

impl Subscription {
    pub(super) async fn open(
        edges: Edges,
        options: SubscribeOptions,
        application: &str,
        compare: Arc<Notify>,
    ) -> Result<Self, ClientError> {
        let (request, opened) = (options.message(application), wall_now());
        let (dialler, stream, started) = edges.subscribe(edges.place(), &request).await?;
        fills(&dialler, &request, &started)?;
        let deliver = match started.deliver() {
            pb::Deliver::Every => Deliver::Every,
            _ => Deliver::Newest,
        };
        let shared = Arc::new(Shared {
            mailbox: Mutex::new(Mailbox::new(deliver, options.waiting_frames_max)),
            came: Notify::new(),
            went: Notify::new(),
            // Asked anew, it has to mean the same also when the beginning has passed meanwhile.
            asked: Mutex::new(Asked {
                edge: dialler.clone(),
                id: started.subscription_id,
                request: pb::SubscribeRequest { deliver: started.deliver, ..request },
            }),
        });
        let reader = EventReader {
            edges,
            dialler,
            deliver,
            reconnect: options.reconnect,
            decoders: ChainDecoders::new(deliver == Deliver::Every, DecodedFrames::new(&shared)),
            shared: Arc::clone(&shared),
            compare,
            last: options.after,
            opened,
            untold: HashMap::new(),
        };
        let cameras = started.cameras.iter().filter_map(|camera| camera.parse().ok()).collect();
        Ok(Self { shared, deliver, cameras, _task: OwnedTask::spawn(reader.run(stream)) })
    }

    /// The cameras that matched at the start, connected or not.
    pub fn cameras(&self) -> &[CameraName] {
        &self.cameras
    }

    /// Newest or every: what was asked for, or what the broker chose.
    pub fn deliver(&self) -> Deliver {
        self.deliver
    }

    /// A handle that changes what it asks for, also while another task waits for the next event.
    pub fn terms(&self) -> Terms {
        Terms { shared: Arc::clone(&self.shared) }
    }

    /// See [`Terms::update`].
    pub async fn update(&self, options: &SubscribeOptions) -> Result<(), ClientError> {
        self.terms().update(options).await
    }

    /// What comes next; nothing after [`Event::Ended`] or [`Event::Failed`]. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.try_next() {
                return Some(event);
            }
            if self.shared.lock().is_over() {
                return None;
            }
            self.shared.came.notified().await;
        }
    }

    /// What is there now.
    pub fn try_next(&mut self) -> Option<Event> {
        let mut event = self.shared.lock().take();
        self.shared.went.notify_one();
        if let Some(Event::Frame(frame)) = &mut event {
            frame.stamp(Stage::Taken);
        }
        event
    }
}

/// Refuses an edge of an earlier version, which ignores a request to fill.
fn fills(edge: &Dialler, asked: &pb::SubscribeRequest, started: &pb::Started) -> Result<(), ClientError> {
    if asked.resume() == pb::Resume::Fill && started.resume() != pb::Resume::Fill {
        return Err(edge.protocol("a request to fill what is missing, which it has passed over"));
    }
    Ok(())
}
