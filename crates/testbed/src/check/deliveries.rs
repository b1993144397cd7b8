//! Checks what an application gets, frame by frame.

use std::collections::BTreeMap;
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::frame::{ClockSource, Epoch, FrameId, Quality, Reference, Rung, Sequence, SkipReason};
use mez_core::history::{Tier, is_unmodified, still_of_video};
use mez_core::log::LogReader;
use mez_core::name::CameraName;
use mez_core::session::CameraRest;
use mez_core::subscription::{Deliver, Delivery, NotHeld, NotHeldReason, Span};
use mez_core::units::{Instant, Timestamp};
use mez_core::wire::{ReplyResult, SKIP_RANGES_MAX};

use super::Checks;
use super::frames::NEVER_LIVE;
use super::known::Reading;
use crate::payload::{PAST_RUNG, reply_to};
use crate::time::{HostClock, Moment};

/// The largest rounding error of a stamp. Stamps are whole nanoseconds, and a stamp that would equal another is increased.
const ROUNDING: Duration = Duration::from_micros(2);

/// The place of a delivery in its reading.
struct DeliveryPlace {
    edge_run: u64,
    span: Span,
    /// Whether the reading asks for more than the edge's memory holds.
    asks: bool,
    /// Whether frames may come from elsewhere than the replica.
    past: bool,
    /// The run of the camera that published the frame.
    run: u64,
    /// The previous frame.
    last: Option<FrameId>,
}

impl Checks {
    /// Begins a subscription.
    pub(crate) fn subscribed(&mut self, id: SubscriptionId, mut reading: Reading) {
        let edge_run = reading.edge_run;
        for (camera, place) in &mut reading.places {
            place.past = self.appended.get(&(edge_run, camera.clone())).map_or(0, Vec::len);
        }
        self.readings.insert(id, reading);
    }

    /// Checks a frame that an application got, with the capture instant that the edge states. Returns when the frame was published.
    pub(crate) fn delivered(
        &mut self,
        subscription: SubscriptionId,
        delivery: &Delivery,
        stated: Option<(Instant, Duration)>,
        edge_clock: &HostClock,
    ) -> Option<Moment> {
        let camera = &delivery.camera;
        let meta = &delivery.record.frame.meta;
        let id = meta.id;
        self.check_granted(subscription, camera, id);
        self.check_link(subscription, delivery);
        self.check_original(subscription, delivery);
        let payload = &delivery.record.frame.payload;
        let matching = self.matching_runs(camera, meta, payload, "an application got");
        self.check_origin(camera, meta, payload);

        let place = self.place(subscription, delivery, &matching)?;
        self.check_given(subscription, delivery, place.run);
        if !meta.encoding.is_chained() {
            self.check_still(place.edge_run, camera, place.run, meta);
        }
        if self.violation().is_some() {
            return None;
        }
        for reason in NEVER_LIVE.into_iter().filter(|_| !place.asks) {
            self.expect(delivery.skipped.of(reason) == 0, "reasons", || {
                format!("{} before {id} of {camera}", reason.name())
            });
        }
        self.check_stated_gap(delivery, &place);
        let known = self.published_frame(camera, place.run, id);
        let (at, quality) = known.map(|frame| (frame.at, frame.quality))?;
        self.check_quality(delivery, quality, place.asks);
        if let Some((captured, error)) = stated
            && meta.clock_source == ClockSource::Broker
        {
            let truth = edge_clock.monotonic(at);
            let off = truth.saturating_since(captured).max(captured.saturating_since(truth));
            self.expect(off <= error + ROUNDING, "clock", || {
                format!("{id} of {camera} was captured {off:?} away from what the edge states, ±{error:?}")
            });
        }
        Some(at)
    }

    /// The place of a delivery in its reading: of the run that published earlier frames of its epoch, and after the previous frame.
    fn place(
        &mut self,
        subscription: SubscriptionId,
        delivery: &Delivery,
        matching: &[u64],
    ) -> Option<DeliveryPlace> {
        let (camera, id) = (&delivery.camera, delivery.record.frame.meta.id);
        let reading = self.readings.get_mut(&subscription)?;
        let (edge_run, span, asks) = (reading.edge_run, reading.span, reading.tier_max > Tier::Memory);
        // Frames may come from elsewhere than the replica.
        let past = reading.fills || reading.resumes || reading.originals || span.begin.is_some();
        let place = reading.places.entry(camera.clone()).or_default();
        let first = *matching.first()?;
        let run = *place.runs.entry(id.epoch).or_insert(first);
        // A camera's log may hold a start that no edge heard of, while the edge holds another start with the same epoch.
        let asks_camera = past && (reading.fills || reading.tier_max == Tier::Camera);
        let run = if asks_camera && !matching.contains(&run) { first } else { run };
        // A camera that lost its counter counts from 1 again at an edge that does not know it. The application is told so.
        let anew = |told: &NotHeld| told.reason == NotHeldReason::CameraRestarted;
        let numbered_anew =
            reading.resumes && place.runs.len() <= 1 && delivery.not_held.as_ref().is_some_and(anew);
        // The first frame of the new count may have been passed over.
        let of_edge = self.appended.get(&(edge_run, camera.clone()));
        let of_present = of_edge.and_then(|ids| ids.get(place.past));
        let is_before = |last: &FrameId| *last < id && of_present.is_none_or(|first| last < first);
        let last = place.last.replace(id).filter(|last| is_before(last) || !numbered_anew);
        self.expect(matching.contains(&run), "bytes", || {
            format!("{id} of {camera} is of another run than the frames of its epoch before")
        });
        self.expect(last.is_none_or(|last| last < id), "order", || {
            format!("subscription {subscription:?} got {id} of {camera} after {last:?}")
        });
        Some(DeliveryPlace { edge_run, span, asks, past, run, last })
    }

    /// Checks the number and the reasons of the frames that are stated as skipped before a delivery.
    fn check_stated_gap(&mut self, delivery: &Delivery, place: &DeliveryPlace) {
        let (camera, id) = (&delivery.camera, delivery.record.frame.meta.id);
        let DeliveryPlace { edge_run, span, past, run, .. } = *place;
        match place.last {
            Some(last) if last.epoch == id.epoch => {
                self.check_gap(delivery, (edge_run, past), span, run, last);
            }
            Some(last) => self.check_gap_over_epochs(delivery, (edge_run, past), span, last),
            None => {
                // The reading may have passed over whole epochs before its first frame.
                let first = FrameId { epoch: Epoch(0), sequence: Sequence(0) };
                // It may also have passed over the newest frame of the past, which was found elsewhere, once the present has a newer frame.
                let finds = place.asks && past && span.deliver == Deliver::Newest;
                let found = u64::from(finds && self.has_published_before(camera, id.epoch));
                let most = id.sequence.0 + found + self.accounted_for(edge_run, camera, first, id);
                self.expect(delivery.skipped.total() <= most, "gaps", || {
                    format!("{:?} are stated as skipped before {id}, the first of {camera}", delivery.skipped)
                });
            }
        }
    }

    /// Checks that a frame comes with the accuracy that its camera stated.
    fn check_quality(&mut self, delivery: &Delivery, quality: Quality, asks: bool) {
        let meta = &delivery.record.frame.meta;
        // Frames of the past are originals or have the requested rung. No camera predicted their accuracy.
        let rung = &meta.rung;
        let as_asked =
            *rung == Rung::original() || rung.as_str() == PAST_RUNG || *rung == still_of_video().rung();
        // A log on disk does not keep the accuracy.
        let restored = delivery.record.arrived == Instant::ZERO;
        let unknown = (asks && as_asked || restored) && delivery.record.quality == Quality::default();
        self.expect(unknown || quality == delivery.record.quality, "quality", || {
            format!(
                "the camera said {quality:?} of {} of {}, and it came as {:?}",
                meta.id, delivery.camera, delivery.record.quality
            )
        });
    }

    /// Checks the end of a reading of the present: missed frames that the edge still holds are counted.
    pub(crate) fn ended(
        &mut self,
        subscription: SubscriptionId,
        rest: &[CameraRest],
        logs: &BTreeMap<CameraName, LogReader>,
    ) {
        let Some(reading) = self.readings.get(&subscription) else { return };
        let Reading { span, fills, resumes, chains, .. } = *reading;
        if fills || resumes || chains || span.begin.is_some() {
            return;
        }
        let end = span.end.unwrap_or(Timestamp::MAX);
        for (camera, skipped, _) in rest {
            let place = self.readings.get(&subscription).and_then(|reading| reading.places.get(camera));
            let (Some(last), Some(log)) = (place.and_then(|place| place.last), logs.get(camera)) else {
                continue;
            };
            let held = log.held().filter_map(|index| log.get(index)).map(|record| record.frame.meta);
            let missed = held.filter(|meta| meta.id > last && meta.captured <= end).count() as u64;
            self.expect(skipped.total() >= missed, "rests", || {
                format!(
                    "{missed} frames of {camera} lie between {last} and the end, but {skipped:?} are stated"
                )
            });
        }
    }

    /// Notes that an application has lost its chain of a camera. Frames that refer to the chain are then useless.
    pub(crate) fn chain_lost(&mut self, subscription: SubscriptionId, camera: &CameraName) {
        if let Some(place) =
            self.readings.get_mut(&subscription).and_then(|reading| reading.places.get_mut(camera))
        {
            place.given.clear();
        }
    }

    /// Notes that an application replies to a frame that it was given.
    pub(crate) fn replies(&mut self, camera: &CameraName, frame: FrameId, application: &str) {
        *self.replies.entry((camera.clone(), frame, application.to_owned())).or_default() += 1;
    }

    /// Checks a reply that reached a camera.
    pub(crate) fn replied(
        &mut self,
        camera: &CameraName,
        frame: FrameId,
        application: &str,
        result: &ReplyResult,
    ) {
        let said = self.replies.get_mut(&(camera.clone(), frame, application.to_owned()));
        let known = said.is_some_and(|said| {
            let on_its_way = *said > 0;
            *said = said.saturating_sub(1);
            on_its_way && *result == reply_to(frame)
        });
        self.expect(known, "replies", || {
            format!(
                "camera {camera} got {result:?} for {frame}, which {application} did not say, or not so often"
            )
        });
    }

    /// Checks that frames of chains go only to applications that decode them, and that all other frames are marked as stills.
    fn check_link(&mut self, subscription: SubscriptionId, delivery: &Delivery) {
        let meta = &delivery.record.frame.meta;
        if meta.encoding.is_chained() {
            let takes = self.readings.get(&subscription).is_none_or(|reading| reading.chains);
            return self.expect(takes, "decodable", || {
                format!("subscription {subscription:?} got {} as {}", meta.id, meta.encoding.name())
            });
        }
        // The rule `bytes` checks the rung.
        let stands_alone = meta.chain.index == 0
            && meta.chain.chain == meta.id.sequence
            && meta.chain.reference == Reference::Independent;
        self.expect(stands_alone, "quality", || format!("{} says {meta:?}, but it is a still", meta.id));
    }

    /// Checks that an application that wants originals gets only originals.
    fn check_original(&mut self, subscription: SubscriptionId, delivery: &Delivery) {
        let wants = self.readings.get(&subscription).is_some_and(|reading| reading.originals);
        let meta = &delivery.record.frame.meta;
        self.expect(!wants || is_unmodified(&meta.rung), "originals", || {
            format!(
                "subscription {subscription:?} wants originals and got {} as {}",
                meta.id,
                meta.rung.as_str()
            )
        });
    }

    /// Checks that an application that decodes chains was first given the frame to which a frame refers.
    fn check_given(&mut self, subscription: SubscriptionId, delivery: &Delivery, run: u64) {
        let (camera, meta) = (&delivery.camera, &delivery.record.frame.meta);
        let id = meta.id;
        if !meta.encoding.is_chained() {
            return;
        }
        let refers = self.published_frame(camera, run, id).and_then(|frame| frame.refers);
        let Some(place) =
            self.readings.get_mut(&subscription).and_then(|reading| reading.places.get_mut(camera))
        else {
            return;
        };
        let given = refers.is_none_or(|sequence| place.given.contains(&FrameId { sequence, ..id }));
        place.given.insert(id);
        self.expect(given, "decodable", || {
            format!("{id} of {camera} was handed on, but not {refers:?}, to which it refers")
        });
    }

    /// Checks that all frames between two frames of one epoch are accounted for, and that frames never sent have their own reasons.
    fn check_gap(
        &mut self,
        delivery: &Delivery,
        (edge_run, past): (u64, bool),
        span: Span,
        run: u64,
        last: FrameId,
    ) {
        let (camera, id, skipped) = (&delivery.camera, delivery.record.frame.meta.id, &delivery.skipped);
        let gap = id.sequence.0 - last.sequence.0 - 1;
        self.expect(skipped.total() == gap, "gaps", || {
            format!("{gap} frames of {camera} lie between {last} and {id}, but {skipped:?} are stated")
        });
        let from = FrameId { sequence: Sequence(last.sequence.0 + 1), ..last };
        let Some(known) = self.run(camera, run, id) else { return };
        let (arrived, lost) = self.arrived_and_lost(known, edge_run, camera, from, id);
        let elsewhere = self.has_moved_between(camera, known, last, id);
        // A newer frame came while the application was busy, or while a still was made for it.
        let busy = skipped.of(SkipReason::ApplicationBusy) + skipped.of(SkipReason::EdgeBusy);
        let late = skipped.of(SkipReason::LateOrLost);
        // These frames may be in the replica or not.
        let not_decoded = skipped.of(SkipReason::NotDecoded);
        // A reading of the newest frames does not get overtaken frames. They count as late.
        let overtaken = self.overtaken_between(edge_run, camera, from, id);
        let ledger_full = known.ledger_full;
        // Evicted records take their counts of skipped frames with them. A time span leaves frames out on purpose.
        if skipped.of(SkipReason::Evicted) > 0 || past {
            return;
        }
        let passed = if span.deliver == Deliver::Newest { arrived } else { 0 };
        // Frames that a contract withheld have arrived too, but have the same reason as frames that the camera did not send because of a contract.
        let withheld = skipped.of(SkipReason::Infeasible);
        let told = busy + withheld + overtaken + not_decoded;
        self.expect(busy <= passed && passed <= told, "reasons", || {
            format!("{busy} frames of {camera} before {id} passed by a busy application, but it was {passed}")
        });
        // The edge's list of frames that it did not decode is bounded too. Beyond the bound, the oldest count as late or lost.
        let edge_full = not_decoded > 0 && gap > SKIP_RANGES_MAX as u64;
        self.expect(ledger_full || edge_full || elsewhere || late <= lost + overtaken, "reasons", || {
            format!(
                "{late} frames of {camera} between {last} and {id} are called late or lost, but of no more than {lost} \
                 it could not be known better: {skipped:?}"
            )
        });
    }

    /// How many frames of the epochs before the epoch of `to` a replica accounts for, from the epoch of `from` on: in each epoch, the frames from the
    /// first to the last that the replica took.
    fn accounted_for(&self, edge_run: u64, camera: &CameraName, from: FrameId, to: FrameId) -> u64 {
        let passed = self.appended_between(edge_run, camera, from, to);
        let ends = passed.iter().zip(passed.iter().skip(1).chain([&to]));
        ends.filter(|(one, next)| one.epoch != next.epoch).map(|(one, _)| one.sequence.0 + 1).sum()
    }

    /// Checks the gap between frames of two epochs. At the end of an epoch, the edge does not know how many frames were still to come. But it
    /// accounts for the frames up to the last that the replica had, and for the new epoch from its first frame on.
    fn check_gap_over_epochs(
        &mut self,
        delivery: &Delivery,
        (edge_run, past): (u64, bool),
        span: Span,
        last: FrameId,
    ) {
        let (camera, id, skipped) = (&delivery.camera, delivery.record.frame.meta.id, &delivery.skipped);
        // `last` and the frames before it are already accounted for.
        let accounted = id.sequence.0 + self.accounted_for(edge_run, camera, last, id);
        // A frame of the past may have come from the camera. The replica then does not account for frames before it.
        let before = if past { 0 } else { last.sequence.0 + 1 };
        let most = accounted.saturating_sub(before);
        // Frames evicted around the change of epochs are accounted for as far as they are known.
        let next = FrameId { sequence: Sequence(last.sequence.0 + 1), ..last };
        let passed = self.appended_between(edge_run, camera, next, id).len() as u64;
        let evicted = passed > skipped.of(SkipReason::ApplicationBusy);
        let exact = !evicted && !past && span.end.is_none();
        let holds = if exact { skipped.total() == most } else { skipped.total() <= most };
        self.expect(holds, "gaps", || {
            format!("{most} frames of {camera} lie between {last} and {id}, but {skipped:?} are stated")
        });
    }
}
