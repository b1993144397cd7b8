//! Counts what a camera takes of its channel in addition to the payload of its frames: headers, and messages of the control stream.
//!
//! For small frames the overhead is as large as the payload: a frame of 400 bytes has 240 bytes of headers, and a connection carries some
//! ten messages a second. A division by payload alone would promise half as much again as the channel carries, and a queue would build up.

use std::time::Duration;

use crate::units::Instant;

/// The bytes of a datagram in addition to its content: headers of IP, UDP and QUIC, and the cipher's tag.
pub const DATAGRAM_OVERHEAD_BYTES: u32 = 60;
/// The content of a full datagram.
pub const DATAGRAM_BYTES: u32 = 1_390;
/// The datagrams per second that only acknowledge what the edge sends to a camera: measured at ten frames per second.
const ACKNOWLEDGEMENTS_PER_SECOND: f64 = 8.0;
/// The duration of one sample of the messages' rate.
const SAMPLE: Duration = Duration::from_secs(1);
/// The most bytes per second that are kept for the messages of one camera: about twice what
/// a busy camera sends. A camera that floods its edge takes no more from the others' shares.
const CONTROL_MAX: f64 = 8e3;
/// The weight of a sample.
const GAIN: f64 = 0.3;

/// The bytes that content takes of a link, with the overhead of its datagrams.
pub fn on_the_wire(bytes: u32) -> u32 {
    bytes.saturating_add(DATAGRAM_OVERHEAD_BYTES.saturating_mul(bytes.div_ceil(DATAGRAM_BYTES)))
}

/// What a camera takes of its channel in addition to the payload of its frames. Default: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Overhead {
    /// Overhead of each frame in bytes: the frame's header, and the overhead of its last datagram.
    pub frame_bytes: f64,
    /// Overhead of each byte of payload: the overhead of full datagrams.
    pub share: f64,
}

impl Overhead {
    /// The bytes that a frame with a payload of `bytes` takes of the channel.
    pub fn with_frame(&self, bytes: f64) -> f64 {
        bytes * (1.0 + self.share) + self.frame_bytes
    }
}

/// Measures the overhead of a camera on its present connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverheadMeter {
    header_bytes: u32,
    /// The sample that is being taken: its beginning and its bytes so far.
    sample: Option<(Instant, f64)>,
    bytes_per_second: Option<f64>,
}

impl OverheadMeter {
    /// A frame came with a header of this size.
    pub fn handle_frame(&mut self, header_bytes: u32) {
        self.header_bytes = header_bytes;
    }

    /// A message of the control stream came. Each message has a datagram of its own, because messages are far apart.
    pub fn handle_message(&mut self, now: Instant, bytes: u32) {
        let (since, so_far) = self.sample.unwrap_or((now, 0.0));
        let passed = now.saturating_since(since);
        let so_far = so_far + f64::from(on_the_wire(bytes));
        if passed < SAMPLE {
            self.sample = Some((since, so_far));
            return;
        }
        let rate = so_far / passed.as_secs_f64();
        self.bytes_per_second =
            Some(self.bytes_per_second.map_or(rate, |known| known + GAIN * (rate - known)));
        self.sample = Some((now, 0.0));
    }

    /// The overhead of the camera's frames, as measured by the last frame.
    pub fn of_frames(&self) -> Overhead {
        Overhead {
            frame_bytes: f64::from(self.header_bytes + DATAGRAM_OVERHEAD_BYTES),
            share: f64::from(DATAGRAM_OVERHEAD_BYTES) / f64::from(DATAGRAM_BYTES),
        }
    }

    /// Bytes per second that the camera's messages and acknowledgements take. 0 until measured.
    pub fn control_bytes_per_second(&self) -> f64 {
        let acknowledgements = ACKNOWLEDGEMENTS_PER_SECOND * f64::from(DATAGRAM_OVERHEAD_BYTES);
        self.bytes_per_second.map_or(0.0, |messages| (messages + acknowledgements).min(CONTROL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_take_much_more_than_their_payload() {
        let mut meter = OverheadMeter::default();
        meter.handle_frame(180);
        for message in 0..50u64 {
            meter.handle_message(Instant::ZERO + Duration::from_millis(100 * message), 40);
        }
        let (overhead, control) = (meter.of_frames(), meter.control_bytes_per_second());
        // Ten messages of 100 bytes, and eight acknowledgements of 60.
        assert!((control / 1_480.0 - 1.0).abs() < 0.1, "{control}");
        let (small, large) = (overhead.with_frame(400.0), overhead.with_frame(100e3));
        assert!(small > 650.0 && large < 105e3, "{small} and {large}");
        assert_eq!(Overhead::default().with_frame(400.0), 400.0);
        for message in 0..5_000u64 {
            meter.handle_message(Instant::ZERO + Duration::from_millis(5_000 + message), 4_000);
        }
        assert_eq!(meter.control_bytes_per_second(), CONTROL_MAX, "a flood counts so much and no more");
    }

    #[test]
    fn content_is_cut_into_datagrams() {
        assert_eq!(on_the_wire(1), 61);
        assert_eq!(on_the_wire(DATAGRAM_BYTES), DATAGRAM_BYTES + 60);
        assert_eq!(on_the_wire(DATAGRAM_BYTES + 1), DATAGRAM_BYTES + 121);
        assert_eq!(on_the_wire(u32::MAX), u32::MAX);
    }
}
