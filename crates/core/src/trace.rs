//! Records when a frame passed each stage on its way from the camera to the application.
//!
//! The camera's stamps cross the link in the frame's header ([`CameraTrace`]), and the edge adds its own ([`FrameTrace`]). For
//! an application, all stamps become times since the capture ([`Trace`]), joined by the measured offset of the two clocks.
//! Whatever a peer claims, these times never run backwards, and no camera stage lies after the frame's arrival at the edge.

use std::time::Duration;

use crate::units::Instant;

/// A stage on a frame's way, in order. Not every frame passes every stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// The camera broker found the frame in its log.
    Published = 1,
    /// The camera's controller began to choose a rung. Until then the frame waited for the link.
    Considered = 2,
    /// The controller had chosen a rung.
    Chosen = 3,
    /// A codec began to encode the frame. Absent if the frame goes unchanged.
    Encoding = 4,
    /// The codec had finished.
    Encoded = 5,
    /// The camera broker gave the frame to the link.
    Queued = 6,
    /// The first byte was given to the transport.
    Sent = 7,
    /// The edge had received the frame's header.
    Arriving = 8,
    /// The edge had received the frame's last byte.
    Arrived = 9,
    /// The edge had made a still of the frame. Absent if the frame already was one, or if the application decodes video itself.
    Decoded = 10,
    /// The frame was in the edge's replica log.
    Logged = 11,
    /// The edge took the frame from the log for this subscription and began to hand it over.
    Handed = 12,
    /// The application's client library had received all of the frame.
    Received = 13,
    /// The application took the frame from the client library.
    Taken = 14,
    /// The client library had decoded the frame's pixels for the application.
    Opened = 15,
}

impl Stage {
    /// All stages in order, which is also the order of their wire codes.
    pub const ALL: [Self; 15] = [
        Self::Published,
        Self::Considered,
        Self::Chosen,
        Self::Encoding,
        Self::Encoded,
        Self::Queued,
        Self::Sent,
        Self::Arriving,
        Self::Arrived,
        Self::Decoded,
        Self::Logged,
        Self::Handed,
        Self::Received,
        Self::Taken,
        Self::Opened,
    ];
    /// How many stages lie at the camera; they come first.
    pub const AT_CAMERA: usize = Self::Sent as usize;

    /// The stage with this wire code, if this version knows it.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| *stage as u8 == code)
    }

    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Considered => "considered",
            Self::Chosen => "chosen",
            Self::Encoding => "encoding",
            Self::Encoded => "encoded",
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Arriving => "arriving",
            Self::Arrived => "arrived",
            Self::Decoded => "decoded",
            Self::Logged => "logged",
            Self::Handed => "handed",
            Self::Received => "received",
            Self::Taken => "taken",
            Self::Opened => "opened",
        }
    }

    /// The stage's place among all stages.
    const fn place(self) -> usize {
        self as usize - 1
    }
}

/// The camera's stamps of a frame, by the camera's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraTrace([Option<Instant>; Stage::AT_CAMERA]);

impl CameraTrace {
    /// Records when the frame passed a stage; the last record counts. A stage that is not at the camera is
    /// ignored.
    pub fn stamp(&mut self, stage: Stage, at: Instant) {
        if let Some(stamp) = self.0.get_mut(stage.place()) {
            *stamp = Some(at);
        }
    }

    /// When the frame passed a stage.
    pub fn get(&self, stage: Stage) -> Option<Instant> {
        self.0.get(stage.place()).copied().flatten()
    }

    /// The recorded stages.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Instant)> + '_ {
        Stage::ALL.into_iter().filter_map(|stage| Some((stage, self.get(stage)?)))
    }

    /// Whether no stage is recorded.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

/// All stamps of a frame in an edge's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTrace {
    /// The camera's stamps, by the camera's clock.
    pub camera: CameraTrace,
    /// When the header had arrived, by the edge's clock.
    pub arriving: Instant,
    /// When the last byte had arrived, by the edge's clock.
    pub arrived: Instant,
    /// When the frame was decoded, by the edge's clock; `None` if it needed no decoding.
    pub decoded: Option<Instant>,
    /// When the frame was appended to the log, by the edge's clock.
    pub logged: Instant,
    /// Whether the frame came after a silence of its link, with a newer frame right behind it. Subscriptions to the newest frame skip it.
    pub overtaken: bool,
}

impl FrameTrace {
    /// Converts all stamps to times since the capture. The capture was at `captured` by the camera's
    /// clock and at `captured_here` by the edge's clock; `error` bounds the error of `captured_here`.
    pub fn since(&self, captured: Instant, (captured_here, error): (Instant, Duration)) -> Trace {
        let here = |at: Instant| at.saturating_since(captured_here);
        let mut trace = Trace::with_error(Some(error));
        let arriving = here(self.arriving);
        for (stage, at) in self.camera.iter() {
            // No camera stage can lie after the arrival, which the edge measured itself.
            trace.stamp(stage, at.saturating_since(captured).min(arriving));
        }
        trace.stamp(Stage::Arriving, arriving);
        trace.stamp(Stage::Arrived, here(self.arrived));
        if let Some(decoded) = self.decoded {
            trace.stamp(Stage::Decoded, here(decoded));
        }
        trace.stamp(Stage::Logged, here(self.logged));
        trace
    }
}

/// How long after its capture a frame passed each stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    since_capture: [Option<Duration>; Stage::ALL.len()],
    /// The greatest error of the times after the camera's stages, which were measured by another clock. Times
    /// of camera stages have no such error. `None`: unknown.
    pub error: Option<Duration>,
}

impl Trace {
    /// An empty trace whose times will have at most this error.
    pub fn with_error(error: Option<Duration>) -> Self {
        Self { error, ..Self::default() }
    }

    /// Records how long after its capture the frame passed a stage. Call it in the order of the stages. The
    /// error of the clocks can give a time before that of an earlier stage; the earlier stage's time then
    /// counts.
    pub fn stamp(&mut self, stage: Stage, since_capture: Duration) {
        let earlier = self.since_capture[..stage.place()].iter().flatten().max();
        self.since_capture[stage.place()] = Some(since_capture.max(earlier.copied().unwrap_or_default()));
    }

    /// How long after its capture the frame passed a stage.
    pub fn get(&self, stage: Stage) -> Option<Duration> {
        self.since_capture[stage.place()]
    }

    /// The known stages in order, with times that never decrease.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, Duration)> + '_ {
        Stage::ALL.into_iter().filter_map(|stage| Some((stage, self.get(stage)?)))
    }

    /// Whether no stage is known.
    pub fn is_empty(&self) -> bool {
        self.since_capture.iter().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stages_have_dense_codes_in_the_order_of_the_way() {
        for (place, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage.place(), place);
            assert_eq!(Stage::from_code(stage as u8), Some(stage));
        }
        assert_eq!((Stage::from_code(0), Stage::from_code(16)), (None, None));
    }

    fn at() -> impl Strategy<Value = Instant> {
        prop_oneof![any::<u64>(), 0u64..1_000].prop_map(Instant::from_nanos)
    }

    proptest! {
        /// For any stamps that a camera claims, times never run backwards, and camera stages lie before the frame's arrival.
        #[test]
        fn times_run_forwards(
            claims in proptest::collection::vec((0usize..Stage::ALL.len(), at()), 0..20),
            captured in (at(), at()),
            here in (at(), at(), proptest::option::of(at()), at()),
        ) {
            let mut camera = CameraTrace::default();
            claims.iter().for_each(|(stage, at)| camera.stamp(Stage::ALL[*stage], *at));
            let (arriving, arrived, decoded, logged) = here;
            let stamps = FrameTrace { camera, arriving, arrived, decoded, logged, overtaken: false };
            let trace = stamps.since(captured.0, (captured.1, Duration::ZERO));
            let times: Vec<_> = trace.iter().map(|(_, since)| since).collect();
            prop_assert!(times.is_sorted(), "{trace:?}");
            prop_assert_eq!(trace.get(Stage::Arriving), Some(arriving.saturating_since(captured.1)));
            prop_assert_eq!(trace.get(Stage::Decoded).is_some(), decoded.is_some());
            for (stage, _) in camera.iter() {
                prop_assert!(trace.get(stage) <= trace.get(Stage::Arriving));
            }
        }
    }
}
