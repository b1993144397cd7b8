//! What a member of a group reports about its records, on the connection of its stream.
//!
//! A call would take a second connection, an answer, and so another wake-up of both sides for each record. Here the next
//! record confirms the reports before it. If none comes within a second, or the member asks, the edge confirms them alone.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::packet::{Kind, Packet, PacketError, PacketWriter};
use crate::api::principal::Principal;
use crate::api::{ApiError, Broker, pb};

/// The payload of a report that is to be confirmed at once.
pub(crate) const CONFIRM: &[u8] = &[1];
/// How long a report waits for a record that confirms it.
const CONFIRM_AFTER: Duration = Duration::from_secs(1);

/// The message of a packet of [`Kind::SettleRecords`] on the connection of a stream, from the edge.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Confirmed {
    /// How many reports of this connection the edge has carried out.
    #[prost(uint32, tag = "1")]
    pub(crate) reports: u32,
}

/// The reports of one connection. One task takes them in and confirms them.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// How many were carried out.
    carried_out: AtomicU32,
    /// How many of these are confirmed.
    confirmed: AtomicU32,
    /// Signals that a report was carried out.
    came: Notify,
    /// Signals that the member asks to confirm.
    asked: Notify,
}

impl Reports {
    /// Takes in a report, and waits until it is carried out. An error ends the stream.
    pub(super) async fn take_in(
        &self,
        broker: &Broker,
        principal: &Principal,
        packet: &Packet,
    ) -> Result<(), PacketError> {
        let Broker::Edge(api) = broker else {
            return Err(PacketError::Malformed { what: "a report on records to a broker without groups" });
        };
        let request: pb::SettleRecordsRequest = packet.decode(Kind::SettleRecords)?;
        // What each report was worth is of interest to clients of other languages only. They use the call.
        let _: pb::SettleRecordsResponse = api.settle_records(principal, request).await?;
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        self.came.notify_one();
        match &packet.payload[..] {
            [] => {}
            CONFIRM => self.asked.notify_one(),
            _ => {
                return Err(
                    ApiError::invalid("payload", "MALFORMED", "a report with an unknown payload").into()
                );
            }
        }
        Ok(())
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
    pub(super) fn queue<W: AsyncWrite + Unpin>(&self, writer: &mut PacketWriter<W>) -> io::Result<()> {
        match self.due() {
            Some(confirmed) => writer.queue(Kind::SettleRecords, &confirmed, None),
            None => Ok(()),
        }
    }

    /// Sends a confirmation, if one is due.
    pub(super) async fn confirm<W: AsyncWrite + Unpin>(
        &self,
        writer: &mut PacketWriter<W>,
    ) -> io::Result<()> {
        match self.due() {
            Some(confirmed) => writer.write(Kind::SettleRecords, &confirmed, Bytes::new()).await,
            None => Ok(()),
        }
    }

    /// Waits until a confirmation must not wait for a record any longer. Cancel safe.
    pub(super) async fn must_confirm(&self) {
        while !self.is_due() {
            self.came.notified().await;
        }
        tokio::select! {
            () = self.asked.notified() => {}
            () = sleep_until(Instant::now() + CONFIRM_AFTER) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

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
