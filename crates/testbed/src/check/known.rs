//! Holds what the rules remember: frames, readings, contracts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use mez_core::broker::LinkId;
use mez_core::broker::edge::PublisherId;
use mez_core::contract::{Contract, ContractState};
use mez_core::data::Origin;
use mez_core::frame::{Encoding, Epoch, FrameId, FrameMeta, Quality, Rung, Sequence};
use mez_core::group::session::PlaceTold;
use mez_core::group::{Account, GroupOptions, MemberId};
use mez_core::history::{Tier, still_of_video};
use mez_core::name::CameraName;
use mez_core::profile::SizedProfile;
use mez_core::revocation::{Certificate, Revocations, Subject};
use mez_core::rights::{Bearer, Grant, Stance, Verb};
use mez_core::setting::Form;
use mez_core::subscription::{LastFrame, Span};
use mez_core::units::Timestamp;

use crate::payload::{PAST_RUNG, degraded, reduced};
use crate::time::{Moment, ms};

/// The ten seconds over which accuracies are averaged, minus the difference that clocks may have over them.
const MEASURED_MIN: Duration = ms(9_998);
/// The ten seconds over which accuracies are averaged, plus the difference that clocks may have over them.
const MEASURED_MAX: Duration = ms(10_002);

/// A frame taken within 500 ms after it was handed over counts from then on. The rest is a margin.
const TAKEN_SOON: Duration = ms(501);

/// The sliding second of contracts, minus the difference that clocks may have over it. A frame at its border may count or not.
pub(super) const WINDOW_MIN: Duration = ms(999);
/// The sliding second of contracts, plus the difference that clocks may have over it.
pub(super) const WINDOW_MAX: Duration = ms(1_001);

// ---- frames -----------------------------------------------------------------------------------------------

/// What one process published in one epoch. The index is the sequence.
pub(super) struct Run {
    pub(super) run: u64,
    pub(super) frames: Vec<PublishedFrame>,
    /// Whether the process learned that another start had the epoch, and began a later one.
    pub(super) given_up: bool,
    /// Whether a header had no room for all ranges of skipped frames, so that some reasons are lost.
    pub(super) ledger_full: bool,
}

pub(super) struct PublishedFrame {
    pub(super) payload: Bytes,
    /// Width and height of the frame.
    pub(super) pixels: (u32, u32),
    /// What a codec made of the frame, and its rung.
    pub(super) made: Option<(Rung, Bytes)>,
    /// The encoding of the frame as sent.
    pub(super) encoding: Encoding,
    /// Whether the frame was published as a picture of its source's own video.
    pub(super) is_video: bool,
    pub(super) refers: Option<Sequence>,
    /// The first frame of the chain in which the frame was sent.
    pub(super) chain: Option<Sequence>,
    /// The connection on which the frame was sent.
    pub(super) carrier: Option<LinkId>,
    pub(super) captured: Timestamp,
    pub(super) at: Moment,
    /// When the sending began.
    pub(super) sent: Option<Moment>,
    /// The quality that the header stated.
    pub(super) quality: Quality,
    /// When the camera gave the frame up, or learned that it would not arrive.
    pub(super) given_up: Option<Moment>,
}

/// The chain of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The first frame of the chain.
    pub(super) chain: Sequence,
    /// Since when the edge wants another chain.
    pub(super) asked: Option<Moment>,
}

impl PublishedFrame {
    /// Whether a payload is this frame, or was encoded from it, with the right rung and published size.
    pub(super) fn is(&self, meta: &FrameMeta, payload: &Bytes) -> bool {
        let form = meta.rung.setting().map(|setting| setting.form);
        let named = match &self.made {
            // The result of knobs is computed from the published record.
            _ if let Ok(Form::Data(knobs)) = &form => {
                degraded(&self.payload, knobs).is_some_and(|degraded| degraded == *payload)
            }
            Some((rung, made)) if *rung == meta.rung => same(made, payload),
            _ if meta.rung.setting().is_ok_and(|setting| setting.form == Form::Original) => {
                (meta.width, meta.height) == self.pixels && same(&self.payload, payload)
            }
            _ => false,
        };
        // The payload may be a frame of the past at a rung that a codec also made for the present.
        let is_of_past_video = self.is_video && meta.rung == still_of_video().rung();
        let is_of_past = meta.rung.as_str() == PAST_RUNG || is_of_past_video;
        let named = named || is_of_past && same(&reduced(&self.payload), payload);
        named && self.captured == meta.captured && self.pixels == meta.published
    }
}

/// How a camera's process uses its link for frames of the past.
#[derive(Default)]
pub(super) struct Use {
    /// When the last frame began to be sent.
    pub(super) begun: Option<Moment>,
    /// Until when the link belongs to other frames.
    pub(super) rests_until: Option<Moment>,
}

// ---- readings ---------------------------------------------------------------------------------------------

/// What one subscription was given so far.
pub(crate) struct Reading {
    pub(super) edge_run: u64,
    pub(super) span: Span,
    pub(super) tier_max: Tier,
    /// Whether the reading also asks for missing frames between frames of the present.
    pub(super) fills: bool,
    /// Whether the reading resumes after earlier frames.
    pub(super) resumes: bool,
    /// Whether the application decodes chains itself.
    pub(super) chains: bool,
    /// Whether the application wants only originals.
    pub(super) originals: bool,
    pub(super) places: BTreeMap<CameraName, Place>,
}

#[derive(Default)]
pub(super) struct Place {
    pub(super) last: Option<FrameId>,
    /// For a reading that resumes: how many frames its edge's replica had had when the reading began.
    pub(super) past: usize,
    /// The run that published the frames of each epoch.
    pub(super) runs: BTreeMap<Epoch, u64>,
    /// Frames of chains that the reading was given.
    pub(super) given: BTreeSet<FrameId>,
}

impl Reading {
    pub(crate) fn new(
        edge_run: u64,
        span: Span,
        (tier_max, fills): (Tier, bool),
        (chains, originals): (bool, bool),
        has: &BTreeMap<CameraName, LastFrame>,
    ) -> Self {
        let place = |last: &LastFrame| Place { last: Some(last.id), ..Place::default() };
        let places = has.iter().map(|(camera, last)| (camera.clone(), place(last))).collect();
        Self { edge_run, span, tier_max, fills, resumes: !has.is_empty(), chains, originals, places }
    }
}

// ---- groups -----------------------------------------------------------------------------------------------

/// A record of a group.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    /// The members that were given the record, in order.
    pub(super) holders: Vec<MemberId>,
    /// When the record was given last, and until when only that member has it.
    pub(super) at: Moment,
    pub(super) until: Moment,
    /// When the record was given first.
    pub(super) given: Moment,
    /// When the record ended.
    pub(super) ended: Option<Moment>,
    /// Whether the record comes as a still that had to be made.
    pub(super) is_made: bool,
    /// How often the record was given.
    pub(super) tries: usize,
    /// Whether the rules do not know all holders, after a power cut, or the present holder.
    pub(super) is_unsure: bool,
}

/// A group as its members see it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) options: Option<GroupOptions>,
    pub(super) records: BTreeMap<(CameraName, FrameId), Fate>,
    /// The newest record given of each camera.
    pub(super) lanes: BTreeMap<CameraName, FrameId>,
    /// Since when members are away.
    pub(super) away: BTreeMap<MemberId, Moment>,
    /// What joining members should be told about the place that they know.
    pub(super) place: Option<PlaceTold>,
    /// Whether the power was cut before the present process.
    pub(super) is_unsure: bool,
    pub(super) account: Account,
    /// Since when a member was free whenever the rules looked.
    pub(super) free_since: Option<Moment>,
    /// Since when a member could be given a record whenever the rules looked, in a group that waits for fresh records.
    pub(super) ready_since: Option<Moment>,
    /// The newest record of each camera in the edge's log, and since when it is there, in such a group.
    pub(super) newest_since: BTreeMap<CameraName, (FrameId, Moment)>,
}

impl Shared {
    pub(super) fn options(&self) -> GroupOptions {
        self.options.unwrap_or(GroupOptions::EVERY)
    }

    /// Until when only its last member has a record.
    pub(super) fn alone_until(&self, fate: &Fate) -> Moment {
        let Some(holder) = fate.holders.last() else { return fate.until };
        let away = self.away.get(holder).map(|away| *away + self.options().away_max);
        away.map_or(fate.until, |away| fate.until.min(away))
    }

    pub(super) fn open(&self) -> usize {
        self.records.values().filter(|fate| fate.ended.is_none()).count()
    }
}

// ---- derived streams --------------------------------------------------------------------------------------

/// A derived stream as its publishers see it.
#[derive(Default)]
pub(super) struct Stream {
    /// The present publishers.
    pub(super) publishers: BTreeMap<PublisherId, Bearer>,
    /// The newest epoch, and the edge's run in which it began.
    pub(super) begun: Option<(Epoch, u64)>,
    /// The origin of each record.
    pub(super) made_of: BTreeMap<FrameId, Origin>,
    /// The newest record.
    pub(super) newest: Option<(FrameId, Timestamp)>,
}

// ---- contracts --------------------------------------------------------------------------------------------

/// What one application was promised and got.
pub(crate) struct Kept {
    pub(super) contract: Contract,
    /// Since when the contract is watched. Earlier deliveries do not count.
    pub(super) since: Moment,
    pub(super) profile: Option<SizedProfile>,
    /// The frames of each camera in the last second: when they came, and whether they were clearly late.
    pub(super) frames: BTreeMap<CameraName, VecDeque<(Moment, bool)>>,
    /// The frames of each camera that the application has lately taken from its client library.
    pub(super) taken: BTreeMap<CameraName, VecDeque<Taken>>,
    /// Since when no frame has come in time.
    pub(super) unkept_since: Moment,
    /// The last state that the application was told for each camera.
    pub(super) states: BTreeMap<CameraName, ContractState>,
    /// The accuracies that the application measured, by camera.
    pub(super) measured: BTreeMap<CameraName, VecDeque<(Moment, f64)>>,
}

impl Kept {
    pub(crate) fn new(contract: Contract, profile: Option<SizedProfile>, now: Moment) -> Self {
        Self {
            contract,
            since: now,
            profile,
            frames: BTreeMap::new(),
            taken: BTreeMap::new(),
            unkept_since: now,
            states: BTreeMap::new(),
            measured: BTreeMap::new(),
        }
    }

    /// How many frames the application has lately taken, and how many of these were clearly late when taken.
    pub(super) fn takes_late(&mut self, camera: &CameraName, now: Moment) -> (usize, usize) {
        let Some(taken) = self.taken.get_mut(camera) else { return (0, 0) };
        while taken.front().is_some_and(|frame| now.since(frame.taken) >= WINDOW_MAX) {
            taken.pop_front();
        }
        // A frame counts from its handover, or from its taking, if it was taken much later.
        let counts = |frame: &&Taken| {
            let soon = frame.taken.since(frame.handed) < TAKEN_SOON;
            now.since(if soon { frame.handed } else { frame.taken }) < WINDOW_MIN
        };
        (taken.len(), taken.iter().filter(|frame| frame.late).filter(counts).count())
    }

    /// Whether the accuracies measured in the last ten seconds are clearly below the floor, regardless of
    /// rounding and of the exact begin of the ten seconds.
    pub(super) fn misses_floor(&mut self, camera: &CameraName, now: Moment) -> bool {
        let (Some(floor), Some(measured)) = (self.contract.accuracy_floor, self.measured.get_mut(camera))
        else {
            return false;
        };
        while measured.front().is_some_and(|(at, _)| now.since(*at) > MEASURED_MAX) {
            measured.pop_front();
        }
        let clear = measured.iter().all(|(at, _)| now.since(*at) < MEASURED_MIN);
        let sum: f64 = measured.iter().map(|(_, accuracy)| accuracy).sum();
        clear && !measured.is_empty() && sum / (measured.len() as f64) < floor - 1e-9
    }
}

/// A frame that an application has taken from its client library.
pub(super) struct Taken {
    pub(super) handed: Moment,
    pub(super) taken: Moment,
    /// Whether the frame was clearly late.
    pub(super) late: bool,
}

/// Compares two payloads. They are windows of one block, so equal bytes are mostly at the same address.
fn same(a: &Bytes, b: &Bytes) -> bool {
    a.len() == b.len() && (a.as_ptr() == b.as_ptr() || a == b)
}

// ---- grants -------------------------------------------------------------------------------------------------

/// What an edge's operator grants.
pub(super) struct Granting {
    pub(super) stance: Stance,
    pub(super) grants: Vec<Grant>,
}

impl Granting {
    /// Whether an application may do something with a camera.
    pub(super) fn allows(&self, who: &Bearer, verb: Verb, camera: &CameraName) -> bool {
        let grants = |grant: &Grant| {
            grant.grantee.includes(who) && grant.verb == verb && grant.cameras.matches(camera)
        };
        // Applications in worlds only need what an open site allows.
        self.stance == Stance::Open || self.grants.iter().any(grants)
    }

    /// All grants of an application.
    pub(super) fn of(&self, who: &Bearer) -> (Stance, Vec<Grant>) {
        let of_it = self.grants.iter().filter(|grant| grant.grantee.includes(who));
        (self.stance, of_it.cloned().collect())
    }
}

/// The holder of a subscription.
pub(super) struct Holder {
    pub(super) edge: usize,
    pub(super) who: Bearer,
    /// Whether the subscription asked for the past.
    pub(super) reads: bool,
    /// Whether the application wants the originals of the newest frames.
    pub(super) originals: bool,
    /// The newest frame of each camera that the edge had when the subscription began.
    pub(super) before: BTreeMap<CameraName, FrameId>,
    /// The grants at the beginning of the subscription.
    pub(super) granted: (Stance, Vec<Grant>),
    /// The certificate that the application presented.
    pub(super) certificate: Certificate,
}

// ---- revocations --------------------------------------------------------------------------------------------

/// The deny lists that an edge has received.
#[derive(Default)]
pub(super) struct Heard {
    /// The lists, each newer than the one before, with the moment by which it must be in force.
    pub(super) lists: Vec<(Moment, Revocations)>,
    /// Whether the edge's host is frozen, or its process does not run.
    pub(super) stands_still: bool,
}

impl Heard {
    /// The lists of which one must be in force at this moment. A list that has come at this very moment need not be.
    fn possible(&self, now: Moment) -> &[(Moment, Revocations)] {
        let settled = self.lists.iter().rposition(|(due, _)| *due < now).unwrap_or(0);
        &self.lists[settled..]
    }

    /// Whether the certificate is denied, whichever possible list is in force.
    pub(super) fn must_deny(&self, now: Moment, certificate: &Certificate) -> bool {
        let possible = self.possible(now);
        possible.first().is_some_and(|(due, _)| *due < now)
            && possible.iter().all(|(_, list)| denies(list, certificate))
    }

    /// Whether a list that may be in force denies the certificate.
    pub(super) fn may_deny(&self, now: Moment, certificate: &Certificate) -> bool {
        self.possible(now).iter().any(|(_, list)| denies(list, certificate))
    }
}

/// Whether a list names a certificate, or the member with all certificates up to a later moment.
pub(super) fn denies(list: &Revocations, certificate: &Certificate) -> bool {
    list.entries().any(|(subject, entry)| match subject {
        Subject::Serial(serial) => serial == certificate.serial,
        Subject::Member(member) => member == certificate.member && certificate.issued <= entry.since,
    })
}

// ---- links --------------------------------------------------------------------------------------------------

/// How a camera's link carries.
#[derive(Default)]
pub(super) struct Carries {
    /// Since when the link has carried nothing, and no bytes have arrived.
    pub(super) silent_since: Option<Moment>,
    /// When the last silence ended.
    pub(super) back: Option<Moment>,
    /// Frames that have reached an edge since the last silence ended.
    pub(super) whole: BTreeSet<FrameId>,
    /// Frames from before the end of the silence that applications got after it.
    pub(super) stale: Vec<(usize, FrameId)>,
}

/// How the links of cameras carry.
pub(super) type Links = BTreeMap<CameraName, Carries>;
