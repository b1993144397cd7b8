//! Models a Wi-Fi channel: stations contend for one half-duplex medium, and cameras send frames over it as TCP would.
//!
//! | part | model | source |
//! | --- | --- | --- |
//! | access (`air.rs`) | slotted CSMA/CA: a station with a packet waits AIFS and a random number of idle slots, whose range doubles after a failure; stations that reach zero in the same slot collide; after 7 retries a PPDU is given up | IEEE 802.11, enhanced distributed channel access |
//! | hidden stations | pairs do not sense each other; the access point hears both, and loses overlapping PPDUs. If a scene says so, a station that failed sends an RTS first, and waits for the CTS | drivers do so for retransmissions |
//! | interferers | bursts from other devices, sensed or not; a PPDU that overlaps a burst is lost | microwave ovens radiate in half of each period of the mains |
//! | aggregation | up to 32 MPDUs, 64 kB or 5.5 ms go in one PPDU, acknowledged together; each MPDU can be lost by itself | 802.11n/ac, A-MPDU |
//! | rate | falls after a failed PPDU, even after a collision, and rises after a successful one, as in simple rate controls | measured behaviour of commodity drivers |
//! | stations (`scene.rs`) | each has its own rate, losses and bounded queue; all can change at a given time | |
//! | answers | the access point contends like the stations, with the transport's acknowledgements | |
//! | transport (`flow.rs`) | a window that begins with ten packets after a pause and doubles each round trip, up to the driver's queue | RFC 6928, RFC 5681 |
//!
//! Collisions are not an input of the model; they follow from it. So does the loss of rate that makes five cameras more than five times as slow as
//! one. `tables.rs` holds the measurements of Mez's authors, and computes the error of the model.

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
