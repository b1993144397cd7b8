//! Accepts records of derived streams, as the edge's driver does.

use mez_core::broker::Published;
use mez_core::broker::edge::{DerivedError, Deriving, PublisherId, PublisherRefused};
use mez_core::frame::{Epoch, FrameId, Sequence};
use mez_core::name::CameraName;
use mez_core::units::Timestamp;

use super::EdgeHost;
use crate::world::bug::Bug;
use crate::world::stage::Stage;

/// What a publisher is told about an accepted record.
pub(in crate::world) struct Accepted {
    /// The run of the edge.
    pub(in crate::world) run: u64,
    pub(in crate::world) frame: FrameId,
    pub(in crate::world) captured: Timestamp,
    /// Whether the record is the newest of the stream's log.
    pub(in crate::world) is_held: bool,
}

impl EdgeHost {
    /// Lets a publisher open a stream. Returns the stream's epoch and the run of this edge. `None` if the edge does not run.
    pub(in crate::world) fn open_publisher(
        &mut self,
        (id, stream): (PublisherId, &CameraName),
        deriving: &Deriving,
        stage: &mut Stage<'_>,
    ) -> Option<Result<(Epoch, u64), PublisherRefused>> {
        let (anchor, bug) = (self.clock.anchor(stage.now), stage.bug);
        let mut start = None;
        loop {
            let opened = self.with_process(stage, |process, now| {
                let holder = process.broker.cameras(now).into_iter().find(|known| known.camera == *stream);
                let holder =
                    holder.and_then(|known| known.derived).filter(|_| bug == Some(Bug::StreamShared));
                let deriving = holder.map_or_else(|| deriving.clone(), |(of_holder, _)| of_holder);
                let opened = process.broker.handle_publisher(id, stream, deriving, start);
                if let Some((log, ..)) = process.broker.log(stream).filter(|_| opened.is_ok()) {
                    process.logs.insert(stream.clone(), log);
                }
                opened.map(|epoch| (epoch, process.run))
            })?;
            match opened {
                Err(PublisherRefused::NeedsEpoch { above }) if start.is_none() => {
                    start = Some((self.derived.begin(stream, deriving, above, bug), anchor));
                }
                opened => return Some(opened),
            }
        }
    }

    /// Accepts or refuses a record. `None` if the edge does not run.
    pub(in crate::world) fn take_record(
        &mut self,
        (id, stream): (PublisherId, &CameraName),
        record: Published,
        stage: &mut Stage<'_>,
    ) -> Option<Result<Accepted, DerivedError>> {
        let throws_away = stage.bug == Some(Bug::AcceptedNotKept) && stage.random.one_in(10);
        self.with_process(stage, |process, now| {
            let newest = |process: &super::EdgeProcess| {
                let (log, ..) = process.broker.log(stream)?;
                log.newest().map(|record| (record.frame.meta.id, record.frame.meta.captured))
            };
            let frame = match throws_away {
                true => newest(process).map_or(Err(DerivedError::NotOpen), |(last, _)| {
                    Ok(FrameId { sequence: Sequence(last.sequence.0 + 1), ..last })
                }),
                false => process.broker.handle_derived((now, now), id, record),
            }?;
            let held = newest(process);
            let captured = held.map_or(Timestamp::MIN, |(_, captured)| captured);
            let is_held = held.is_some_and(|(newest, _)| newest == frame);
            Ok(Accepted { run: process.run, frame, captured, is_held })
        })
    }

    /// A publisher has gone. `reason` says why, unless it ended in an orderly way.
    pub(in crate::world) fn lose_publisher(
        &mut self,
        id: PublisherId,
        reason: Option<String>,
        stage: &mut Stage<'_>,
    ) {
        self.with_process(stage, |process, now| process.broker.handle_publisher_gone(now, id, reason));
    }
}
