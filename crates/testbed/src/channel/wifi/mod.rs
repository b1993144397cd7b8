//! Models a Wi-Fi channel: stations contend for one half-duplex medium, and cameras send frames over it as
//! TCP would.
//!
//! | part | what it does | source |
//! | --- | --- | --- |
//! | access (`air.rs`) | slotted CSMA/CA: a station with a packet waits AIFS and a random number of idle slots, whose range doubles after a failure; stations that reach zero in the same slot collide; after 7 failures a PPDU is given up | IEEE 802.11, enhanced distributed channel access |
//! | hidden stations | pairs do not sense each other; the access point hears both, and loses overlapping PPDUs. If a scene says so, a station that failed asks first (RTS, CTS) | drivers do so for retransmissions |
//! | interferers | bursts from other devices, sensed or not; a PPDU that overlaps one is lost | microwave ovens radiate in half of each period of the mains |
//! | aggregation | up to 32 MPDUs, 64 kB or 5.5 ms go in one PPDU, acknowledged together; each MPDU can be lost by itself | 802.11n/ac, A-MPDU |
//! | rate | falls after a failed PPDU, even if it collided, and rises after a good one, as simple rate controls do | measured behaviour of commodity drivers |
//! | stations (`scene.rs`) | each has its own rate, losses and bounded queue; all of them can change at a given time | |
//! | answers | the access point contends like the others, with the transport's acknowledgements | |
//! | transport (`flow.rs`) | a window that begins with ten packets after a pause and doubles each round trip, up to the driver's queue | RFC 6928, RFC 5681 |
//!
//! Collisions are not put into the model; they follow from it. So does the loss of rate that makes five
//! cameras more than five times as slow as one. `tables.rs` holds what the authors of Mez measured, and how
//! far the model is from it.

mod air;
mod flow;
mod medium;
mod scene;
pub mod tables;
#[cfg(test)]
mod tests;

pub use self::medium::{Medium, Through, capacity, latencies_ms};
pub use self::scene::{Change, Interferer, Load, Scene, Station, What};

/// The constants of a medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The highest rate of a station, in Mbit/s, unless it has its own.
    pub phy_mbps: f64,
    /// The share of lost MPDUs of a station, unless it has its own.
    pub mpdu_loss: f64,
    /// The factor on the rate after a failed PPDU.
    pub rate_fall: f64,
    /// The factor on the rate after a good PPDU.
    pub rate_rise: f64,
    /// The lowest rate, in Mbit/s.
    pub rate_mbps_min: f64,
    /// The smallest range of the back-off, in slots.
    pub cw_min: u64,
    /// The largest range of the back-off, in slots.
    pub cw_max: u64,
    /// How long the medium must be idle before the back-off goes on, in microseconds.
    pub aifs_us: f64,
    /// The most MPDUs of a PPDU.
    pub mpdus_max: usize,
    /// The delay of each direction besides the medium, in microseconds. Jitter adds up to as much again.
    pub delay_us: f64,
    /// The most packets in a driver's queue, unless a station has its own limit.
    pub queue_packets_max: usize,
    /// How often a failed PPDU is sent again, at most.
    pub retries_max: u32,
    /// After this many failures of a PPDU its station asks first (RTS, CTS). Hidden stations hear the answer
    /// of the access point.
    pub request_after_failures: u32,
}

impl Constants {
    /// The calibrated constants: see [`tables`].
    pub const CALIBRATED: Self = Self {
        phy_mbps: 325.0,
        mpdu_loss: 0.01,
        rate_fall: 0.8,
        rate_rise: 1.2,
        rate_mbps_min: 30.0,
        cw_min: 15,
        cw_max: 1023,
        aifs_us: 43.0,
        mpdus_max: 32,
        delay_us: 500.0,
        queue_packets_max: 600,
        retries_max: 7,
        request_after_failures: u32::MAX,
    };

    /// A station with the default rate, losses and queue.
    pub const fn station(&self) -> Station {
        Station {
            phy_mbps: self.phy_mbps,
            mpdu_loss: self.mpdu_loss,
            queue_packets_max: self.queue_packets_max,
        }
    }
}
