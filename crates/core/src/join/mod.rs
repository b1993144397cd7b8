//! Joins frames with the records that were made of them.
//!
//! A [`Join`] takes the frames of some cameras, and the records of streams derived from them. It puts out each frame with its
//! records, the frames of each camera in order, and says why a frame lacks records. Every frame and every record comes out once.
//!
//! | what waits | for how long | for what |
//! | --- | --- | --- |
//! | a frame | [`JoinConfig::within`] after it came | [`JoinConfig::records`] records |
//! | a record whose frame has not come | the same | its frame |
//!
//! In the past, streams are read as fast as possible, so no clock tells how long to wait. A frame then comes out when
//! the derived streams have reached a record that is younger than the frame by [`JoinConfig::within`], or have ended.
//!
//! Waiting frames and records are bounded by number and by bytes. Live, the oldest makes room.
//! In the past, the reader is told to pause ([`Join::wants_frame`], [`Join::wants_record`]).

mod lane;
mod types;

use std::collections::{BTreeMap, VecDeque};

use self::lane::{Lane, Place, Waiting};
pub use self::types::{JoinConfig, JoinCounts, Joined, Missing, NeverMet, Stray};
use crate::data::Origin;
use crate::frame::FrameId;
use crate::name::CameraName;
use crate::units::{Instant, Timestamp};

/// The most cameras that records may name.
const CAMERAS_MAX: usize = 1024;

/// Joins frames and records. `F` and `R` are the caller's types for them.
#[derive(Debug)]
pub struct Join<F, R> {
    config: JoinConfig,
    lanes: BTreeMap<CameraName, Lane<F, R>>,
    /// Records without an origin, and others that wait for no frame.
    strays: VecDeque<(R, Stray)>,
    /// The number of waiting frames.
    frames: usize,
    /// The number of waiting records.
    records: usize,
    /// The bytes of all waiting frames and records.
    bytes: u64,
    counts: JoinCounts,
    /// The publishing time of the newest record.
    newest_record: Option<Timestamp>,
    have_frames_ended: bool,
    have_records_ended: bool,
    /// Since when nothing has matched, and what came since.
    dry: Option<(Instant, NeverMet)>,
    is_told: bool,
}

impl<F, R> Join<F, R> {
    /// An empty join.
    pub fn new(config: JoinConfig) -> Self {
        Self {
            config,
            lanes: BTreeMap::new(),
            strays: VecDeque::new(),
            frames: 0,
            records: 0,
            bytes: 0,
            counts: JoinCounts::default(),
            newest_record: None,
            have_frames_ended: false,
            have_records_ended: false,
            dry: None,
            is_told: false,
        }
    }

    /// Counts of all frames and records so far.
    pub fn counts(&self) -> JoinCounts {
        self.counts
    }

    /// The numbers of waiting frames and records, and their bytes.
    pub fn waiting(&self) -> (usize, usize, u64) {
        (self.frames, self.records, self.bytes)
    }

    /// Whether there is room for the next frame of the past.
    pub fn wants_frame(&self) -> bool {
        self.frames < self.config.frames_max && (self.bytes < self.config.bytes_max || self.frames == 0)
    }

    /// Whether there is room for the next record of the past.
    pub fn wants_record(&self) -> bool {
        self.records < self.config.records_max && (self.bytes < self.config.bytes_max || self.records == 0)
    }

    /// A frame of a camera has come.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        (camera, id, captured): (&CameraName, FrameId, Timestamp),
        frame: F,
        bytes: u64,
    ) {
        self.counts.frames += 1;
        let (_, dry) = self.dry.get_or_insert_with(|| (now, NeverMet::nothing()));
        dry.frames += 1;
        dry.camera.get_or_insert_with(|| camera.clone());
        let lane = self.lanes.entry(camera.clone()).or_default();
        let matched = lane.handle_frame(now, (id, captured), frame, bytes);
        while let Some((record, bytes)) = lane.take_skipped() {
            self.records -= 1;
            self.bytes -= bytes;
            self.strays.push_back((record, Stray::FrameSkipped));
        }
        self.frames += 1;
        self.records -= matched;
        self.bytes += bytes;
        if matched > 0 {
            self.matched(now);
        }
    }

    /// A record has come, published at `published`.
    pub fn handle_record(
        &mut self,
        now: Instant,
        (of, published): (Option<&Origin>, Timestamp),
        record: R,
        bytes: u64,
    ) {
        self.counts.records += 1;
        self.newest_record = self.newest_record.max(Some(published));
        let (_, dry) = self.dry.get_or_insert_with(|| (now, NeverMet::nothing()));
        dry.records += 1;
        dry.made_of = of.map(|of| of.camera.clone());
        let Some(of) = of else { return self.strays.push_back((record, Stray::NoOrigin)) };
        if self.lanes.len() >= CAMERAS_MAX && !self.lanes.contains_key(&of.camera) {
            return self.strays.push_back((record, Stray::NoFrame));
        }
        let lane = self.lanes.entry(of.camera.clone()).or_default();
        let expected = (self.config.records, !self.have_frames_ended);
        match lane.handle_record(now, of.frame, record, bytes, expected) {
            Place::WithFrame => {
                self.bytes += bytes;
                self.matched(now);
            }
            Place::Early => {
                self.records += 1;
                self.bytes += bytes;
            }
            Place::Nowhere(record, reason) => self.strays.push_back((record, reason)),
        }
    }

    /// The frames have ended: records no longer wait for them.
    pub fn handle_frames_ended(&mut self) {
        self.have_frames_ended = true;
        for lane in self.lanes.values_mut() {
            while let Some((record, bytes)) = lane.take_oldest_early() {
                self.records -= 1;
                self.bytes -= bytes;
                self.strays.push_back((record, Stray::NoFrame));
            }
        }
    }

    /// The derived streams have ended: frames no longer wait for records.
    pub fn handle_records_ended(&mut self) {
        self.have_records_ended = true;
    }

    /// The next output. Call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Joined<F, R>> {
        if let Some((record, reason)) = self.strays.pop_front() {
            self.counts.strays += 1;
            return Some(Joined::Stray { record, reason });
        }
        if let Some(told) = self.never_met(now) {
            return Some(Joined::NeverMet(told));
        }
        let ready = self.lanes.iter().find_map(|(camera, lane)| {
            let head = lane.head()?;
            self.is_over(now, head, lane.has_passed(head.id)).map(|missing| (camera.clone(), missing))
        });
        if let Some((camera, missing)) = ready {
            return self.give_out(&camera, missing);
        }
        if let Some(camera) = self.to_make_room() {
            return self.give_out(&camera, Some(Missing::Full));
        }
        self.stray(now)
    }

    /// When [`Join::poll`] may have an output although nothing comes.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let heads = self.lanes.values().filter_map(Lane::head).map(|head| head.came + self.config.within);
        let early = self.lanes.values().filter_map(Lane::early_since).map(|came| came + self.config.within);
        let strange = self.dry.as_ref().filter(|_| !self.is_told);
        let strange = strange.map(|(since, _)| *since + self.config.strange_after);
        let due = heads.chain(early).filter(|_| !self.config.is_past).chain(strange);
        due.min()
    }

    // ---- inside ---------------------------------------------------------------------------------------------

    fn matched(&mut self, now: Instant) {
        self.dry = Some((now, NeverMet::nothing()));
        self.is_told = false;
    }

    /// Whether a frame must come out now (`Some`), and why it lacks records, if it does. `has_passed`: records of later frames have come.
    fn is_over(&self, now: Instant, head: &Waiting<F, R>, has_passed: bool) -> Option<Option<Missing>> {
        if head.records.len() >= self.config.records {
            return Some(None);
        }
        if self.have_records_ended {
            return Some(Some(Missing::Ended));
        }
        let is_late = match self.config.is_past {
            true => self.newest_record.is_some_and(|newest| newest > head.captured + self.config.within),
            false => now >= head.came + self.config.within,
        };
        let reason = if has_passed { Missing::Passed } else { Missing::Late };
        is_late.then_some(Some(reason))
    }

    fn give_out(&mut self, camera: &CameraName, missing: Option<Missing>) -> Option<Joined<F, R>> {
        let Waiting { frame, records, bytes, .. } =
            self.lanes.get_mut(camera)?.take_head(missing.is_none())?;
        self.frames -= 1;
        self.bytes -= bytes;
        self.counts.matched += records.len() as u64;
        match missing {
            None => self.counts.whole += 1,
            Some(_) => self.counts.missing += 1,
        }
        Some(Joined::Pair { frame, records, missing })
    }

    /// The camera whose oldest frame must come out to make room.
    fn to_make_room(&self) -> Option<CameraName> {
        let JoinConfig { frames_max, bytes_max, is_past, .. } = self.config;
        let is_over_full = match is_past {
            // Neither side may be read any further.
            true => !self.wants_frame() && !self.wants_record(),
            false => self.frames > frames_max || self.bytes > bytes_max && self.frames + self.records > 1,
        };
        let oldest = |(camera, lane): (&CameraName, &Lane<F, R>)| Some((lane.head()?.came, camera.clone()));
        let oldest = self.lanes.iter().filter_map(oldest).min();
        oldest.filter(|_| is_over_full).map(|(_, camera)| camera)
    }

    /// A record that has waited too long for its frame, or that must make room.
    fn stray(&mut self, now: Instant) -> Option<Joined<F, R>> {
        let JoinConfig { records_max, bytes_max, within, is_past, .. } = self.config;
        let oldest = |(camera, lane): (&CameraName, &Lane<F, R>)| Some((lane.early_since()?, camera.clone()));
        let (since, camera) = self.lanes.iter().filter_map(oldest).min()?;
        let is_full = self.records > records_max || self.bytes > bytes_max && self.frames + self.records > 1;
        let reason = match (is_past, is_full) {
            (false, true) => Stray::Full,
            (false, false) if now >= since + within => Stray::NoFrame,
            // Frames of the past come until they end.
            _ => return None,
        };
        let (record, bytes) = self.lanes.get_mut(&camera)?.take_oldest_early()?;
        self.records -= 1;
        self.bytes -= bytes;
        self.counts.strays += 1;
        Some(Joined::Stray { record, reason })
    }

    fn never_met(&mut self, now: Instant) -> Option<NeverMet> {
        let (since, dry) = self.dry.as_ref().filter(|_| !self.is_told)?;
        let lasts = now.saturating_since(*since);
        // If nothing comes at all, the streams are idle, which is no mismatch.
        if lasts < self.config.strange_after || dry.frames + dry.records == 0 {
            return None;
        }
        let told = NeverMet { lasts, ..dry.clone() };
        self.is_told = true;
        Some(told)
    }
}

#[cfg(test)]
mod tests;
