//! Models a transmitter whose rate may change during a transmission. It serves one direction of a link, or a queue that several links share.

use std::time::Duration;

use crate::time::Moment;

/// Transmits one piece at a time. The caller keeps the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transmitter {
    bits_per_second: u64,
    /// The piece that is being transmitted.
    service: Option<Service>,
}

#[derive(Clone, Copy, Debug)]
struct Service {
    /// The moment at which `bits_left` was computed.
    from: Moment,
    bits_left: u64,
}

impl Transmitter {
    pub(crate) const fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second, service: None }
    }

    pub(crate) const fn bits_per_second(&self) -> u64 {
        self.bits_per_second
    }

    pub(crate) const fn is_busy(&self) -> bool {
        self.service.is_some()
    }

    /// Begins to transmit a piece.
    pub(crate) fn begin(&mut self, now: Moment, bits: u64) {
        debug_assert!(!self.is_busy(), "pieces are transmitted one after the other");
        self.service = Some(Service { from: now, bits_left: bits });
    }

    /// When the transmission of the piece ends.
    pub(crate) fn due(&self) -> Option<Moment> {
        self.service.map(|service| service.from + self.time_for(service.bits_left))
    }

    /// Ends the transmission if it is due by now. True if it was; the transmitter is then free.
    pub(crate) fn take_done(&mut self, now: Moment) -> bool {
        let done = self.due().is_some_and(|due| due <= now);
        if done {
            self.service = None;
        }
        done
    }

    /// Drops the piece that is being transmitted.
    pub(crate) const fn stop(&mut self) {
        self.service = None;
    }

    /// Changes the rate, also for the rest of the piece.
    pub(crate) fn set_rate(&mut self, now: Moment, bits_per_second: u64) {
        if let Some(service) = &mut self.service {
            let done = now.since(service.from).as_nanos() * u128::from(self.bits_per_second) / 1_000_000_000;
            service.bits_left = service.bits_left.saturating_sub(done as u64);
            service.from = now;
        }
        self.bits_per_second = bits_per_second;
    }

    /// How long `bits` bits take.
    pub(crate) fn time_for(&self, bits: u64) -> Duration {
        let nanos = (u128::from(bits) * 1_000_000_000).div_ceil(u128::from(self.bits_per_second.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    #[test]
    fn what_is_under_way_goes_on_at_the_new_rate() {
        let mut transmitter = Transmitter::new(1_000_000);
        transmitter.begin(Moment::START, 10_000);
        assert_eq!(transmitter.due(), Some(Moment::START + ms(10)));
        transmitter.set_rate(Moment::START + ms(4), 2_000_000);
        assert_eq!(transmitter.due(), Some(Moment::START + ms(7)));
        assert!(!transmitter.take_done(Moment::START + ms(6)));
        assert!(transmitter.take_done(Moment::START + ms(7)) && !transmitter.is_busy());
    }
}
