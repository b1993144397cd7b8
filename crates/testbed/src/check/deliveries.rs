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

/// How far a stamp may be off. Stamps are whole nanoseconds, and one that would equal another is moved on.
const ROUNDING: Duration = Duration::from_micros(2);

/// Where a delivery stands in its reading.
struct DeliveryPlace {
    edge_run: u64,
    span: Span,
    /// Whether the reading asks for more than the edge's memory holds.
    asks: bool,
    /// Whether frames may come from elsewhere than the replica.
    past: bool,
    /// The camera's run that published it.
    run: u64,
    /// The frame before it.
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

    /// Checks a frame that an application got, with the capture instant that the edge states. Returns when it was published.
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

    /// Where a delivery stands in its reading: of a run that its epoch has had so far, and behind the frame before.
    fn place(
        &mut self,
        subscription: SubscriptionId,
        delivery: &Delivery,
        matching: &[u64],
    ) -> Option<DeliveryPlace> {
        let (camera, id) = (&delivery.camera, delivery.record.frame.meta.id);
        let reading = self.readings.get_mut(&subscription)?;
        let (edge_run, span, asks) = (reading.edge_run, reading.span, reading.tier_max > Tier::Memory);
        // Frames may come from others than the replica.
        let past = reading.fills || reading.resumes || reading.originals || span.begin.is_some();
        let place = reading.places.entry(camera.clone()).or_default();
        let first = *matching.first()?;
        let run = *place.runs.entry(id.epoch).or_insert(first);
        // A camera's log may hold a start that no edge heard of, and the edge another start with the same epoch.
        let asks_camera = past && (reading.fills || reading.tier_max == Tier::Camera);
        let run = if asks_camera && !matching.contains(&run) { first } else { run };
        // A camera that lost its counter, at an edge that does not know it, counts from 1 again. That is told.
        let anew = |told: &NotHeld| told.reason == NotHeldReason::CameraRestarted;
        let numbered_anew =
            reading.resumes && place.runs.len() <= 1 && delivery.not_held.as_ref().is_some_and(anew);
        // The first frame that counted from 1 again may have been passed over.
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

    /// Checks that what is stated as skipped before a delivery is what lies there.
    fn check_stated_gap(&mut self, delivery: &Delivery, place: &DeliveryPlace) {
        let (camera, id) = (&delivery.camera, delivery.record.frame.meta.id);
        let DeliveryPlace { edge_run, span, past, run, .. } = *place;
        match place.last {
            Some(last) if last.epoch == id.epoch => {
                self.check_gap(delivery, (edge_run, past), span, run, last);
            }
            Some(last) => self.check_gap_over_epochs(delivery, (edge_run, past), span, last),
            None => {
                // It may have passed over whole epochs before it was ready for its first frame.
                let first = FrameId { epoch: Epoch(0), sequence: Sequence(0) };
                // And over the newest of the past, which was found elsewhere, once the present has a newer one.
                let finds = place.asks && past && span.deliver == Deliver::Newest;
                let found = u64::from(finds && self.has_published_before(camera, id.epoch));
                let most = id.sequence.0 + found + self.accounted_for(edge_run, camera, first, id);
                self.expect(delivery.skipped.total() <= most, "gaps", || {
                    format!("{:?} are stated as skipped before {id}, the first of {camera}", delivery.skipped)
                });
            }
        }
    }

    /// Checks that a frame comes with what its camera said of its accuracy.
    fn check_quality(&mut self, delivery: &Delivery, quality: Quality, asks: bool) {
        let meta = &delivery.record.frame.meta;
        // Frames of the past are originals, or of the requested rung. No camera predicted their accuracy.
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

    /// Checks the end of a reading of the present. Frames that it did not get, and that the edge still holds, are counted.
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

    /// Notes that an application has lost what it held of a camera's chain. Frames that refer to it are then of no use.
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

    /// Checks that frames of chains come only to applications that decode them, and that all other frames say that they are stills.
    fn check_link(&mut self, subscription: SubscriptionId, delivery: &Delivery) {
        let meta = &delivery.record.frame.meta;
        if meta.encoding.is_chained() {
            let takes = self.readings.get(&subscription).is_none_or(|reading| reading.chains);
            return self.expect(takes, "decodable", || {
                format!("subscription {subscription:?} got {} as {}", meta.id, meta.encoding.name())
            });
        }
        // The rule `bytes` checks whether the rung is right.
        let stands_alone = meta.chain.index == 0
            && meta.chain.chain == meta.id.sequence
            && meta.chain.reference == Reference::Independent;
        self.expect(stands_alone, "quality", || format!("{} says {meta:?}, but it is a still", meta.id));
    }

    /// Checks that an application that wants originals gets nothing else.
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

    /// Checks that an application that decodes chains was first given all that a frame refers to.
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

    /// Checks that everything between two frames of one epoch is accounted for, and frames that were never sent by their reason.
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
        // Of frames that are in the replica, and of others.
        let not_decoded = skipped.of(SkipReason::NotDecoded);
        // Whoever takes the newest is not given those, and told that they came too late.
        let overtaken = self.overtaken_between(edge_run, camera, from, id);
        let ledger_full = known.ledger_full;
        // Evicted records take their counts of skipped frames with them. A span of time leaves frames out on purpose.
        if skipped.of(SkipReason::Evicted) > 0 || past {
            return;
        }
        let passed = if span.deliver == Deliver::Newest { arrived } else { 0 };
        // What a contract did not want has arrived as well, but is not told apart from what the camera did not send for its sake.
        let withheld = skipped.of(SkipReason::Infeasible);
        let told = busy + withheld + overtaken + not_decoded;
        self.expect(busy <= passed && passed <= told, "reasons", || {
            format!("{busy} frames of {camera} before {id} passed by a busy application, but it was {passed}")
        });
        // The edge's own account of frames that it did not show is bounded as well: the oldest then count as late or lost.
        let edge_full = not_decoded > 0 && gap > SKIP_RANGES_MAX as u64;
        self.expect(ledger_full || edge_full || elsewhere || late <= lost + overtaken, "reasons", || {
            format!(
                "{late} frames of {camera} between {last} and {id} are called late or lost, but of no more than {lost} \
                 it could not be known better: {skipped:?}"
            )
        });
    }

    /// How many frames of the epochs before that of `to` a replica gives account of, from the epoch of `from` on:
    /// each from its first frame to the last that the replica took.
    fn accounted_for(&self, edge_run: u64, camera: &CameraName, from: FrameId, to: FrameId) -> u64 {
        let passed = self.appended_between(edge_run, camera, from, to);
        let ends = passed.iter().zip(passed.iter().skip(1).chain([&to]));
        ends.filter(|(one, next)| one.epoch != next.epoch).map(|(one, _)| one.sequence.0 + 1).sum()
    }

    /// Where an epoch ends, nobody at the edge knows how many of its frames were still to come; but what the
    /// replica had of it is accounted for, and so is the new epoch from its first frame on.
    fn check_gap_over_epochs(
        &mut self,
        delivery: &Delivery,
        (edge_run, past): (u64, bool),
        span: Span,
        last: FrameId,
    ) {
        let (camera, id, skipped) = (&delivery.camera, delivery.record.frame.meta.id, &delivery.skipped);
        // `last` itself and what came before it were accounted for already.
        let accounted = id.sequence.0 + self.accounted_for(edge_run, camera, last, id);
        // A frame of the past may have come from the camera; then the replica gives no account of what was before it.
        let before = if past { 0 } else { last.sequence.0 + 1 };
        let most = accounted.saturating_sub(before);
        // What was evicted around the change of epochs is accounted for as far as it is known.
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
