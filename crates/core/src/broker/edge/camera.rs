//! Holds the known cameras, divides the memory between them, and decides when a camera counts as silent.

use std::collections::BTreeMap;

use super::connection::Connections;
use super::derived::Derived;
use super::pace::Pace;
use super::replica::Replica;
use super::report::CameraReport;
use super::traffic::TrafficMeter;
use super::types::{DERIVED_BYTES_MAX, DERIVED_MAX, EdgeConfig, EdgeOutput, Forgotten};
use crate::answers::Outlet;
use crate::broker::LinkId;
use crate::buffer::payload_within;
use crate::frame::Epoch;
use crate::log::{RECORD_OVERHEAD_BYTES_MAX, Record};
use crate::name::{CameraName, CameraPattern};
use crate::stills::still_bytes_max;
use crate::units::{ClockAnchor, Instant};

/// A camera that is or was connected, or a derived stream.
pub(super) struct Camera {
    /// Its present connection.
    pub(super) link: Option<LinkId>,
    /// If nothing was heard on the present connection for too long ([`Connection::silent_from`]): when it was last heard.
    silent: Option<Instant>,
    /// When the last connection was last heard, once it is over.
    pub(super) gone: Option<Instant>,
    pub(super) identity: String,
    /// The highest accepted epoch, and the anchor of its start. No two starts take their
    /// anchors at the same moment, so the anchor tells apart starts with the same epoch.
    pub(super) newest_start: (Epoch, ClockAnchor),
    /// The camera's frames at the edge.
    pub(super) replica: Replica,
    /// What the camera is asked for, and what it reports.
    pub(super) report: CameraReport,
    /// How often its frames come.
    pub(super) pace: Pace,
    /// The rates at which its frames are published and cross the link.
    pub(super) traffic: TrafficMeter,
    /// Answers of applications to its frames, on their way to the camera.
    pub(super) answers: Outlet,
    /// Set if this is a derived stream, which never has a connection.
    pub(super) derived: Option<Derived>,
}

/// The weight of a camera when memory is divided. Results are small beside frames, so a derived stream has less.
const CAMERA_PARTS: u64 = 8;
/// The weight of a derived stream when memory is divided.
const DERIVED_PARTS: u64 = 1;

impl Camera {
    /// Whether the camera is connected and not silent, or the derived stream has a publisher.
    pub(super) fn is_heard(&self) -> bool {
        let is_published = self.derived.as_ref().is_some_and(|derived| derived.publishers > 0);
        self.link.is_some() && !self.is_silent() || is_published
    }

    /// Whether the camera is connected and nothing was heard of it for too long.
    pub(super) fn is_silent(&self) -> bool {
        self.silent.is_some()
    }

    /// What is known of the camera, for the caller that forgets it.
    pub(super) fn forgotten(&self) -> Forgotten {
        let (epoch, identity) = (self.newest_start.0, self.identity.clone());
        Forgotten { epoch, identity, connected: self.is_heard() }
    }

    /// A start of the camera was accepted.
    pub(super) fn handle_taken_in(
        &mut self,
        (link, attempt): (LinkId, u64),
        identity: String,
        start: (Epoch, ClockAnchor),
    ) {
        // The previous holder of the name was refused first.
        debug_assert!(self.link.is_none(), "a camera has two connections");
        debug_assert!(self.derived.is_none(), "a camera takes the name of a derived stream");
        debug_assert!(start.0 >= self.newest_start.0, "an older start takes the place of a newer one");
        (self.link, self.silent) = (Some(link), None);
        (self.identity, self.newest_start) = (identity, start);
        self.report.handle_taken_in();
        self.answers.handle_taken_in(start, attempt);
    }

    /// The camera's connection is gone. `heard` is when it was last heard.
    pub(super) fn handle_gone(&mut self, heard: Instant) {
        (self.link, self.silent, self.gone) = (None, None, Some(heard));
        self.report.handle_gone();
        self.traffic.handle_gone();
        self.answers.handle_closed();
    }
}

/// All cameras that are known.
pub(super) struct Cameras {
    known: BTreeMap<CameraName, Camera>,
    log_bytes_max: u64,
    frame_bytes_max: u32,
    cameras_max: usize,
}

impl Cameras {
    pub(super) fn new(config: &EdgeConfig) -> Self {
        let EdgeConfig { log_bytes_max, frame_bytes_max, cameras_max, .. } = *config;
        Self { known: BTreeMap::new(), log_bytes_max, frame_bytes_max, cameras_max }
    }

    pub(super) fn get(&self, name: &CameraName) -> Option<&Camera> {
        self.known.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &CameraName) -> Option<&mut Camera> {
        self.known.get_mut(name)
    }

    /// All cameras, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&CameraName, &Camera)> {
        self.known.iter()
    }

    /// The names of the cameras that `which` selects.
    pub(super) fn names(&self, which: impl Fn(&CameraName, &Camera) -> bool) -> Vec<CameraName> {
        self.known.iter().filter(|(name, camera)| which(name, camera)).map(|(name, _)| name.clone()).collect()
    }

    /// The names of the cameras that a pattern selects.
    pub(super) fn matching(&self, pattern: &CameraPattern) -> Vec<CameraName> {
        self.names(|name, _| pattern.matches(name))
    }

    /// How many more cameras may become known.
    pub(super) fn room(&self) -> usize {
        self.cameras_max.saturating_sub(self.known.len() - self.derived().count())
    }

    /// How many more derived streams may become known.
    pub(super) fn derived_room(&self) -> usize {
        DERIVED_MAX.saturating_sub(self.derived().count())
    }

    /// The derived streams.
    pub(super) fn derived(&self) -> impl Iterator<Item = &Derived> {
        self.known.values().filter_map(|camera| camera.derived.as_ref())
    }

    /// The most cameras.
    pub(super) fn cameras_max(&self) -> usize {
        self.cameras_max
    }

    /// The memory budget of the frames of all cameras together, in bytes.
    pub(super) fn log_bytes_max(&self) -> u64 {
        self.log_bytes_max
    }

    /// The largest payload that is accepted now, in bytes: the camera's log must be able to hold it.
    pub(super) fn frame_bytes_max(&self) -> u32 {
        let share = self.share(CAMERA_PARTS);
        self.frame_bytes_max.min(fits(share - still_bytes_max(share)))
    }

    /// The largest record of a derived stream that is accepted now, in bytes.
    pub(super) fn derived_bytes_max(&self) -> u32 {
        self.frame_bytes_max.min(DERIVED_BYTES_MAX).min(fits(self.share(DERIVED_PARTS)))
    }

    /// Makes a camera or a derived stream known. Returns false if it was known before.
    pub(super) fn know(
        &mut self,
        name: &CameraName,
        identity: &str,
        start: (Epoch, ClockAnchor),
        derived: Option<Derived>,
    ) -> bool {
        if self.known.contains_key(name) {
            return false;
        }
        let room = if derived.is_some() { self.derived_room() } else { self.room() };
        debug_assert!(room > 0, "more cameras become known than may");
        let parts = if derived.is_some() { DERIVED_PARTS } else { CAMERA_PARTS };
        let share = self.share_among(parts, self.parts() + parts);
        let camera = Camera {
            link: None,
            silent: None,
            gone: None,
            identity: identity.into(),
            newest_start: start,
            replica: Replica::new(name.clone(), share),
            report: CameraReport::default(),
            pace: Pace::default(),
            traffic: TrafficMeter::default(),
            answers: Outlet::default(),
            derived,
        };
        self.known.insert(name.clone(), camera);
        self.share_out();
        true
    }

    /// Restores a camera's frames from a log on disk. Returns how many do not fit.
    pub(super) fn restore(&mut self, name: &CameraName, records: Vec<Record>) -> u64 {
        let Some(camera) = self.known.get_mut(name) else { return records.len() as u64 };
        records.into_iter().map(|record| u64::from(!camera.replica.restore(record))).sum()
    }

    /// Forgets a camera.
    pub(super) fn remove(&mut self, name: &CameraName) {
        self.known.remove(name);
        self.share_out();
    }

    /// When a camera becomes silent, or should have been noted as heard again.
    pub(super) fn silence_due(&self, connections: &Connections) -> Option<Instant> {
        let due = |camera: &Camera| {
            let link = connections.get(camera.link?)?;
            match camera.silent {
                None => Some(link.silent_from()),
                Some(at) => (link.heard > at).then_some(link.heard),
            }
        };
        self.known.values().filter_map(due).min()
    }

    /// Notes which cameras have become silent, or are heard again.
    pub(super) fn handle_timeout(&mut self, now: Instant, connections: &Connections) -> Vec<EdgeOutput> {
        let mut outputs = Vec::new();
        for (name, camera) in &mut self.known {
            let Some(link) = camera.link.and_then(|link| connections.get(link)) else { continue };
            // A silent camera stays silent until it is heard, even if a longer silence is allowed now.
            let silent = match camera.silent {
                None => now >= link.silent_from(),
                Some(at) => link.heard <= at,
            };
            if silent == camera.is_silent() {
                continue;
            }
            camera.silent = silent.then_some(link.heard);
            let lasts = now.saturating_since(link.heard).as_millis();
            let reason = silent.then(|| format!("no message from the camera for {lasts} ms"));
            outputs.push(EdgeOutput::CameraChanged { camera: name.clone(), up: !silent, reason });
            outputs.push(EdgeOutput::ViewChanged { camera: name.clone() });
        }
        outputs
    }

    /// The memory budget of one camera or derived stream of weight `parts`, in bytes.
    fn share(&self, parts: u64) -> u64 {
        self.share_among(parts, self.parts().max(parts))
    }

    fn share_among(&self, parts: u64, all: u64) -> u64 {
        // The result is at most `log_bytes_max`, so it fits.
        (u128::from(self.log_bytes_max) * u128::from(parts) / u128::from(all)) as u64
    }

    /// The sum of all weights.
    fn parts(&self) -> u64 {
        self.known.values().map(parts_of).sum()
    }

    /// Sets every camera's budget to its share.
    fn share_out(&mut self) {
        let (of_camera, of_derived) = (self.share(CAMERA_PARTS), self.share(DERIVED_PARTS));
        for camera in self.known.values_mut() {
            let share = if camera.derived.is_some() { of_derived } else { of_camera };
            camera.replica.set_share(share);
        }
    }
}

fn parts_of(camera: &Camera) -> u64 {
    if camera.derived.is_some() { DERIVED_PARTS } else { CAMERA_PARTS }
}

/// The largest payload that a log of `log_bytes` bytes holds.
fn fits(log_bytes: u64) -> u32 {
    let fits = payload_within(log_bytes.saturating_sub(RECORD_OVERHEAD_BYTES_MAX) as usize);
    u32::try_from(fits).unwrap_or(u32::MAX)
}
