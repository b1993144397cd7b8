//! Serves the members of one group: takes records from the group's one session,
//! finds records that are given again, and names the member that gets each record.
//!
//! A [`GroupSession`] lives as long as its group is known. While the group has members, it is open: it then holds a
//! [`Session`], which the edge broker knows as one subscription. It has no input or output of its own. An edge drives it:
//!
//! 1. When the first member is admitted ([`Groups::admit`](super::members::Groups::admit)), it asks the broker for the subscription that
//!    [`GroupSession::asked_for`] returns, and calls [`GroupSession::open`]. When the last one has gone, it calls [`GroupSession::close`].
//! 2. It reports what members do ([`GroupSession::join`] and others), and what happens to the session
//!    ([`GroupSession::handle_attach`] and others).
//! 3. When something was reported, a log has grown, or [`GroupSession::poll_timeout`] has passed, it calls [`GroupSession::poll`] until
//!    that returns nothing. Then it calls [`GroupSession::poll_question`] until that returns nothing, and finds the answers.
//! 4. Before it passes on any output or question, it writes down what [`GroupSession::poll_change`] returns, if the group keeps its
//!    place ([`GroupOptions::keeps_place`]) and the edge has a disk.
//!
//! Members get stills, because a frame of a chain is useless without the frames before it, which other members may get.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Acknowledged, Change, Given, Group, GroupError, GroupOptions, LostReason, MemberId, Place};
use crate::broker::edge::SubscriptionId;
use crate::contract::monitor::TakenReport;
use crate::contract::watch::{Change as ContractChange, FrameVerdict};
use crate::frame::{ChainKinds, FrameId, Sequence, SkipCounts};
use crate::history::{PastAnswer, PastOptions, PastQuery, Tier};
use crate::log::{LogReader, Record};
use crate::name::CameraName;
use crate::profile::SizedProfile;
use crate::session::{FrameTimes, KnownCameras, Session, SessionOutput};
use crate::stills::{StillAnswer, StillQuery};
use crate::subscription::{Deliver, Delivery, Span, SubscriptionSpec};
use crate::units::{ClockAnchor, Instant};

/// The most records to be given again that are looked for at once.
pub const LOOKED_FOR_MAX: usize = 16;

/// The life of a group, which changes if its place is made anew or read from disk. The number is drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(pub u128);

/// What has become of the group's place, as told to a member that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceTold {
    /// The group continues where it was, or begins now.
    Kept,
    /// The edge was restarted, and has read the place from its disk. The last changes may be missing: their records come again.
    Restored,
    /// The edge was restarted without the place, because it writes none, or the group was
    /// forgotten. Records that were open do not come again, and the group begins now.
    Lost,
}

/// The answer to a member that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The present life of the group. The member names it when it joins again.
    pub life: Life,
    /// What has become of the place since the life that the member knew.
    pub place: PlaceTold,
    /// Whether the place outlives a restart of the edge. False without a disk, and for a group of the newest, which has no place.
    pub survives: bool,
}

/// An output of a group for its members.
#[derive(Clone, Debug)]
pub enum GroupOutput {
    /// A record for one member.
    Record(Box<GivenRecord>),
    /// The state of the contract on a camera has changed. All members are told. If this ends the session, all members leave.
    Contract(ContractChange),
    /// No new record is given until records are settled, because too many are not. All members are told.
    HeldBack {
        /// How many records are given and not settled.
        open: usize,
    },
    /// New records are given again after [`GroupOutput::HeldBack`]. All members are told.
    GoesOn,
}

/// A record for a member.
#[derive(Clone, Debug)]
pub struct GivenRecord {
    /// The member that gets it, and the number of the try.
    pub given: Given,
    /// The record. Skipped frames before it are reported with its first try only.
    pub delivery: Delivery,
    /// When the record was captured and passed each stage.
    pub times: FrameTimes,
    /// The verdict of the contract on the record, if a contract is watched.
    pub verdict: Option<FrameVerdict>,
}

/// The purpose of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// For the group's session.
    Session,
    /// For a record that is to be given again.
    Again(FrameId),
}

/// A frame that the edge has to find.
#[derive(Clone, Debug)]
pub enum GroupQuestion {
    /// The still of a frame in memory. The answer goes to [`GroupSession::handle_still`].
    Still(CameraName, StillQuery),
    /// A frame that memory does not hold. The answer goes to [`GroupSession::handle_past`].
    Past(CameraName, For, PastQuery),
}

/// The state of the search for a record that is to be given again.
#[derive(Clone, Debug)]
enum Step {
    /// Memory is to be asked.
    Memory,
    /// The disk is to be asked.
    Disk,
    /// The question was asked, and the answer is still to come.
    Asked,
    /// The record was found, with the log that holds it.
    Found(Box<Record>, Option<LogReader>),
}

/// A record that is looked for.
struct Looked {
    camera: CameraName,
    frame: FrameId,
    step: Step,
    /// Why the record is lost if it is not found.
    why: LostReason,
}

/// The session that is open while the group has members.
struct Reading {
    id: SubscriptionId,
    spec: SubscriptionSpec,
    session: Session,
}

/// A group as an edge serves it.
pub struct GroupSession {
    group: Group,
    life: Life,
    /// Whether the place was read from disk.
    restored: bool,
    /// Whether changes are written to disk.
    on_disk: bool,
    reading: Option<Reading>,
    /// Records that are looked for, at most [`LOOKED_FOR_MAX`].
    looked_for: VecDeque<Looked>,
    /// Whether members were last told that the group is held back.
    held_back: bool,
    /// Frames that were skipped before records that were given, since the start of the edge.
    skipped: SkipCounts,
}

impl GroupSession {
    /// A group that begins now, in this life. `on_disk`: whether the edge writes its changes to disk.
    pub fn new(now: Instant, options: GroupOptions, life: Life, on_disk: bool) -> Self {
        Self {
            group: Group::new(now, options, Place::new()),
            life,
            restored: false,
            on_disk,
            reading: None,
            looked_for: VecDeque::new(),
            held_back: false,
            skipped: SkipCounts::default(),
        }
    }

    /// A group that continues at a place that was read from disk.
    pub fn restored(now: Instant, options: GroupOptions, life: Life, place: Place) -> Self {
        let group = Group::new(now, options, place);
        Self { group, restored: true, ..Self::new(now, options, life, true) }
    }

    // ---- what is known ------------------------------------------------------------------------------------

    /// The group: its place, members and account.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Which life of the group this is.
    pub fn life(&self) -> Life {
        self.life
    }

    /// Frames that were skipped before records that were given.
    pub fn skipped(&self) -> &SkipCounts {
        &self.skipped
    }

    /// Its subscription, while it is open.
    pub fn subscription(&self) -> Option<SubscriptionId> {
        self.reading.as_ref().map(|reading| reading.id)
    }

    /// The subscription's request, while it is open.
    pub fn spec(&self) -> Option<&SubscriptionSpec> {
        self.reading.as_ref().map(|reading| &reading.spec)
    }

    // ---- opening and closing ------------------------------------------------------------------------------

    /// The subscription that a group asks the broker for. `spec` and `options` are the request of its members.
    ///
    /// A group of every record reads the past that the edge holds, after the last record that
    /// was given. So no contract is watched, and members need the right to read the past.
    pub fn asked_for(
        &self,
        clock: ClockAnchor,
        spec: SubscriptionSpec,
        options: &GroupOptions,
    ) -> SubscriptionSpec {
        let every = options.keeps_place();
        let span = match options.deliver {
            Deliver::Every => Span { begin: Some(clock.wall), end: None, deliver: Deliver::Every },
            Deliver::Newest => Span::LIVE,
        };
        let past =
            PastOptions { tier_max: if every { Tier::Disk } else { Tier::Memory }, ..PastOptions::default() };
        let after = if every { self.group.place().after().collect() } else { Vec::new() };
        SubscriptionSpec { span, past, after, chains: ChainKinds::NONE, ..spec }
    }

    /// Begins to read, as [`GroupSession::asked_for`] says, with the same options.
    pub fn open(
        &mut self,
        clock: ClockAnchor,
        (id, spec): (SubscriptionId, SubscriptionSpec),
        options: GroupOptions,
        profile: Option<Arc<SizedProfile>>,
    ) {
        self.group.set_options(options);
        let session = Session::at_edge(clock, &spec, id, profile);
        let session = if options.fresh { session.preferring_fresh() } else { session };
        self.reading = Some(Reading { id, spec, session });
    }

    /// Stops reading. Records that are given stay given.
    pub fn close(&mut self) -> Option<SubscriptionId> {
        self.looked_for.drain(..).for_each(|looked| self.group.handle_put_off(&looked.camera, looked.frame));
        self.reading.take().map(|reading| reading.id)
    }

    // ---- what members do ----------------------------------------------------------------------------------

    /// A member is here, for the first time or again. `knows`: the life of the group in which it was a member before.
    ///
    /// # Errors
    /// [`GroupError::Full`].
    pub fn join(&mut self, member: MemberId, knows: Option<Life>) -> Result<Joined, GroupError> {
        self.group.handle_join(member)?;
        let keeps = self.group.options().keeps_place();
        let place = match knows {
            Some(life) if life != self.life && keeps && self.restored => PlaceTold::Restored,
            Some(life) if life != self.life && keeps => PlaceTold::Lost,
            _ => PlaceTold::Kept,
        };
        Ok(Joined { life: self.life, place, survives: keeps && self.on_disk })
    }

    /// [`Group::handle_ready`].
    ///
    /// # Errors
    /// [`GroupError::NoMember`].
    pub fn ready(&mut self, member: MemberId, records: u32) -> Result<(), GroupError> {
        self.group.handle_ready(member, records)
    }

    /// [`Group::handle_room`].
    ///
    /// # Errors
    /// [`GroupError::NoMember`].
    pub fn room(&mut self, member: MemberId, records: u32) -> Result<(), GroupError> {
        self.group.handle_room(member, records)
    }

    /// [`Group::handle_holds`].
    pub fn holds(&mut self, member: MemberId, holds: &BTreeSet<(CameraName, FrameId)>) {
        self.group.handle_holds(member, holds);
    }

    /// [`Group::handle_done`].
    ///
    /// # Errors
    /// [`GroupError::NotGiven`].
    pub fn done(
        &mut self,
        member: MemberId,
        camera: &CameraName,
        frame: FrameId,
    ) -> Result<Acknowledged, GroupError> {
        self.group.handle_done(member, camera, frame)
    }

    /// [`Group::handle_failed`].
    ///
    /// # Errors
    /// [`GroupError::NotGiven`].
    pub fn failed(
        &mut self,
        member: MemberId,
        camera: &CameraName,
        frame: FrameId,
        why: &str,
    ) -> Result<Acknowledged, GroupError> {
        self.group.handle_failed(member, camera, frame, why)
    }

    /// [`Group::handle_away`].
    pub fn away(&mut self, now: Instant, member: MemberId) {
        self.group.handle_away(now, member);
    }

    /// [`Group::handle_leave`].
    pub fn leave(&mut self, member: MemberId) {
        self.group.handle_leave(member);
    }

    /// [`Session::handle_taken`].
    pub fn handle_taken(&mut self, now: Instant, camera: &CameraName, report: &TakenReport) {
        if let Some(reading) = &mut self.reading {
            reading.session.handle_taken(now, camera, report);
        }
    }

    // ---- what happens -------------------------------------------------------------------------------------

    /// [`Session::handle_attach`].
    pub fn handle_attach(&mut self, now: Instant, camera: CameraName, log: LogReader, present: u64) {
        if let Some(reading) = &mut self.reading {
            reading.session.handle_attach(now, camera, log, present);
        }
    }

    /// [`Session::handle_view_changed`].
    pub fn handle_view_changed(&mut self) {
        if let Some(reading) = &mut self.reading {
            reading.session.handle_view_changed();
        }
    }

    /// The edge has forgotten a camera, or has reset it.
    pub fn handle_forgotten(&mut self, camera: &CameraName) {
        self.looked_for.retain(|looked| looked.camera != *camera);
        self.group.handle_forgotten(camera);
        if let Some(reading) = &mut self.reading {
            reading.session.handle_forgotten(camera);
        }
    }

    /// Takes in the answer to a [`GroupQuestion::Still`].
    pub fn handle_still(&mut self, camera: &CameraName, frame: FrameId, answer: StillAnswer) {
        if let Some(looked) = self.looked_for(camera, frame) {
            match answer {
                StillAnswer::Still(record, log) => looked.step = Step::Found(record, log),
                StillAnswer::NotDecoded => (looked.step, looked.why) = (Step::Disk, LostReason::NotDecoded),
                StillAnswer::Overtaken | StillAnswer::Gone => looked.step = Step::Disk,
            }
        } else if let Some(reading) = &mut self.reading {
            reading.session.handle_still(camera, frame, answer);
        }
    }

    /// Takes in the answer to a [`GroupQuestion::Past`].
    pub fn handle_past(&mut self, camera: &CameraName, asked: For, answer: PastAnswer) {
        let For::Again(frame) = asked else {
            if let Some(reading) = &mut self.reading {
                reading.session.handle_past(camera, answer);
            }
            return;
        };
        let Some(looked) = self.looked_for(camera, frame) else { return };
        let is_it =
            |record: &Record| record.frame.meta.id == frame && !record.frame.meta.encoding.is_chained();
        match answer.record.filter(is_it) {
            Some(record) => looked.step = Step::Found(Box::new(record), None),
            None => {
                let why = looked.why;
                self.looked_for.retain(|looked| (&looked.camera, looked.frame) != (camera, frame));
                self.group.handle_gone(camera, frame, why);
            }
        }
    }

    // ---- what is wanted -----------------------------------------------------------------------------------

    /// The next output for members.
    pub fn poll(&mut self, now: Instant, known: &impl KnownCameras) -> Option<GroupOutput> {
        self.group.handle_timeout(now);
        self.look_again();
        if let Some(record) = self.give_found(now, known) {
            return Some(GroupOutput::Record(Box::new(record)));
        }
        let is_held_back = self.group.is_held_back();
        if std::mem::replace(&mut self.held_back, is_held_back) != is_held_back {
            let open = self.group.place().open_count();
            return Some(if is_held_back { GroupOutput::HeldBack { open } } else { GroupOutput::GoesOn });
        }
        loop {
            let group = &self.group;
            let session = &mut self.reading.as_mut()?.session;
            let ready = group.has_room();
            match session.poll_of(now, ready, known, |camera| group.wants(camera))? {
                SessionOutput::Frame { delivery, times, verdict } => {
                    if let Some(record) = self.give(now, *delivery, times, verdict) {
                        return Some(GroupOutput::Record(Box::new(record)));
                    }
                }
                SessionOutput::Contract(change) => return Some(GroupOutput::Contract(change)),
                // A group asks for no end.
                SessionOutput::Ended { .. } => return None,
            }
        }
    }

    /// The next question that was not asked yet. Records that memory does not hold are asked of the edge's disk.
    pub fn poll_question(&mut self) -> Option<GroupQuestion> {
        for looked in &mut self.looked_for {
            let (camera, frame) = (looked.camera.clone(), looked.frame);
            match looked.step {
                Step::Memory => {
                    looked.step = Step::Asked;
                    return Some(GroupQuestion::Still(camera, StillQuery { frame, newest: false }));
                }
                Step::Disk => {
                    looked.step = Step::Asked;
                    return Some(GroupQuestion::Past(camera, For::Again(frame), query_for(frame)));
                }
                Step::Asked | Step::Found(..) => {}
            }
        }
        let session = &mut self.reading.as_mut()?.session;
        if let Some((camera, query)) = session.poll_still() {
            return Some(GroupQuestion::Still(camera, query));
        }
        let (camera, query) = session.poll_past()?;
        Some(GroupQuestion::Past(camera, For::Session, query))
    }

    /// [`Group::poll_change`].
    pub fn poll_change(&mut self) -> Option<Change> {
        self.group.poll_change()
    }

    /// When to call [`GroupSession::poll`] again at the latest, if it returned nothing at `looked` and nothing happens before.
    pub fn poll_timeout(&self, looked: Instant) -> Option<Instant> {
        let session = self.reading.as_ref().and_then(|reading| reading.session.poll_timeout(looked));
        self.group.poll_timeout().into_iter().chain(session).min()
    }

    // ---- inside -------------------------------------------------------------------------------------------

    fn looked_for(&mut self, camera: &CameraName, frame: FrameId) -> Option<&mut Looked> {
        let is_it = |looked: &&mut Looked| looked.camera == *camera && looked.frame == frame;
        // The group's session asks only for frames that were never given, so the question is about a repeated record.
        self.looked_for.iter_mut().find(is_it)
    }

    /// Begins to look for records that are to be given again.
    fn look_again(&mut self) {
        let Some(reading) = &self.reading else { return };
        while self.looked_for.len() < LOOKED_FOR_MAX {
            let Some((camera, frame)) = self.group.poll_again() else { return };
            if reading.spec.selects(&camera) {
                let why = LostReason::Evicted;
                self.looked_for.push_back(Looked { camera, frame, step: Step::Memory, why });
            } else {
                self.group.handle_gone(&camera, frame, LostReason::NotRead);
            }
        }
    }

    /// Gives a found record again.
    fn give_found(&mut self, now: Instant, known: &impl KnownCameras) -> Option<GivenRecord> {
        loop {
            let is_found = |looked: &Looked| matches!(looked.step, Step::Found(..));
            let place = self.looked_for.iter().position(is_found)?;
            let Looked { camera, frame, step, .. } = self.looked_for.remove(place)?;
            let Step::Found(record, log) = step else { return None };
            if let Some(given) = self.group.give_again(now, &camera, frame) {
                let times = known.times(&camera, &record);
                let delivery =
                    Delivery { camera, record: *record, skipped: SkipCounts::default(), not_held: None, log };
                return Some(GivenRecord { given, delivery, times, verdict: None });
            }
        }
    }

    /// Gives a record that was never given.
    fn give(
        &mut self,
        now: Instant,
        delivery: Delivery,
        times: FrameTimes,
        verdict: Option<FrameVerdict>,
    ) -> Option<GivenRecord> {
        let (camera, frame) = (&delivery.camera, delivery.record.frame.meta.id);
        if self.group.place().has_passed(camera, frame) {
            // The session never goes back, so the camera counts its frames anew.
            let camera = camera.clone();
            self.looked_for.retain(|looked| looked.camera != camera);
            self.group.handle_forgotten(&camera);
        }
        let given = self.group.give(now, &delivery.camera, frame);
        debug_assert!(given.is_some(), "the session was asked for cameras that the group wants");
        let given = given?;
        self.skipped.merge(&delivery.skipped);
        Some(GivenRecord { given, delivery, times, verdict })
    }
}

/// The question for one frame of the past.
fn query_for(frame: FrameId) -> PastQuery {
    let before = frame.sequence.0.checked_sub(1).map(Sequence);
    let after = before.map(|sequence| FrameId { sequence, ..frame });
    PastQuery { after, before: Some(frame.next()), newest: after.is_none(), ..PastQuery::EVERY }
}

#[cfg(test)]
mod tests;
