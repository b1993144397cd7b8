//! How far groups of readers are behind the cameras that they read.

use std::collections::BTreeMap;

use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::name::CameraName;

use super::watcher::Looked;
use crate::edge::GroupReport;

/// How many records a camera has published since `last`. `None`: nobody knows, because the camera was restarted since, or is not there.
pub(super) fn lag(camera: Option<&Looked>, last: FrameId) -> Option<u64> {
    let (newest, _) = camera?.camera.info.newest?;
    (newest.epoch == last.epoch).then(|| newest.sequence.0.saturating_sub(last.sequence.0))
}

/// With which camera a group is behind the most, and by how many records. `None`: with none.
pub(super) fn furthest<'a>(
    report: &'a GroupReport,
    camera: impl Fn(&CameraName) -> Option<&'a Looked>,
) -> Option<(&'a CameraName, u64)> {
    let lanes = report.standing.iter().flat_map(|standing| &standing.lanes);
    let lags = lanes.filter_map(|(name, last, _)| Some((name, lag(camera(name), *last)?)));
    lags.max_by_key(|(_, lag)| *lag)
}

/// The groups that are behind, each with the camera and the number of records.
pub(super) type Behind = BTreeMap<GroupKey, (CameraName, u64)>;

/// The groups that are behind. A group begins to be behind above `records_max`. It has caught up at half of that, so that a group at the bound is
/// not told of again and again.
pub(super) fn behind<'a>(
    groups: &'a [GroupReport],
    before: &Behind,
    records_max: u64,
    camera: impl Fn(&CameraName) -> Option<&'a Looked>,
) -> Behind {
    let is_behind = |report: &'a GroupReport| {
        let (name, lag) = furthest(report, &camera)?;
        let bound = if before.contains_key(&report.key) { records_max / 2 } else { records_max };
        (lag > bound).then(|| (report.key.clone(), (name.clone(), lag)))
    };
    groups.iter().filter_map(is_behind).collect()
}
