//! A Wi-Fi channel: stations that contend for one half-duplex medium, and cameras that send frames over it as TCP would.
//!
//! | part | what it does | source |
//! | --- | --- | --- |
//! | access (`air.rs`) | slotted CSMA/CA: who has something to send waits AIFS and a random number of idle slots, which doubles its range after a failure; stations that reach zero in the same slot collide; after 7 failures a PPDU is given up | IEEE 802.11, enhanced distributed channel access |
//! | hidden stations | pairs do not sense each other; the access point hears both, and loses what overlaps. Where a scene says so, who failed asks for leave (RTS, CTS) | drivers do so for what they send again |
//! | interferers | bursts that nobody asked for, sensed or not; what is on the air beside them is lost | microwave ovens radiate in half of each period of the mains |
//! | aggregation | up to 32 MPDUs, 64 kB or 5.5 ms go in one PPDU, acknowledged together; each MPDU can be lost by itself | 802.11n/ac, A-MPDU |
//! | rate | falls after a PPDU that failed, be it by a collision, and rises after one that did not: what simple rate controls do | measured behaviour of commodity drivers |
//! | stations (`scene.rs`) | each has a rate, losses and a bounded queue of its own; all of it can change at a given time | |
//! | answers | the access point contends like the others, with the transport's acknowledgements | |
//! | transport (`flow.rs`) | a window that begins with ten packets after a pause and doubles each round trip, up to the driver's queue | RFC 6928, RFC 5681 |
//!
//! Collisions, and with them the loss of rate that makes five cameras more than five times as slow as one, come out of this; they
//! are not put in. `tables.rs` holds what the authors of Mez measured, and how far the model is from it.

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
    /// The highest rate, in Mbit/s, where a station has no other.
    pub phy_mbps: f64,
    /// Lost MPDUs, as a share, where a station has no other.
    pub mpdu_loss: f64,
    /// What a failed PPDU leaves of the rate.
    pub rate_fall: f64,
    /// What a good one makes of it.
    pub rate_rise: f64,
    /// The lowest rate, in Mbit/s.
    pub rate_mbps_min: f64,
    /// The smallest range of the back-off, in slots.
    pub cw_min: u64,
    /// The largest.
    pub cw_max: u64,
    /// What a medium must be idle before the back-off goes on, in microseconds.
    pub aifs_us: f64,
    /// MPDUs of a PPDU, at most.
    pub mpdus_max: usize,
    /// Delay of each direction beside the medium, in microseconds, and as much again of jitter.
    pub delay_us: f64,
    /// Packets in a driver's queue, at most, where a station has no other.
    pub queue_packets_max: usize,
    /// How often a PPDU that failed is sent again, at most.
    pub retries_max: u32,
    /// After so many failures of a PPDU its station asks for leave first (RTS, CTS), which stations hear that do not hear each other.
    pub request_after_failures: u32,
}

impl Constants {
    /// As calibrated: see [`tables`].
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

    /// A station as all of them are.
    pub const fn station(&self) -> Station {
        Station {
            phy_mbps: self.phy_mbps,
            mpdu_loss: self.mpdu_loss,
            queue_packets_max: self.queue_packets_max,
        }
    }
}
