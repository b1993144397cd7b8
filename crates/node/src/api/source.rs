//! The source of a subscription's frames: an edge's replica logs, or the log of the camera in this process.

use std::sync::Arc;
use std::time::Duration;

use mez_core::broker::edge::CameraView;
use mez_core::frame::ClockSource;
use mez_core::group::members::{Asks, GroupKey};
use mez_core::log::{LogReader, Record};
use mez_core::name::CameraName;
use mez_core::session::{FrameTimes, KnownCameras, Session};
use mez_core::stills::{StillAnswer, StillQuery};
use mez_core::subscription::{Delivery, SubscriptionSpec};
use mez_core::units::Instant;
use tokio::sync::{oneshot, watch};

use super::group::GroupAsk;
use super::subscriptions::ControlRequests;
use crate::clock::{anchor, monotonic_now};
use crate::edge::{
    EdgeHandle, EdgeSubscription, GroupMember, JoinFailure, Joining, MemberReports, Served, Stopped,
};
use crate::profiles::HeldProfile;
use crate::reading::{AsksStills, PastSources, Reading};
use crate::stills::Stills;

/// The source of a feed's frames.
pub(super) enum Source {
    /// The replica logs of an edge broker.
    Edge(Box<EdgeSubscription>),
    /// A group of readers of an edge broker.
    Group(Box<Membership>),
    /// The log of the camera broker in this process.
    Camera(Box<CameraLog>),
}

impl Source {
    /// Joins a group.
    pub(super) async fn group(
        edge: &EdgeHandle,
        ask: &GroupAsk,
        (key, asks): (GroupKey, Asks),
        (spec, profile): (SubscriptionSpec, Option<Arc<HeldProfile>>),
    ) -> Result<Self, JoinFailure> {
        let GroupAsk { member, knows, at_once, holds, .. } = ask.clone();
        let joining = Joining { key: key.clone(), member, asks, spec, profile, knows, at_once, holds };
        let member = edge.join_group(joining).await?;
        Ok(Self::Group(Box::new(Membership { member, key, edge: edge.clone() })))
    }

    /// The application does not get a frame that was chosen for it. Its group gives the frame to another member.
    pub(super) fn not_passed(&mut self, delivery: &Delivery, why: &str) {
        if let Self::Group(membership) = self {
            let (camera, frame) = (delivery.camera.clone(), delivery.record.frame.meta.id);
            membership.member.not_passed(camera, frame, why.into());
        }
    }

    /// The application has said that it wants no more frames.
    pub(super) fn leave(&mut self) {
        if let Self::Group(membership) = self {
            membership.member.leave();
        }
    }

    /// Handles requests to the subscription from outside its stream. A camera's own log has no contracts.
    pub(super) async fn handle_control(&mut self, requests: ControlRequests) -> Result<(), Stopped> {
        let ControlRequests { update, accuracies, taken, undecodable, brings_profile: _ } = requests;
        let subscription = match self {
            Self::Edge(subscription) => subscription,
            // Members get stills, and have a common contract.
            Self::Group(membership) => {
                let Membership { key, edge, .. } = &**membership;
                if !taken.is_empty() {
                    edge.taken_in_group(key, taken.into()).await;
                }
                return Ok(());
            }
            Self::Camera(log) => {
                undecodable.iter().for_each(|camera| log.restart_chain(camera));
                return Ok(());
            }
        };
        subscription.handle_accuracies(accuracies);
        subscription.handle_taken(taken);
        undecodable.into_iter().for_each(|camera| subscription.restart_chain(camera));
        match update {
            Some((contract, profile)) => subscription.update(contract, profile).await,
            None => Ok(()),
        }
    }

    /// The next item. Cancel safe.
    pub(super) async fn next(&mut self) -> Served {
        match self {
            Self::Edge(subscription) => subscription.next().await,
            Self::Group(membership) => membership.member.next().await,
            Self::Camera(log) => log.next().await,
        }
    }
}

/// A membership in a group.
pub(super) struct Membership {
    member: GroupMember,
    key: GroupKey,
    edge: EdgeHandle,
}

impl Membership {
    pub(super) fn reports(&self) -> MemberReports {
        self.member.reports()
    }
}

/// A subscription to the log of a camera in this process.
pub(super) struct CameraLog {
    reading: Reading,
    own: Own,
    appended: watch::Receiver<u64>,
    /// Whether the message that no camera matches is still to be sent.
    waiting: bool,
}

impl CameraLog {
    /// Reads `log`, which is `None` if the camera of this process does not match. `stills` are made from that log.
    pub(super) fn new(
        spec: &SubscriptionSpec,
        (log, stills): (Option<(CameraName, LogReader)>, Arc<Stills>),
        places: Option<Arc<PastSources>>,
        appended: watch::Receiver<u64>,
    ) -> Self {
        let mut reading = Reading::new(spec.clone(), places, |spec| Session::new(anchor(), spec));
        let waiting = log.is_none();
        if let Some((camera, log)) = log {
            let present = log.held().end;
            reading.session().handle_attach(monotonic_now(), camera, log, present);
        }
        Self { reading, own: Own { stills }, appended, waiting }
    }

    /// The application could not decode a chain of the camera. It gets stills until the next chain begins.
    fn restart_chain(&mut self, camera: &CameraName) {
        self.reading.session().handle_chain_lost(camera);
    }

    async fn next(&mut self) -> Served {
        loop {
            if std::mem::take(&mut self.waiting) {
                return Served::Waiting { matching: 0 };
            }
            let looked = monotonic_now();
            if let Some(output) = self.reading.poll(looked, &self.own) {
                return output.into();
            }
            let changed = tokio::select! {
                changed = self.appended.changed() => {
                    self.own.stills.wake();
                    changed
                }
                () = self.reading.stirs(looked) => Ok(()),
            };
            if changed.is_err() {
                return Served::Stopped;
            }
        }
    }
}

/// What a camera broker knows about its own camera. The capture time of a frame that this process stamped
/// itself is the time when the frame was appended. For other frames, the two clocks cannot be compared.
struct Own {
    stills: Arc<Stills>,
}

impl AsksStills for Own {
    fn still(&self, _: &CameraName, query: StillQuery) -> Option<oneshot::Receiver<StillAnswer>> {
        Some(self.stills.ask(query))
    }
}

impl KnownCameras for Own {
    fn times(&self, _: &CameraName, record: &Record) -> FrameTimes {
        let stamped_here =
            record.frame.meta.clock_source == ClockSource::Broker && record.arrived > Instant::ZERO;
        FrameTimes { captured: stamped_here.then_some((record.arrived, Duration::ZERO)), trace: None }
    }

    fn view(&self, _: &CameraName) -> Arc<CameraView> {
        Arc::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mez_core::frame::{ChainKinds, Encoding, Epoch, Frame, FrameId, FrameMeta, Quality, Rung, Sequence};
    use mez_core::log::{LogConfig, LogWriter, log};
    use mez_core::subscription::{Deliver, Span};
    use mez_core::units::Timestamp;
    use mez_media::image::{ImageView, PixelFormat};
    use mez_media::stream::{Encoded, Outcome, Request, Source as Pictures, StreamEncoder};

    use super::*;
    use crate::decoders::Decoders;
    use crate::stills::Helpers;

    const SIZE: (u32, u32) = (64, 48);

    /// A camera whose source gives video: grey pictures, each brighter than the previous one.
    struct Video {
        writer: LogWriter,
        encoder: StreamEncoder,
        appended: watch::Sender<u64>,
    }

    impl Video {
        fn append(&mut self, sequence: u64) {
            let pixels = vec![shade(sequence); (SIZE.0 * SIZE.1) as usize];
            let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Gray8).unwrap();
            let (setting, at) = ("h264/q20".parse().unwrap(), Instant::from_nanos(1 + sequence * 40_000_000));
            let request = Request {
                sequence: Sequence(sequence),
                captured: at,
                setting: &setting,
                bytes_max: None,
                reference: mez_core::frame::Reference::Previous,
            };
            let Outcome::Frame(made) = self.encoder.encode(&Pictures::Pixels(view), &request).unwrap() else {
                panic!("{sequence} was not made")
            };
            let Encoded { payload, encoding, width, height, chain, .. } = made;
            let meta = FrameMeta {
                id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
                captured: Timestamp::from_nanos(at.as_nanos()),
                clock_source: ClockSource::Broker,
                width,
                height,
                published: SIZE,
                encoding,
                rung: Rung::original(),
                chain,
            };
            let record = Record {
                frame: Frame { meta, payload },
                skipped: [].into(),
                quality: Quality::default(),
                trace: None,
                link_bytes: None,
                arrived: at,
            };
            self.writer.append_record(record).unwrap();
            self.appended.send_modify(|count| *count += 1);
        }
    }

    fn shade(sequence: u64) -> u8 {
        40 + 10 * sequence as u8
    }

    fn video() -> (Video, Arc<Stills>, LogReader) {
        let (writer, reader) = log(LogConfig::default());
        let encoder = StreamEncoder::new(1 << 20).unwrap();
        let stills =
            Stills::new("dock".parse().unwrap(), reader.clone(), Helpers::only(Decoders::software()), || {});
        (Video { writer, encoder, appended: watch::Sender::new(0) }, stills, reader)
    }

    async fn frame(reading: &mut CameraLog) -> Box<Delivery> {
        let served = tokio::time::timeout(Duration::from_secs(10), reading.next()).await;
        match served.expect("a frame comes") {
            Served::Frame { delivery, times, .. } => {
                let captured = delivery.record.frame.meta.captured.as_nanos();
                let (at, _) = times.captured.expect("this start stamped it");
                assert_eq!(at.as_nanos(), captured, "a still is as old as its frame");
                delivery
            }
            other => panic!("{other:?}"),
        }
    }

    /// A source's own video is stored unchanged in the camera's log. A reader on the camera's host that decodes no video gets stills.
    #[tokio::test]
    async fn a_camera_makes_stills_of_its_own_video() {
        let (mut video, stills, log) = video();
        let live = SubscriptionSpec {
            span: Span { deliver: Deliver::Every, ..Span::LIVE },
            ..SubscriptionSpec::live("dock".parse().unwrap())
        };
        let decodes = ChainKinds::among(&[Encoding::H264]);
        let open = |spec: &SubscriptionSpec| {
            let of = Some(("dock".parse().unwrap(), log.clone()));
            CameraLog::new(spec, (of, Arc::clone(&stills)), None, video.appended.subscribe())
        };
        let mut pictures = open(&live);
        let mut packets = open(&SubscriptionSpec { chains: decodes, ..live });
        for sequence in 0..6 {
            video.append(sequence);
            let Frame { meta, payload } = frame(&mut packets).await.record.frame;
            assert_eq!((meta.encoding, meta.id.sequence), (Encoding::H264, Sequence(sequence)));
            let held = log.get_frame(meta.id).unwrap();
            assert_eq!(payload, held.frame.payload, "packets are what the source gave");

            let Frame { meta, payload } = frame(&mut pictures).await.record.frame;
            assert_eq!((meta.encoding, meta.id.sequence), (Encoding::Jpeg, Sequence(sequence)));
            let mut image = mez_media::Image::empty();
            mez_media::jpeg::Decoder::new(1 << 20).decode_bgr(&payload, &mut image).unwrap();
            assert_eq!((image.width(), image.height()), SIZE);
            let shown = image.data()[image.data().len() / 2];
            assert!(shown.abs_diff(shade(sequence)) <= 3, "{sequence} shows {shown}");
        }
        // A program whose decoder failed gets stills until the next chain begins.
        packets.restart_chain(&"dock".parse().unwrap());
        video.append(6);
        assert_eq!(frame(&mut packets).await.record.frame.meta.encoding, Encoding::Jpeg);
    }
}
