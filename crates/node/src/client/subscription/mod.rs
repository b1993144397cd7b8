//! Delivers the events of a subscription to a program. A task fills a mailbox, and the program empties it.
//!
//! | file | what it does |
//! | --- | --- |
//! | `mod.rs` | opens a subscription, and hands its events to the program |
//! | `options` | the options of a subscription |
//! | `event` | the events of a subscription |
//! | `event_reader` | the task that reads events, and subscribes again when the broker is lost |
//! | `decoded` | receives the pictures of decoders |
//! | `shared` | the state that program and task share |
//! | `taken`, `reporter` | when the program took frames, and the task that reports this to the edge |
//! | `group` | which records of a group the program holds, and what is to be reported on them |
//! | `speak` | the task that sends these reports to the edge |
//! | `control` | changes a running subscription, and reports to it |

mod control;
mod decoded;
mod event;
mod event_reader;
mod group;
mod options;
mod reporter;
mod shared;
mod speak;
mod taken;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use mez_core::contract::Contract;
use mez_core::name::CameraName;
use mez_core::subscription::Deliver;
use mez_core::trace::Stage;
use tokio::sync::Notify;

pub use self::control::SubscriptionControl;
use self::decoded::DecodedFrames;
pub use self::event::Event;
use self::event_reader::EventReader;
use self::group::Member;
pub use self::group::Membership;
use self::options::check_decoders;
pub use self::options::{DECODED_HERE, Resume, SubscribeOptions};
use self::reporter::report;
use self::shared::{Opened, Shared};
use self::speak::speak;
use self::taken::TakenFrames;
use super::OwnedTask;
use super::chains::ChainDecoders;
use super::edges::Edges;
use super::error::ClientError;
use super::mailbox::Mailbox;
use crate::api::contract::Profile;
use crate::api::pb;
use crate::clock::wall_now;

/// A subscription of a program. Dropping it unsubscribes.
///
/// A task reads all messages without waiting for the program. With [`Deliver::Newest`] it keeps the newest frame of each camera.
/// So [`Subscription::next`] always returns the newest frame, however long the program took, and frames in between are counted
/// as `application_busy`. Cameras take turns. With [`Deliver::Every`] it keeps a few frames, and then lets the broker wait.
///
/// The frames of a camera come at most once and in order, even if the connection was lost in between.
#[derive(Debug)]
pub struct Subscription {
    shared: Arc<Shared>,
    deliver: Deliver,
    cameras: Vec<CameraName>,
    _tasks: [OwnedTask; 3],
}

impl Subscription {
    pub(super) async fn open(
        edges: Edges,
        options: SubscribeOptions,
        application: &str,
        compare: Arc<Notify>,
    ) -> Result<Self, ClientError> {
        check_decoders(&options.accept_encodings).await?;
        let (mut request, opened) = (options.message(application), wall_now());
        let member = options.group.map(Member::new);
        request.group = member.as_ref().map(Member::request);
        let (dialler, stream, started) = edges.subscribe(edges.place(), &request).await?;
        let deliver = match started.deliver() {
            pb::Deliver::Every => Deliver::Every,
            _ => Deliver::Newest,
        };
        let shared = Arc::new(Shared {
            mailbox: Mutex::new(Mailbox::new(deliver, options.waiting_frames_max)),
            came: Notify::new(),
            went: Notify::new(),
            // A repeated request must mean the same, even if `begin` has passed meanwhile.
            opened: Mutex::new(Opened {
                edge: dialler.clone(),
                id: started.subscription_id,
                request: pb::SubscribeRequest { deliver: started.deliver, ..request },
            }),
            member,
            taken: TakenFrames::default(),
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
            lost: BTreeSet::new(),
            opened,
            untold: HashMap::new(),
        };
        let cameras = started.cameras.iter().filter_map(|camera| camera.parse().ok()).collect();
        let tasks = [
            OwnedTask::spawn(reader.run(stream)),
            OwnedTask::spawn(report(Arc::clone(&shared))),
            OwnedTask::spawn(speak(Arc::clone(&shared))),
        ];
        Ok(Self { shared, deliver, cameras, _tasks: tasks })
    }

    /// The cameras that matched at the start, connected or not.
    pub fn cameras(&self) -> &[CameraName] {
        &self.cameras
    }

    /// Whether the newest frame or every frame is delivered, as requested or as the broker chose.
    pub fn deliver(&self) -> Deliver {
        self.deliver
    }

    /// A handle that changes the subscription and reports to it, also while another task waits for the next event.
    pub fn control(&self) -> SubscriptionControl {
        SubscriptionControl { shared: Arc::clone(&self.shared) }
    }

    /// See [`SubscriptionControl::update`].
    pub async fn update(&self, contract: &Contract, profile: Option<&Profile>) -> Result<(), ClientError> {
        self.control().update(contract, profile).await
    }

    /// The next event. `None` after [`Event::Ended`] or [`Event::Failed`]. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        if let Some(member) = &self.shared.member {
            let has_frame = self.shared.lock().has_frame();
            member.asks_next(has_frame);
        }
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

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        let mut event = self.shared.lock().take();
        self.shared.went.notify_one();
        if let Some(Event::Frame(frame)) = &mut event {
            frame.stamp(Stage::Taken);
            self.shared.taken.note(frame);
            if let Some(member) = &self.shared.member {
                member.took(&frame.camera, frame.meta.id);
            }
        }
        event
    }
}
