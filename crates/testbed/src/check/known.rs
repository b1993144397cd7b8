//! Holds what the rules remember of what they were shown: frames, readings, contracts.

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

/// The ten seconds over which accuracies are averaged, less what clocks may differ by in them.
const MEASURED_MIN: Duration = ms(9_998);
/// The ten seconds, and what clocks may differ by in them.
const MEASURED_MAX: Duration = ms(10_002);

/// A frame that is taken sooner than this after it was handed over, and a little, counts from the latter.
const TAKEN_SOON: Duration = ms(501);

/// The sliding second of contracts, less what clocks may differ by in it. A frame at its border may count or not.
pub(super) const WINDOW_MIN: Duration = ms(999);
/// The sliding second, and what clocks may differ by in it.
pub(super) const WINDOW_MAX: Duration = ms(1_001);

// ---- frames -----------------------------------------------------------------------------------------------

/// What one process published in one epoch; its sequence is the index.
pub(super) struct Run {
    pub(super) run: u64,
    pub(super) frames: Vec<PublishedFrame>,
    /// Whether the process learned that another start had the epoch, and began a later one.
    pub(super) given_up: bool,
    /// Whether the camera had more skipped frames to tell of than a header holds, so that some reasons are lost.
    pub(super) ledger_full: bool,
}

pub(super) struct PublishedFrame {
    pub(super) payload: Bytes,
    /// Its width and height.
    pub(super) pixels: (u32, u32),
    /// The frames that a codec made of it, by rung.
    pub(super) made: Option<(Rung, Bytes)>,
    /// How that is coded, and to which frame it refers.
    pub(super) encoding: Encoding,
    /// Whether it was published as a picture of its source's own video.
    pub(super) is_video: bool,
    pub(super) refers: Option<Sequence>,
    /// The first frame of the chain in which it was sent.
    pub(super) chain: Option<Sequence>,
    /// The connection that it was given to.
    pub(super) carrier: Option<LinkId>,
    pub(super) captured: Timestamp,
    pub(super) at: Moment,
    /// When it was given to a link.
    pub(super) sent: Option<Moment>,
    /// What its header said of how good it is.
    pub(super) quality: Quality,
    /// When the camera knew that it would not arrive, or gave it up.
    pub(super) given_up: Option<Moment>,
}

/// The chain that a connection carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Its first frame.
    pub(super) chain: Sequence,
    /// Since when the edge wants another.
    pub(super) asked: Option<Moment>,
}

impl PublishedFrame {
    /// Whether a payload is this frame, or one that was made of it, with the right rung and published size.
    pub(super) fn is(&self, meta: &FrameMeta, payload: &Bytes) -> bool {
        let form = meta.rung.setting().map(|setting| setting.form);
        let named = match &self.made {
            // What knobs make is known without asking who made it.
            _ if let Ok(Form::Data(knobs)) = &form => {
                degraded(&self.payload, knobs).is_some_and(|degraded| degraded == *payload)
            }
            Some((rung, made)) if *rung == meta.rung => same(made, payload),
            _ if meta.rung.setting().is_ok_and(|setting| setting.form == Form::Original) => {
                (meta.width, meta.height) == self.pixels && same(&self.payload, payload)
            }
            _ => false,
        };
        // It may be a frame of the past, at a rung at which another codec made it for the present.
        let is_of_past_video = self.is_video && meta.rung == still_of_video().rung();
        let is_of_past = meta.rung.as_str() == PAST_RUNG || is_of_past_video;
        let named = named || is_of_past && same(&reduced(&self.payload), payload);
        named && self.captured == meta.captured && self.pixels == meta.published
    }
}

/// How a camera's process uses its link for the past.
#[derive(Default)]
pub(super) struct Use {
    /// When the frame that was given last was given.
    pub(super) begun: Option<Moment>,
    /// Before this the link belongs to others.
    pub(super) rests_until: Option<Moment>,
}

// ---- readings ---------------------------------------------------------------------------------------------

/// What one subscription was given so far.
pub(crate) struct Reading {
    pub(super) edge_run: u64,
    pub(super) span: Span,
    pub(super) tier_max: Tier,
    /// Whether it also asks for what lies between frames of the present.
    pub(super) fills: bool,
    /// Whether it resumes after frames that it has.
    pub(super) resumes: bool,
    /// Whether its application decodes chains itself.
    pub(super) chains: bool,
    /// Whether it wants originals, and nothing else.
    pub(super) originals: bool,
    pub(super) places: BTreeMap<CameraName, Place>,
}

#[derive(Default)]
pub(super) struct Place {
    pub(super) last: Option<FrameId>,
    /// How many frames its edge's replica had had when it began, if it resumes.
    pub(super) past: usize,
    /// The run whose frames it gets, by epoch.
    pub(super) runs: BTreeMap<Epoch, u64>,
    /// Frames of chains that it was given.
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
    /// Who was given it, in order.
    pub(super) holders: Vec<MemberId>,
    /// When it was given last, and until when it is that member's alone.
    pub(super) at: Moment,
    pub(super) until: Moment,
    /// When it was given first.
    pub(super) given: Moment,
    /// When it ended.
    pub(super) ended: Option<Moment>,
    /// Whether it comes as a still that had to be made.
    pub(super) is_made: bool,
    /// How often it was given.
    pub(super) tries: usize,
    /// Whether the rules do not know all who were given it, because the power was cut since, or whose it is now.
    pub(super) is_unsure: bool,
}

/// A group as its members see it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) options: Option<GroupOptions>,
    pub(super) records: BTreeMap<(CameraName, FrameId), Fate>,
    /// The newest record that was given, of each camera.
    pub(super) lanes: BTreeMap<CameraName, FrameId>,
    /// Since when members are away.
    pub(super) away: BTreeMap<MemberId, Moment>,
    /// What members are to be told of the place that they knew before.
    pub(super) place: Option<PlaceTold>,
    /// Whether the power was cut since the process before.
    pub(super) is_unsure: bool,
    pub(super) account: Account,
    /// Since when some member is free whenever the rules look.
    pub(super) free_since: Option<Moment>,
}

impl Shared {
    pub(super) fn options(&self) -> GroupOptions {
        self.options.unwrap_or(GroupOptions::EVERY)
    }

    /// Until when a record is its last member's alone.
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
    /// Who publishes it now.
    pub(super) publishers: BTreeMap<PublisherId, Bearer>,
    /// The newest epoch, and the run of the edge in which it began.
    pub(super) begun: Option<(Epoch, u64)>,
    /// What each record was made of.
    pub(super) made_of: BTreeMap<FrameId, Origin>,
    /// The newest record.
    pub(super) newest: Option<(FrameId, Timestamp)>,
}

// ---- contracts --------------------------------------------------------------------------------------------

/// What one application was promised and got.
pub(crate) struct Kept {
    pub(super) contract: Contract,
    /// Since when it is watched. What was handed over before is forgotten.
    pub(super) since: Moment,
    pub(super) profile: Option<SizedProfile>,
    /// The frames of each camera in the last second: when they came, and whether they were clearly late.
    pub(super) frames: BTreeMap<CameraName, VecDeque<(Moment, bool)>>,
    /// The frames of each camera that it has taken lately, by its client library.
    pub(super) taken: BTreeMap<CameraName, VecDeque<Taken>>,
    /// Since when no frame has come on time.
    pub(super) unkept_since: Moment,
    /// The state that it was told last, of each camera.
    pub(super) states: BTreeMap<CameraName, ContractState>,
    /// The accuracies that it measured, by camera.
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

    /// How many frames the application has taken lately, and how many of these were clearly late in its hands.
    pub(super) fn takes_late(&mut self, camera: &CameraName, now: Moment) -> (usize, usize) {
        let Some(taken) = self.taken.get_mut(camera) else { return (0, 0) };
        while taken.front().is_some_and(|frame| now.since(frame.taken) >= WINDOW_MAX) {
            taken.pop_front();
        }
        // A frame counts from when it was handed over, or, if it was taken much later, from then on.
        let counts = |frame: &&Taken| {
            let soon = frame.taken.since(frame.handed) < TAKEN_SOON;
            now.since(if soon { frame.handed } else { frame.taken }) < WINDOW_MIN
        };
        (taken.len(), taken.iter().filter(|frame| frame.late).filter(counts).count())
    }

    /// Whether the accuracies that the application measured in the last ten seconds lie below its floor, wherever exactly the ten
    /// seconds begin and however sums are rounded.
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
    /// It was clearly late.
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
    /// Whether an application may do something.
    pub(super) fn allows(&self, who: &Bearer, verb: Verb, camera: &CameraName) -> bool {
        let grants = |grant: &Grant| {
            grant.grantee.includes(who) && grant.verb == verb && grant.cameras.matches(camera)
        };
        // Worlds hold what an open site lets every application do.
        self.stance == Stance::Open || self.grants.iter().any(grants)
    }

    /// All that is granted to somebody.
    pub(super) fn of(&self, who: &Bearer) -> (Stance, Vec<Grant>) {
        let of_it = self.grants.iter().filter(|grant| grant.grantee.includes(who));
        (self.stance, of_it.cloned().collect())
    }
}

/// Whose a subscription is.
pub(super) struct Holder {
    pub(super) edge: usize,
    pub(super) who: Bearer,
    /// Whether it asked for the past.
    pub(super) reads: bool,
    /// Whether it wants the originals of the newest frames.
    pub(super) originals: bool,
    /// The newest frame of each camera that the edge had when it began.
    pub(super) before: BTreeMap<CameraName, FrameId>,
    /// What was granted then.
    pub(super) granted: (Stance, Vec<Grant>),
    /// What it showed.
    pub(super) certificate: Certificate,
}

// ---- revocations --------------------------------------------------------------------------------------------

/// The lists that an edge has heard of.
#[derive(Default)]
pub(super) struct Heard {
    /// Each newer than the one before, and the moment by which it has to be in force.
    pub(super) lists: Vec<(Moment, Revocations)>,
    /// Whether its host stands still, or its process does not run.
    pub(super) stands_still: bool,
}

impl Heard {
    /// The lists of which one must be in force at this moment. What has come at this very moment need not be.
    fn possible(&self, now: Moment) -> &[(Moment, Revocations)] {
        let settled = self.lists.iter().rposition(|(due, _)| *due < now).unwrap_or(0);
        &self.lists[settled..]
    }

    /// Whether the certificate is denied, whichever list is in force.
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

/// Whether a list names a certificate, or its member with all certificates until a later moment.
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
    /// Since when it has carried nothing, and brought nothing.
    pub(super) silent_since: Option<Moment>,
    /// When its last silence ended.
    pub(super) back: Option<Moment>,
    /// Frames that have reached an edge since then.
    pub(super) whole: BTreeSet<FrameId>,
    /// Those of them from before that, which applications got.
    pub(super) stale: Vec<(usize, FrameId)>,
}

/// How the links of cameras carry.
pub(super) type Links = BTreeMap<CameraName, Carries>;
