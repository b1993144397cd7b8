//! Holds the constants of a medium.

/// The constants of a medium.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constants {
    /// The highest rate of a station, in Mbit/s, unless the station has its own.
    pub phy_mbps: f64,
    /// The share of lost MPDUs of a station, unless the station has its own.
    pub mpdu_loss: f64,
    /// The factor on the rate after a failed PPDU.
    pub rate_fall: f64,
    /// The factor on the rate after a successful PPDU.
    pub rate_rise: f64,
    /// The lowest rate, in Mbit/s.
    pub rate_mbps_min: f64,
    /// The smallest range of the back-off, in slots.
    pub cw_min: u64,
    /// The largest range of the back-off, in slots.
    pub cw_max: u64,
    /// How long the medium must be idle before the back-off continues, in microseconds.
    pub aifs_us: f64,
    /// The most MPDUs of a PPDU.
    pub mpdus_max: usize,
    /// The delay of each direction besides the medium, in microseconds. Jitter adds up to as much again.
    pub delay_us: f64,
    /// The most packets in a driver's queue, unless a station has its own limit.
    pub queue_packets_max: usize,
    /// How often a failed PPDU is sent again, at most.
    pub retries_max: u32,
    /// After this many failures of a PPDU, its station sends an RTS first. Hidden stations hear the access point's CTS.
    pub request_after_failures: u32,
}

impl Constants {
    /// The calibrated constants: see [`tables`](super::tables).
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
}
