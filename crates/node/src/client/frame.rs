//! Converts messages into the frames and cameras that a program gets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mez_core::clock::ClockEstimate;
use mez_core::contract::{Contract, ContractState};
use mez_core::data::{ContentType, Origin};
use mez_core::frame::{
    ChainLink, ClockSource, Encoding, Epoch, FrameId, FrameMeta, Reference, Rung, Sequence, SkipCounts,
};
use mez_core::name::CameraName;
use mez_core::source::SourceStanding;
use mez_core::subscription::NotHeld;
use mez_core::trace::{Stage, Trace};
use mez_core::units::{Instant, Timestamp};
use mez_media::ImageViewMut;
use mez_media::stream::{OwnedPicture, StreamDecodeError, show};

use crate::api::{contract, convert, pb};
use crate::clock::monotonic_now;

/// A received frame or data record.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedFrame {
    /// The camera.
    pub camera: CameraName,
    /// The metadata of the frame.
    pub meta: FrameMeta,
    /// The encoded pixels, as received. A frame of a chain cannot be decoded without the frames before it.
    pub payload: Bytes,
    /// The type of a data record's payload. `None` for a picture.
    pub content_type: Option<ContentType>,
    /// The frame or record that a data record was made of, if its publisher named it.
    pub of: Option<Origin>,
    /// The decoded picture of a frame of a chain. `None` for a still, whose `payload` decodes by itself.
    pub picture: Option<Arc<OwnedPicture>>,
    /// Whether the edge decoded the picture, for several programs of its host. False: this program decoded it, or there is no picture.
    pub is_shared: bool,
    /// The capture time by this machine's monotonic clock, and its maximum error. `None` until the clocks on the way have been compared.
    pub captured_at: Option<(Instant, Duration)>,
    /// When the frame was received completely, by this machine's monotonic clock.
    pub received_at: Instant,
    /// The age of the frame when the broker gave it to the connection, and the maximum error of the age.
    pub age_at_broker: Option<(Duration, Duration)>,
    /// The accuracy that the profile predicts. `None` while unverified.
    pub accuracy_expected: Option<f64>,
    /// The state of the contract.
    pub contract_state: ContractState,
    /// A sentence that explains the state.
    pub contract_reason: String,
    /// The frame breaks the contract, and was sent because no better rung fitted.
    pub infeasible: bool,
    /// Frames of this camera that were skipped since the previous one.
    pub skipped: SkipCounts,
    /// A requested time span of the past whose frames are missing.
    pub not_held: Option<NotHeld>,
    /// Whether the client library read the frame later than possible, because it was waiting for the program.
    pub held_back: bool,
    /// The times since the capture at which the frame passed each stage, from the camera to this program. Empty if `captured_at` is unknown.
    pub trace: Trace,
    /// Payload bytes of this frame that crossed the link, before the edge decoded it.
    /// `None` if unknown: at the camera, and for frames that the edge read from its disk.
    pub link_bytes: Option<u64>,
    /// In a group: 1 if this record is given for the first time, 2 for the second time, and so on. 0 outside groups.
    pub attempt: u32,
}

/// How to convert instants of the broker's clock to ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BrokerClock {
    /// The clocks are the same: the broker runs on this host.
    Same,
    /// The clocks differ. The estimate is `None` until they have been compared.
    Compared(Option<ClockEstimate>),
}

impl ReceivedFrame {
    /// The age of the frame now, and its maximum error.
    pub fn age(&self) -> Option<(Duration, Duration)> {
        let (at, error) = self.captured_at?;
        Some((monotonic_now().saturating_since(at), error))
    }

    /// Writes the pixels as blue, green and red into memory of the picture's size. Decodes a still, or converts the picture of a chain.
    ///
    /// # Panics
    /// If `target` is not BGR.
    pub fn show(&self, target: &mut ImageViewMut<'_>) -> Result<(), StreamDecodeError> {
        match &self.picture {
            Some(picture) => picture.show(target),
            None => show(self.meta.encoding, &self.payload, target),
        }
    }

    /// Records in the trace that the frame passes a stage now, for example that its pixels have been decoded.
    pub fn stamp(&mut self, stage: Stage) {
        if let Some((age, _)) = self.age() {
            self.trace.stamp(stage, age);
        }
    }

    /// Converts a message. The error names the field that is invalid.
    pub(super) fn from_message(
        frame: pb::Frame,
        received_at: Instant,
        clock: BrokerClock,
    ) -> Result<Self, &'static str> {
        let id = FrameId { epoch: Epoch(frame.epoch), sequence: Sequence(frame.sequence) };
        let captured = frame.captured_monotonic_ns.zip(frame.captured_monotonic_error_ns);
        let captured = captured.map(|(at, error)| (Instant::from_nanos(at), Duration::from_nanos(error)));
        let captured_at = match (captured, clock) {
            (Some(captured), BrokerClock::Same) => Some(captured),
            (Some((at, error)), BrokerClock::Compared(Some(estimate))) => {
                Some((estimate.to_ours(at), error + estimate.error))
            }
            _ => None,
        };
        let age = frame.age_ns.zip(frame.age_error_ns);
        let mut trace = Trace::default();
        if let Some((at, error)) = captured_at {
            trace = convert::trace_back(&frame.trace, Some(error));
            trace.stamp(Stage::Received, received_at.saturating_since(at));
        }
        Ok(Self {
            camera: frame.camera.parse().map_err(|_| "a camera's name")?,
            meta: FrameMeta {
                id,
                captured: Timestamp::from_nanos(frame.captured_utc_ns),
                clock_source: match frame.clock_source() {
                    pb::ClockSource::Publisher => ClockSource::Publisher,
                    _ => ClockSource::Broker,
                },
                width: frame.width,
                height: frame.height,
                published: (frame.published_width, frame.published_height),
                encoding: u8::try_from(frame.encoding)
                    .ok()
                    .and_then(Encoding::from_code)
                    .ok_or("an encoding")?,
                rung: Rung::new(&frame.rung).ok_or("the name of a rung")?,
                chain: ChainLink {
                    chain: Sequence(frame.chain_sequence),
                    index: frame.index_in_chain,
                    reference: match (frame.reference(), frame.reference_sequence) {
                        (pb::Reference::Independent, _) => Reference::Independent,
                        (pb::Reference::Previous, _) => Reference::Previous,
                        (pb::Reference::Acknowledged, Some(sequence)) => {
                            Reference::Acknowledged(Sequence(sequence))
                        }
                        _ => return Err("a frame's reference"),
                    },
                },
            },
            captured_at,
            received_at,
            age_at_broker: age.map(|(age, error)| (Duration::from_nanos(age), Duration::from_nanos(error))),
            accuracy_expected: frame.accuracy_expected,
            contract_state: contract_state(frame.contract_state),
            contract_reason: frame.contract_reason,
            infeasible: frame.infeasible,
            skipped: convert::skips_back(&frame.skipped),
            not_held: frame.not_held.map(convert::not_held_back),
            held_back: false,
            trace,
            link_bytes: frame.link_bytes,
            attempt: frame.attempt,
            // Empty if the edge could not read the record's head.
            content_type: frame.content_type.parse().ok(),
            of: frame.of.as_ref().map(convert::origin_back).transpose()?,
            payload: frame.payload,
            picture: None,
            is_shared: false,
        })
    }
}

/// A state that this version does not know counts as unverified.
pub(super) fn contract_state(code: i32) -> ContractState {
    u8::try_from(code).ok().and_then(ContractState::from_code).unwrap_or(ContractState::Unverified)
}

/// The state of a subscription's contract on a camera.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractStanding {
    /// The subscription's number at the edge.
    pub subscription: u64,
    /// The application's name, for people. May be empty.
    pub application: String,
    /// The contract, without the hash of its profile.
    pub contract: Contract,
    /// The state.
    pub state: ContractState,
    /// A sentence that explains the state.
    pub reason: String,
}

/// What the edge knows about a camera.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraSummary {
    /// The camera.
    pub camera: CameraName,
    /// Whether the camera is connected and sent something within the last 750 ms (1.75 s if nobody wants its frames).
    pub connected: bool,
    /// The camera's identity.
    pub identity: String,
    /// How many subscriptions read its frames.
    pub subscriptions: u32,
    /// The newest frame at the edge, and its capture time.
    pub newest: Option<(FrameId, Timestamp)>,
    /// The capture time of the oldest frame at the edge.
    pub oldest: Option<Timestamp>,
    /// Bytes in its log at the edge.
    pub edge_log_bytes: u64,
    /// Frames published since the camera's start.
    pub published: u64,
    /// Frames refused since the camera's start.
    pub refused: u64,
    /// Pixels in a row of the newest published frame. 0 before the first.
    pub width: u32,
    /// Rows of the newest published frame.
    pub height: u32,
    /// Frames per second over the last few seconds.
    pub frames_per_second: f64,
    /// Bytes in the camera's own log.
    pub camera_log_bytes: u64,
    /// Frames that arrived at the edge in time, since the edge's start.
    pub frames_received: u64,
    /// Frames that arrived after a newer one.
    pub frames_late: u64,
    /// Frames that the camera cancelled on the way.
    pub frames_cancelled: u64,
    /// Frames that the edge refused.
    pub frames_refused: u64,
    /// Payload bytes that crossed the link.
    pub link_bytes: u64,
    /// Payload bytes of the frames published since the camera's start.
    pub published_bytes: u64,
    /// The rates at which the camera publishes and at which frames cross the link, over the
    /// last seconds. `None` while the camera is not connected, and in its first second.
    pub traffic: Option<Traffic>,
    /// The offset of the camera's clock to the edge's.
    pub clock: Option<ClockRelation>,
    /// The state of the camera's log on the edge's disk. `None` if there is none.
    pub edge_disk: Option<LogOnDisk>,
    /// The state of the camera's log on its own disk. `None` if there is none, or if the camera has not reported it.
    pub camera_disk: Option<LogOnDisk>,
    /// The rate of the link in bits per second, as measured with frames.
    pub link_bits_per_second: Option<f64>,
    /// The share of frames that the camera's policy predicted to be on time, over about the last 500 predictions. `None`: it predicted none.
    pub predicted_on_time_share: Option<f64>,
    /// The share of these frames that was on time.
    pub observed_on_time_share: Option<f64>,
    /// The declared channel that the camera shares with others, if it is on one.
    pub channel: Option<ChannelStanding>,
    /// The state of the camera's source, by this machine's monotonic clock. `None` if it is unknown: the camera has published no frame
    /// yet, or is not connected. If the source of a camera that is not connected has ended, or is not tried again, the state is kept.
    pub source: Option<SourceStanding>,
    /// The states of its subscriptions' contracts, without contracts that have no bound.
    pub contracts: Vec<ContractStanding>,
    /// The sources of a derived stream. Empty: this is a camera. For a derived stream, [`CameraSummary::identity`] is its publisher.
    pub derived_from: Vec<CameraName>,
    /// How many programs publish the derived stream now. `None`: this is a camera.
    pub publishers: Option<u32>,
}

/// The rates at which a camera publishes and at which its frames cross the link, in payload bits per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The published frames, whether wanted or not.
    pub published: f64,
    /// The payloads that crossed the link, including late frames and frames of the past.
    pub crossed: f64,
}

impl Traffic {
    /// The share of the published bytes that crosses the link. `None` if nothing is published. Above 1 while frames of the past are fetched.
    pub fn share(&self) -> Option<f64> {
        (self.published > 0.0).then(|| self.crossed / self.published)
    }
}

/// A declared channel, and a camera's share of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelStanding {
    /// The channel's name.
    pub name: String,
    /// The measured rate of the channel for all cameras together, in bits per second.
    pub bits_per_second: Option<f64>,
    /// The largest mean size of the camera's frames in bytes. 0: the channel has no room for frames that keep the camera's floor. `None`: no limit.
    pub frame_bytes: Option<u64>,
}

/// The state of a log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOnDisk {
    /// Why durability is not guaranteed at present. The log continues in memory. `None`: durability is guaranteed.
    pub degraded: Option<String>,
    /// Bytes of the log on disk.
    pub bytes: u64,
    /// Frames that were evicted from memory before they could be written, since the broker's start.
    pub lost: u64,
}

impl LogOnDisk {
    fn from_message(disk: pb::LogOnDisk) -> Self {
        let pb::LogOnDisk { degraded, bytes, lost } = disk;
        Self { degraded: Some(degraded).filter(|why| !why.is_empty()), bytes, lost }
    }
}

/// The offset of a camera's monotonic clock to the edge's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRelation {
    /// How far the camera's clock is ahead, in nanoseconds.
    pub ahead_ns: i64,
    /// The maximum error of the offset.
    pub error: Duration,
    /// The round trip of the measurement.
    pub round_trip_time: Duration,
}

impl CameraSummary {
    pub(super) fn from_message(info: pb::CameraInfo) -> Result<Self, &'static str> {
        let newest = info.newest_epoch.zip(info.newest_sequence).zip(info.newest_captured_utc_ns);
        let clock = info.clock_offset_ns.zip(info.clock_error_ns).zip(info.round_trip_time_ns);
        Ok(Self {
            camera: info.camera.parse().map_err(|_| "a camera's name")?,
            connected: info.connected,
            identity: info.identity,
            subscriptions: info.subscriptions,
            derived_from: info
                .derived_from
                .iter()
                .map(|name| name.parse().map_err(|_| "a source's name"))
                .collect::<Result<_, _>>()?,
            publishers: info.publishers,
            newest: newest.map(|((epoch, sequence), captured)| {
                let id = FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) };
                (id, Timestamp::from_nanos(captured))
            }),
            oldest: info.oldest_captured_utc_ns.map(Timestamp::from_nanos),
            edge_log_bytes: info.edge_log_bytes,
            published: info.published,
            refused: info.refused,
            width: info.width,
            height: info.height,
            frames_per_second: info.frames_per_second,
            camera_log_bytes: info.camera_log_bytes,
            frames_received: info.frames_received,
            frames_late: info.frames_late,
            frames_cancelled: info.frames_cancelled,
            frames_refused: info.frames_refused,
            link_bytes: info.link_bytes,
            published_bytes: info.published_bytes,
            traffic: info
                .published_bits_per_second
                .zip(info.crossed_bits_per_second)
                .map(|(published, crossed)| Traffic { published, crossed }),
            edge_disk: info.edge_disk.map(LogOnDisk::from_message),
            camera_disk: info.camera_disk.map(LogOnDisk::from_message),
            link_bits_per_second: info.link_bits_per_second,
            predicted_on_time_share: info.predicted_on_time_share,
            observed_on_time_share: info.observed_on_time_share,
            channel: info.channel.map(|name| ChannelStanding {
                name,
                bits_per_second: info.channel_bits_per_second,
                frame_bytes: info.share_frame_bytes,
            }),
            source: info.source.and_then(|source| convert::source_back(source, monotonic_now())),
            contracts: info
                .contracts
                .into_iter()
                .map(|standing| {
                    let asked = contract::parse(standing.contract).map_err(|_| "a contract")?;
                    Ok(ContractStanding {
                        subscription: standing.subscription_id,
                        application: standing.application,
                        contract: asked.0,
                        state: contract_state(standing.state),
                        reason: standing.reason,
                    })
                })
                .collect::<Result<_, &'static str>>()?,
            clock: clock.map(|((ahead_ns, error), round_trip_time)| ClockRelation {
                ahead_ns,
                error: Duration::from_nanos(error),
                round_trip_time: Duration::from_nanos(round_trip_time),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use mez_core::clock::{ClockEstimator, Exchange};
    use mez_core::contract::watch::FrameVerdict;
    use mez_core::frame::{Frame, Quality, SkipReason};
    use mez_core::log::Record;
    use mez_core::session::FrameTimes;
    use mez_core::subscription::Delivery;
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn meta()(
            numbers in any::<(u64, u64, u64, u64, u32)>(),
            size in any::<(u32, u32, (u32, u32))>(),
            publisher in any::<bool>(),
            encoding in 1u8..=6,
            reference in prop_oneof![
                Just(Reference::Independent),
                Just(Reference::Previous),
                any::<u64>().prop_map(|n| Reference::Acknowledged(Sequence(n))),
            ],
            rung in "[!-~]{1,64}",
        ) -> FrameMeta {
            let (epoch, sequence, captured, chain, index) = numbers;
            FrameMeta {
                id: FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) },
                captured: Timestamp::from_nanos(captured),
                clock_source: if publisher { ClockSource::Publisher } else { ClockSource::Broker },
                width: size.0,
                height: size.1,
                published: size.2,
                encoding: Encoding::from_code(encoding).unwrap(),
                rung: Rung::new(&rung).unwrap(),
                chain: ChainLink { chain: Sequence(chain), index, reference },
            }
        }
    }

    proptest! {
        /// The program gets the content of the broker's log.
        #[test]
        fn a_frame_survives_the_way(
            meta in meta(),
            payload in proptest::collection::vec(any::<u8>(), 0..50),
            counts in proptest::collection::vec((0usize..9, 1u64..1000), 0..4),
            past in any::<Option<(u64, u64)>>(),
            captured in any::<Option<(u32, u32)>>(),
            stages in proptest::collection::vec((0usize..11, any::<u32>()), 0..12),
            quality in (proptest::option::of(0.0f64..=1.0), any::<bool>())
                .prop_map(|(expected_accuracy, infeasible)| Quality { expected_accuracy, infeasible }),
        ) {
            let mut skipped = SkipCounts::default();
            counts.iter().for_each(|(reason, count)| skipped.add(SkipReason::ALL[*reason], *count));
            let not_held = past.map(|(begin, end)| NotHeld {
                begin: Timestamp::from_nanos(begin),
                end: Timestamp::from_nanos(end),
                reason: mez_core::subscription::NotHeldReason::ALL[(begin % 6) as usize],
            });
            let captured = captured
                .map(|(at, error)| (Instant::from_nanos(at.into()), Duration::from_nanos(error.into())));
            let now = Instant::from_nanos(1 << 40);
            let Quality { expected_accuracy, infeasible } = quality;
            let (state, reason) = (ContractState::LatencyMiss, String::from("a sentence"));
            let verdict = FrameVerdict { expected_accuracy, infeasible, state, reason };
            let delivery = Delivery {
                camera: "dock/cam1".parse().unwrap(),
                record: Record {
                    frame: Frame { meta: meta.clone(), payload: payload.clone().into() },
                    skipped: [].into(),
                    quality,
                    trace: None,
                    link_bytes: quality.expected_accuracy.map(|_| 5_000),
                    arrived: now,
                },
                skipped,
                not_held,
                log: None,
            };
            let mut trace = Trace::with_error(captured.map(|(_, error)| error));
            for (stage, since) in stages.into_iter().collect::<std::collections::BTreeMap<_, _>>() {
                trace.stamp(Stage::ALL[stage], Duration::from_nanos(since.into()));
            }
            let times = FrameTimes { captured, trace: Some(Box::new(trace)) };
            let message = convert::frame(delivery, &times, Some(verdict), now);
            let received = ReceivedFrame::from_message(message, now, BrokerClock::Same).unwrap();
            prop_assert_eq!(received.meta, meta);
            prop_assert_eq!(&received.payload[..], &payload[..]);
            prop_assert_eq!(received.skipped, skipped);
            prop_assert_eq!(received.not_held, not_held);
            prop_assert_eq!(received.captured_at, captured);
            let age = captured.map(|(at, error)| (now.saturating_since(at), error));
            prop_assert_eq!(received.age_at_broker, age);
            prop_assert_eq!(received.contract_state, ContractState::LatencyMiss);
            prop_assert_eq!(received.contract_reason, "a sentence");
            prop_assert_eq!(received.accuracy_expected, quality.expected_accuracy);
            prop_assert_eq!(received.infeasible, quality.infeasible);
            prop_assert_eq!(received.link_bytes, quality.expected_accuracy.map(|_| 5_000));
            // The stages that the broker knew are unchanged. The trace ends with the age here.
            let expected = captured.map(|_| trace.iter().collect::<Vec<_>>()).unwrap_or_default();
            prop_assert_eq!(received.trace.iter().take(expected.len()).collect::<Vec<_>>(), expected);
            prop_assert!(received.trace.iter().map(|(_, since)| since).is_sorted());
            let last = received.trace.iter().last();
            prop_assert_eq!(last.map(|(stage, _)| stage), captured.map(|_| Stage::Received));
            prop_assert_eq!(received.trace.error, captured.map(|(_, error)| error));
        }
    }

    #[test]
    fn capture_times_of_another_host_are_mapped_and_their_errors_add_up() {
        let at = Instant::from_nanos;
        let mut clock = ClockEstimator::default();
        // The broker's clock is 1000 ahead. The round trip takes 20.
        clock.record(Exchange { t1: at(100), t2: at(1110), t3: at(1110), t4: at(120) });
        let message = pb::Frame {
            camera: "cam".into(),
            encoding: 1,
            rung: "original".into(),
            reference: 1,
            captured_monotonic_ns: Some(1050),
            captured_monotonic_error_ns: Some(7),
            ..Default::default()
        };
        let map = |clock| ReceivedFrame::from_message(message.clone(), at(130), clock).unwrap().captured_at;
        let estimate = clock.estimate(at(120));
        assert_eq!(map(BrokerClock::Compared(estimate)), Some((at(50), Duration::from_nanos(17))));
        assert_eq!(map(BrokerClock::Compared(None)), None);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let good = pb::Frame {
            camera: "cam".into(),
            encoding: 1,
            rung: "original".into(),
            reference: 1,
            ..Default::default()
        };
        let read = |frame| ReceivedFrame::from_message(frame, Instant::ZERO, BrokerClock::Same);
        assert!(read(good.clone()).is_ok());
        assert_eq!(read(pb::Frame { camera: "a//b".into(), ..good.clone() }), Err("a camera's name"));
        assert_eq!(read(pb::Frame { encoding: 99, ..good.clone() }), Err("an encoding"));
        assert_eq!(read(pb::Frame { reference: 3, ..good }), Err("a frame's reference"));
    }
}
