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
mod constants;
mod flow;
mod medium;
mod scene;
pub mod tables;
#[cfg(test)]
mod tests;

pub use self::constants::Constants;
pub use self::medium::{Medium, Through, capacity, latencies_ms};
pub use self::scene::{Change, Interferer, Load, Scene, Station, What};
