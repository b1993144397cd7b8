//! What a member of a group reports about its records, on the connection of its stream.
//!
//! A call would take a second connection, an answer, and so another wake-up of both sides for each record. Here the next
//! record confirms the reports before it. If none comes within a second, or the member asks, a packet of its own confirms them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tonic::Code;

use super::packet::{Kind, Packet, PacketError, PacketWriter};
use crate::api::edge::EdgeApi;
use crate::api::feed::GroupSeat;
use crate::api::principal::Principal;
use crate::api::{ApiError, pb};

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
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// How many were carried out.
    carried_out: AtomicU64,
    /// How many of these are confirmed.
    confirmed: AtomicU64,
    /// Why a report was not carried out.
    refused: Mutex<Option<PacketError>>,
    /// Signals that a report was carried out.
    came: Notify,
    /// Signals that something must be sent now.
    asked: Notify,
}

impl Reports {
    /// Takes in a report, and waits until it is carried out. A refusal ends the stream, between two packets.
    pub(super) async fn take_in(&self, whose: Option<(&EdgeApi, &Principal, &GroupSeat)>, packet: &Packet) {
        match Self::carry_out(whose, packet).await {
            Ok(()) => {
                self.carried_out.fetch_add(1, Ordering::Relaxed);
                self.came.notify_one();
                if &packet.payload[..] == CONFIRM {
                    self.asked.notify_one();
                }
            }
            Err(error) => {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                self.came.notify_one();
                self.asked.notify_one();
                std::future::pending().await
            }
        }
    }

    async fn carry_out(
        whose: Option<(&EdgeApi, &Principal, &GroupSeat)>,
        packet: &Packet,
    ) -> Result<(), PacketError> {
        let Some((api, principal, seat)) = whose else {
            return Err(PacketError::Malformed { what: "a report on records by a program without a group" });
        };
        if !matches!(&packet.payload[..], [] | CONFIRM) {
            return Err(PacketError::Malformed { what: "a report on records with an unknown payload" });
        }
        let request: pb::SettleRecordsRequest = packet.decode(Kind::SettleRecords)?;
        // The result for each record is not sent here. Clients that want it use the call.
        let _: pb::SettleRecordsResponse =
            api.settle_of_seat(principal, seat, request).await?.ok_or_else(is_over)?;
        Ok(())
    }

    fn refusal(&self) -> Option<PacketError> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The confirmation that is due with the next packet.
    fn due(&self) -> Option<Confirmed> {
        let reports = self.carried_out.load(Ordering::Relaxed);
        (self.confirmed.swap(reports, Ordering::Relaxed) != reports).then_some(Confirmed { reports })
    }

    fn is_due(&self) -> bool {
        self.carried_out.load(Ordering::Relaxed) != self.confirmed.load(Ordering::Relaxed)
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
        self.refusal().map_or(Ok(()), Err)
    }

    /// Waits until a confirmation must not wait for a record any longer, or a report was refused. Cancel safe.
    pub(super) async fn must_confirm(&self) {
        while !self.is_due() {
            let has_refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).is_some();
            if has_refused {
                return;
            }
            self.came.notified().await;
        }
        tokio::select! {
            () = self.asked.notified() => {}
            () = sleep_until(Instant::now() + CONFIRM_AFTER) => {}
        }
    }
}

/// The error of a stream whose group is over, because the edge stops, or because the group's task has failed. Joining again succeeds.
fn is_over() -> ApiError {
    ApiError::new(Code::Aborted, "GROUP_OVER", "the group has ended at the edge; join it again")
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

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

    fn carried_out(reports: &Reports) {
        reports.carried_out.fetch_add(1, Ordering::Relaxed);
        reports.came.notify_one();
    }

    #[tokio::test(start_paused = true)]
    async fn a_report_is_confirmed_with_the_next_record_or_after_a_second() {
        let (reports, mut writer) = (Reports::default(), PacketWriter::new(Vec::new()));
        assert!(reports.must_confirm().now_or_never().is_none(), "there is none");
        carried_out(&reports);
        carried_out(&reports);
        assert_eq!(reports.due(), Some(Confirmed { reports: 2 }));
        assert_eq!(reports.due(), None, "it is on its way");
        reports.queue(&mut writer).unwrap();
        assert!(reports.must_confirm().now_or_never().is_none());

        carried_out(&reports);
        let began = Instant::now();
        reports.must_confirm().await;
        assert_eq!(began.elapsed().as_millis(), 1_000);
        reports.confirm(&mut writer).await.unwrap();
        assert!(!reports.is_due());

        carried_out(&reports);
        reports.asked.notify_one();
        let began = Instant::now();
        reports.must_confirm().await;
        assert_eq!(began.elapsed().as_millis(), 0, "the member asks");
    }
}
