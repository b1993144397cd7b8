//! Holds payloads on their way to applications, and limits the memory for them.
//!
//! A payload that an application does not take at once is held in a share of a limited memory ([`mez_core::reader_memory`]).
//! Without a share, only its log holds it. It can be read as long as the log has it, so a stalled application uses no memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mez_core::allowance::Allowances;
use mez_core::frame::FrameId;
use mez_core::log::LogReader;
use mez_core::reader_memory::{Asked, ReaderMemory, ReaderMemoryLimits, ShareId};
use tokio::sync::Notify;

use super::principal::Principal;
use crate::clock::{monotonic_now, sleep_until};

/// How soon a waiting reader checks for memory again, unless some was returned.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A payload while it is held, otherwise `None`.
type Memory = Arc<Mutex<Option<Bytes>>>;

/// The memory that a broker lends to its applications.
pub(crate) struct Lending {
    table: Mutex<Table>,
    /// The rate at which each principal may read the past.
    allowances: Mutex<Allowances<Principal>>,
    given_back: Notify,
}

struct Table {
    reader_memory: ReaderMemory<Principal>,
    /// The payload in each share.
    memory: HashMap<ShareId, Memory>,
}

impl Lending {
    /// Begins with all memory free.
    pub(crate) fn new(limits: ReaderMemoryLimits, past_bytes_per_second: Option<u64>) -> Arc<Self> {
        let table = Table { reader_memory: ReaderMemory::new(limits), memory: HashMap::new() };
        let allowances = Mutex::new(Allowances::new(past_bytes_per_second));
        Arc::new(Self { table: Mutex::new(table), allowances, given_back: Notify::new() })
    }

    /// Sets new limits.
    pub(crate) fn set_limits(&self, limits: ReaderMemoryLimits, past_bytes_per_second: Option<u64>) {
        self.lock().reader_memory.set_limits(limits);
        self.allowances().set(past_bytes_per_second);
        self.given_back.notify_waiters();
    }

    /// Waits until `principal` may read another frame of the past. Cancel safe.
    pub(crate) async fn allowance(&self, principal: &Principal) {
        loop {
            let now = monotonic_now();
            let Some(due) = self.allowances().due(now, principal) else { return };
            // Checked from time to time, because the limit may have changed.
            sleep_until(due.min(now + LOOK_AGAIN)).await;
        }
    }

    /// Notes that `principal` has read a frame of the past.
    pub(crate) fn note_past(&self, principal: &Principal, bytes: usize) {
        self.allowances().handle_read(monotonic_now(), principal, bytes as u64);
    }

    fn allowances(&self) -> MutexGuard<'_, Allowances<Principal>> {
        // Each statement leaves the value consistent, so a poisoned lock is safe to use.
        self.allowances.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A share for `memory`, if there is room. Shares of stalled applications are revoked to make room.
    fn take(self: &Arc<Self>, asked: Asked<Principal>, memory: &Memory) -> Option<Share> {
        let (id, lost) = {
            let mut table = self.lock();
            let granted = table.reader_memory.take(monotonic_now(), asked);
            let lost: Vec<_> = granted.lost.iter().filter_map(|id| table.memory.remove(id)).collect();
            if let Some(id) = granted.share {
                table.memory.insert(id, Arc::clone(memory));
            }
            (granted.share, lost)
        };
        lost.into_iter().for_each(|memory| *held(&memory) = None);
        id.map(|id| Share { id, memory: Arc::clone(memory), of: Arc::clone(self) })
    }

    /// A share of `bytes` for a reader of `principal`, for a payload that is in no log. `None`: there is no room now.
    pub(crate) fn try_room(self: &Arc<Self>, principal: &Principal, bytes: usize) -> Option<Share> {
        let asked = Asked { principal: principal.clone(), log: None, bytes: bytes as u64 };
        self.take(asked, &Memory::default())
    }

    /// Waits for a share of `bytes`, for a payload that is in no log.
    pub(crate) async fn room(self: &Arc<Self>, principal: &Principal, bytes: usize) -> Share {
        loop {
            let given_back = self.given_back.notified();
            if let Some(share) = self.try_room(principal, bytes) {
                return share;
            }
            let soonest = monotonic_now() + LOOK_AGAIN;
            let overdue = self.lock().reader_memory.next_overdue();
            tokio::select! {
                () = given_back => {}
                () = sleep_until(overdue.map_or(soonest, |overdue| overdue.max(soonest))) => {}
            }
        }
    }

    /// Bytes held.
    #[cfg(test)]
    fn bytes(&self) -> u64 {
        self.lock().reader_memory.bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Each statement leaves the table consistent, so a poisoned lock is safe to use.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn held(memory: &Memory) -> MutexGuard<'_, Option<Bytes>> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A share of the memory. Dropping it returns the share.
pub(crate) struct Share {
    id: ShareId,
    memory: Memory,
    of: Arc<Lending>,
}

impl Share {
    /// Puts a payload into the share. Returns false if the share was revoked meanwhile.
    fn fill(&self, payload: Bytes) -> bool {
        let mut table = self.of.lock();
        table.reader_memory.resize(self.id, payload.len() as u64);
        table.reader_memory.handle_progress(monotonic_now(), self.id);
        let is_kept = table.memory.contains_key(&self.id);
        *held(&self.memory) = is_kept.then_some(payload);
        is_kept
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        {
            let mut table = self.of.lock();
            table.reader_memory.give_back(self.id);
            table.memory.remove(&self.id);
        }
        self.of.given_back.notify_waiters();
    }
}

/// The payload of a frame on its way to an application.
pub(crate) struct Payload {
    len: usize,
    memory: Memory,
    /// The log from which the payload can be read without a share.
    log: Option<(LogReader, FrameId)>,
    share: Option<Share>,
    /// Whether the application did not take the payload at once.
    waits: bool,
    lending: Arc<Lending>,
    principal: Principal,
}

impl Payload {
    /// A payload that was read from a log.
    pub(crate) fn of_log(
        bytes: Bytes,
        log: (LogReader, FrameId),
        lending: &Arc<Lending>,
        principal: &Principal,
    ) -> Self {
        let (len, memory) = (bytes.len(), Arc::new(Mutex::new(Some(bytes))));
        let (lending, principal) = (Arc::clone(lending), principal.clone());
        Self { len, memory, log: Some(log), share: None, waits: false, lending, principal }
    }

    /// A payload that is in no log. It is put into `room`, unless that share was revoked.
    pub(crate) fn own(
        bytes: Bytes,
        room: Option<Share>,
        lending: &Arc<Lending>,
        principal: &Principal,
    ) -> Self {
        let len = bytes.len();
        let share = room.filter(|share| share.fill(bytes.clone()));
        let memory = share
            .as_ref()
            .map_or_else(|| Arc::new(Mutex::new(Some(bytes))), |share| Arc::clone(&share.memory));
        let (lending, principal) = (Arc::clone(lending), principal.clone());
        Self { len, memory, log: None, share, waits: false, lending, principal }
    }

    /// The size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The payload. `None` if it is gone because the application stalled.
    pub(crate) fn bytes(&self) -> Option<Bytes> {
        if let Some(bytes) = &*held(&self.memory) {
            return Some(bytes.clone());
        }
        let (log, frame) = self.log.as_ref()?;
        let payload = log.get_frame(*frame)?.frame.payload;
        // The log's copy of a data record begins with a head, which is not delivered.
        Some(payload.slice(payload.len().checked_sub(self.len)?..))
    }

    /// Notes that the application does not take the whole payload at once. From now on the payload needs a share, or is not held.
    pub(crate) fn wait(&mut self) {
        if std::mem::replace(&mut self.waits, true) || self.share.is_some() {
            return;
        }
        let log = self.log.as_ref().map(|(log, _)| log.share());
        let asked = Asked { principal: self.principal.clone(), log, bytes: self.len as u64 };
        self.share = self.lending.take(asked, &self.memory);
        if self.share.is_none() {
            *held(&self.memory) = None;
        }
    }

    /// Notes that a part of the payload was sent.
    pub(crate) fn progressed(&self) {
        if let Some(share) = &self.share {
            self.lending.lock().reader_memory.handle_progress(monotonic_now(), share.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use mez_core::frame::{ChainLink, ClockSource, Encoding, Epoch, Frame, FrameMeta, Rung, Sequence};
    use mez_core::log::{LogConfig, LogWriter, log};
    use mez_core::units::{Instant, Timestamp};

    use super::*;

    const SOMEBODY: Principal = Principal::User { uid: 1 };

    fn append(writer: &mut LogWriter, sequence: u64) -> Result<u64, mez_core::log::AppendError> {
        let meta = FrameMeta {
            id: FrameId { epoch: Epoch(1), sequence: Sequence(sequence) },
            captured: Timestamp::from_nanos(sequence),
            clock_source: ClockSource::Broker,
            width: 4,
            height: 4,
            published: (4, 4),
            encoding: Encoding::Gray8,
            rung: Rung::original(),
            chain: ChainLink::still(Sequence(sequence)),
        };
        let frame = Frame { meta, payload: vec![sequence as u8; 10_000].into() };
        writer.append(frame, [].into(), Instant::ZERO)
    }

    fn newest(reader: &LogReader, lending: &Arc<Lending>, principal: &Principal) -> Payload {
        let record = reader.newest().unwrap();
        let id = record.frame.meta.id;
        Payload::of_log(record.frame.payload, (reader.clone(), id), lending, principal)
    }

    /// However many readers are stalled, each with another frame, the log takes every new frame
    /// and stays within its limit. Readers can read their frames as long as the log has them.
    #[test]
    fn readers_that_stand_still_take_no_room_from_new_frames() {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(200_000));
        let lending = Lending::new(ReaderMemoryLimits::default(), None);
        let mut waiting = Vec::new();
        for sequence in 0..100 {
            append(&mut writer, sequence).expect("readers leave room");
            let mut payload = newest(&reader, &lending, &SOMEBODY);
            payload.wait();
            let bytes = payload.bytes().expect("the log has it");
            assert!(bytes.len() == payload.len() && bytes.iter().all(|byte| *byte == sequence as u8));
            waiting.push(payload);
        }
        let readable = waiting.iter().filter(|payload| payload.bytes().is_some()).count();
        assert!(
            (16..24).contains(&readable),
            "{readable}: those that the log has, and a quarter of its budget"
        );
        assert!(writer.bytes() <= 200_000 && lending.bytes() <= 50_000);
        drop(waiting);
        assert_eq!(lending.bytes(), 0);
    }

    /// A data record is delivered without its head. A stalled reader gets the same bytes from the log.
    #[test]
    fn what_is_delivered_of_a_record_is_the_same_for_who_stands_still() {
        let (mut writer, reader) = log(LogConfig::with_bytes_max(20_000));
        let lending = Lending::new(ReaderMemoryLimits::default(), None);
        append(&mut writer, 7).unwrap();
        let record = reader.newest().unwrap();
        let body = record.frame.payload.slice(30..);
        let mut payload = Payload::of_log(body.clone(), (reader, record.frame.meta.id), &lending, &SOMEBODY);
        payload.wait();
        assert!(held(&payload.memory).is_none(), "nobody holds it for the reader");
        assert_eq!(payload.bytes(), Some(body));
    }

    /// Frames that are in no log are held within the limits too. A reader that waits for room gets it when a share is returned.
    #[tokio::test]
    async fn what_no_log_counts_waits_for_room() {
        let limits = ReaderMemoryLimits {
            bytes_max: 30_000,
            principal_bytes_max: 20_000,
            ..ReaderMemoryLimits::default()
        };
        let lending = Lending::new(limits, None);
        let own = |room: Share| Payload::own(vec![1; 10_000].into(), Some(room), &lending, &SOMEBODY);
        let first = own(lending.room(&SOMEBODY, 8_000).await);
        let second = own(lending.room(&SOMEBODY, 8_000).await);
        assert!(lending.try_room(&SOMEBODY, 8_000).is_none());
        let another = Principal::User { uid: 2 };
        assert!(lending.try_room(&another, 8_000).is_some());
        drop(first);
        let third = own(lending.room(&SOMEBODY, 8_000).await);
        assert!(second.bytes().is_some() && third.bytes().is_some());
    }

    #[test]
    fn a_payload_without_a_share_is_counted_once_it_waits() {
        let limits = ReaderMemoryLimits {
            bytes_max: 15_000,
            principal_bytes_max: 15_000,
            ..ReaderMemoryLimits::default()
        };
        let lending = Lending::new(limits, None);
        let own = || Payload::own(vec![1; 10_000].into(), None, &lending, &SOMEBODY);
        let (mut first, mut second) = (own(), own());
        first.wait();
        second.wait();
        assert!(first.bytes().is_some() && second.bytes().is_none());
    }
}
