//! What a member of a group reports about its records, on the connection of its stream.
//!
//! A call would take a second connection, an answer, and so another wake-up of both sides for each record. Here the next
//! record confirms the reports before it. If none comes within a second, or the member asks, a packet of its own confirms them.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::time::sleep;

use super::packet::{Kind, Packet, PacketError, PacketWriter};
use crate::api::edge::EdgeApi;
use crate::api::pb;
use crate::api::principal::Principal;
use crate::edge::MemberReports;

/// The payload of a report that is to be confirmed at once.
pub(crate) const CONFIRM: &[u8] = &[1];
/// How long a report waits for a record that confirms it.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// The message of a packet of [`Kind::SettleRecords`] on the connection of a stream, from the edge.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Confirmed {
    /// How many reports of this connection the edge has carried out.
    #[prost(uint64, tag = "1")]
    pub(crate) reports: u64,
}

/// The reports of one connection. One task takes them in and confirms them.
#[derive(Default)]
pub(super) struct Reports {
    /// The way to the group. `None`: the stream is not one of a member.
    member: Option<MemberReports>,
    /// How many were passed on to the group.
    taken_in: AtomicU64,
    /// How many were confirmed.
    confirmed: AtomicU64,
    /// The member asks for a confirmation of all reports so far.
    is_asked: AtomicBool,
    /// Why a report was not passed on.
    refused: Mutex<Option<PacketError>>,
}

impl Reports {
    pub(super) fn new(member: Option<MemberReports>) -> Self {
        Self { member, ..Self::default() }
    }

    /// Takes in a report. A refusal ends the stream, between two packets.
    pub(super) async fn take_in(&self, whose: Option<(&EdgeApi, &Principal)>, packet: &Packet) {
        match self.pass_on(whose, packet).await {
            Ok(()) => {
                self.taken_in.fetch_add(1, Ordering::Relaxed);
                if &packet.payload[..] == CONFIRM {
                    self.is_asked.store(true, Ordering::Relaxed);
                }
            }
            Err(error) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                std::future::pending().await
            }
        }
    }

    async fn pass_on(
        &self,
        whose: Option<(&EdgeApi, &Principal)>,
        packet: &Packet,
    ) -> Result<(), PacketError> {
        let (Some(member), Some((api, principal))) = (&self.member, whose) else {
            return Err(PacketError::Malformed { what: "a report on records by a program without a group" });
        };
        if !matches!(&packet.payload[..], [] | CONFIRM) {
            return Err(PacketError::Malformed { what: "a report on records with an unknown payload" });
        }
        let request: pb::SettleRecordsRequest = packet.decode(Kind::SettleRecords)?;
        Ok(api.pass_on_settlements(principal, member, request).await?)
    }

    fn has_refused(&self) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn carried_out(&self) -> u64 {
        self.member.as_ref().map_or(0, MemberReports::carried_out)
    }

    /// The confirmation that is due with the next packet.
    fn due(&self) -> Option<Confirmed> {
        let reports = self.carried_out();
        if reports == self.taken_in.load(Ordering::Relaxed) {
            self.is_asked.store(false, Ordering::Relaxed);
        }
        (self.confirmed.swap(reports, Ordering::Relaxed) != reports).then_some(Confirmed { reports })
    }

    fn are_all_confirmed(&self) -> bool {
        self.taken_in.load(Ordering::Relaxed) == self.confirmed.load(Ordering::Relaxed)
    }

    /// Queues a confirmation before the next packet, if one is due.
    pub(super) fn queue<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut PacketWriter<W>,
    ) -> Result<(), PacketError> {
        if let Some(confirmed) = self.due() {
            writer.queue(Kind::SettleRecords, &confirmed, None)?;
        }
        Ok(())
    }

    /// Sends a confirmation, if one is due. The error is the refusal of a report, if there was one.
    pub(super) async fn confirm<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut PacketWriter<W>,
    ) -> Result<(), PacketError> {
        if let Some(confirmed) = self.due() {
            writer.write(Kind::SettleRecords, &confirmed, Bytes::new()).await?;
        }
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    /// Waits until a confirmation must not wait for a record any longer, and has all reports carried out; or until a report was
    /// refused. Cancel safe.
    ///
    /// The task that calls [`Reports::take_in`] must poll this afterwards. Nothing wakes it for a report: a task that wakes itself
    /// is queued again, which wakes another thread of the runtime.
    pub(super) async fn must_confirm(&self) {
        let ready = |is_ready| if is_ready { Poll::Ready(()) } else { Poll::Pending };
        poll_fn(|_| ready(!self.are_all_confirmed() || self.has_refused())).await;
        let mut waited = pin!(sleep(CONFIRM_AFTER));
        poll_fn(|context| {
            if self.is_asked.load(Ordering::Relaxed) || self.has_refused() {
                return Poll::Ready(());
            }
            waited.as_mut().poll(context)
        })
        .await;
        match &self.member {
            Some(member) if !self.has_refused() => member.until_carried_out().await,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_program_without_a_group_that_reports_loses_its_stream_between_two_packets() {
        let (reports, mut writer) = (Reports::default(), PacketWriter::new(Vec::new()));
        let report =
            Packet { kind: Kind::SettleRecords, message: Bytes::new(), payload: Bytes::new(), shared: None };
        assert!(reports.take_in(None, &report).now_or_never().is_none(), "nothing more is read");
        reports.must_confirm().await;
        assert!(matches!(reports.confirm(&mut writer).await, Err(PacketError::Malformed { .. })));
    }

    async fn report(reports: &Reports) {
        reports.member.as_ref().unwrap().pass_on(vec![], 1).await;
        reports.taken_in.fetch_add(1, Ordering::Relaxed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_confirmed_with_the_next_record_or_after_a_second() {
        let (member, carry_out) = MemberReports::without_group();
        let (reports, mut writer) = (Reports::new(Some(member)), PacketWriter::new(Vec::new()));
        assert!(reports.must_confirm().now_or_never().is_none(), "there is none");
        report(&reports).await;
        report(&reports).await;
        assert_eq!(reports.due(), None, "none is carried out");
        carry_out();
        assert_eq!(reports.due(), Some(Confirmed { reports: 2 }));
        assert_eq!(reports.due(), None, "it is on its way");
        reports.queue(&mut writer).unwrap();
        assert!(reports.must_confirm().now_or_never().is_none());

        report(&reports).await;
        carry_out();
        let began = Instant::now();
        reports.must_confirm().await;
        assert_eq!(began.elapsed().as_millis(), 1_000);
        reports.confirm(&mut writer).await.unwrap();
        assert!(reports.are_all_confirmed());

        report(&reports).await;
        carry_out();
        reports.is_asked.store(true, Ordering::Relaxed);
        let began = Instant::now();
        reports.must_confirm().await;
        assert_eq!(began.elapsed().as_millis(), 0, "the member asks");
    }

    /// A group at ease carries out reports when it wakes up next.
    #[tokio::test(start_paused = true)]
    async fn what_must_be_confirmed_is_carried_out_first() {
        let (member, carry_out) = MemberReports::without_group();
        let (reports, mut writer) = (Reports::new(Some(member)), PacketWriter::new(Vec::new()));
        report(&reports).await;
        reports.is_asked.store(true, Ordering::Relaxed);
        assert!(reports.must_confirm().now_or_never().is_none());
        reports.queue(&mut writer).unwrap();
        assert!(!reports.are_all_confirmed(), "a record must not confirm what is not carried out");
        let confirms = reports.must_confirm();
        carry_out();
        confirms.await;
        reports.confirm(&mut writer).await.unwrap();
        assert!(reports.are_all_confirmed());
        assert!(reports.must_confirm().now_or_never().is_none(), "nothing is asked any more");
    }
}
