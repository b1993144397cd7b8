//! How far groups of readers are behind the cameras that they read.

use std::collections::BTreeMap;

use mez_core::frame::FrameId;
use mez_core::group::members::GroupKey;
use mez_core::name::CameraName;

use crate::edge::GroupReport;

/// How many records a camera has published since `last`, given its newest. `None`: not known, because the camera is absent or was restarted since.
pub(super) fn lag(newest: Option<FrameId>, last: FrameId) -> Option<u64> {
    let newest = newest?;
    (newest.epoch == last.epoch).then(|| newest.sequence.0.saturating_sub(last.sequence.0))
}

/// The camera with which a group is furthest behind, and by how many records. `None`: no lag is known.
pub(super) fn furthest(
    report: &GroupReport,
    newest: impl Fn(&CameraName) -> Option<FrameId>,
) -> Option<(&CameraName, u64)> {
    let lanes = report.standing.iter().flat_map(|standing| &standing.lanes);
    let lags = lanes.filter_map(|(name, last, _)| Some((name, lag(newest(name), *last)?)));
    lags.max_by_key(|(_, lag)| *lag)
}

/// The groups that are behind, each with the camera and the number of records.
pub(super) type Behind = BTreeMap<GroupKey, (CameraName, u64)>;

/// The groups that are behind. A group is behind above `records_max`, and has caught up at half of it, so that
/// a group at the bound is not reported again and again. While its lag is not known, its state does not change.
pub(super) fn behind(
    groups: &[GroupReport],
    before: &Behind,
    records_max: u64,
    newest: impl Fn(&CameraName) -> Option<FrameId>,
) -> Behind {
    let is_behind = |report: &GroupReport| {
        let was = before.get(&report.key);
        let Some((name, lag)) = furthest(report, &newest) else {
            let is_unknown = report.standing.as_ref().is_none_or(|standing| !standing.lanes.is_empty());
            return was.filter(|_| is_unknown).map(|was| (report.key.clone(), was.clone()));
        };
        let bound = if was.is_some() { records_max / 2 } else { records_max };
        (lag > bound).then(|| (report.key.clone(), (name.clone(), lag)))
    };
    groups.iter().filter_map(is_behind).collect()
}

#[cfg(test)]
mod tests {
    use mez_core::frame::{Epoch, Sequence};
    use mez_core::group::GroupOptions;
    use mez_core::group::members::Asks;
    use mez_core::rights::Bearer;
    use mez_core::subscription::SubscriptionSpec;

    use super::*;
    use crate::edge::GroupStanding;

    fn frame(epoch: u64, sequence: u64) -> FrameId {
        FrameId { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    fn group(lanes: &[(&str, FrameId)]) -> GroupReport {
        let asks = Asks::of(&SubscriptionSpec::live("dock/*".parse().unwrap()), GroupOptions::EVERY).unwrap();
        let lanes = lanes.iter().map(|(camera, last)| (camera.parse().unwrap(), *last, 0)).collect();
        let key = GroupKey { owner: Bearer::Owner, name: "detect".parse().unwrap() };
        GroupReport { key, asks, standing: Some(GroupStanding { lanes, ..GroupStanding::default() }) }
    }

    #[test]
    fn a_group_has_caught_up_at_half_of_the_bound() {
        let group = [group(&[("dock/a", frame(1, 10)), ("dock/b", frame(1, 10))])];
        let mut before = Behind::new();
        for (lag, is_behind) in
            [(1000, false), (1001, true), (600, true), (501, true), (500, false), (600, false)]
        {
            let newest = |camera: &CameraName| {
                let ahead = if camera.as_str() == "dock/b" { lag } else { 0 };
                Some(frame(1, 10 + ahead))
            };
            before = behind(&group, &before, 1000, newest);
            let told = before.get(&group[0].key).map(|(camera, lag)| (camera.as_str(), *lag));
            assert_eq!(told, is_behind.then_some(("dock/b", lag)), "{lag} records");
        }
    }

    /// After a restart of the camera the group's lag is not known. That does not mean that the group has caught up.
    #[test]
    fn an_unknown_lag_changes_nothing() {
        let known = [group(&[("dock/a", frame(1, 10))])];
        let was = behind(&known, &Behind::new(), 1000, |_| Some(frame(1, 5000)));
        assert_eq!(was.len(), 1);
        assert_eq!(behind(&known, &was, 1000, |_| Some(frame(2, 0))), was, "the camera was restarted");
        let asleep = [GroupReport { standing: None, ..known[0].clone() }];
        assert_eq!(behind(&asleep, &was, 1000, |_| None), was);
        assert!(behind(&known, &Behind::new(), 1000, |_| Some(frame(2, 9000))).is_empty());
        assert!(behind(&[group(&[])], &was, 1000, |_| None).is_empty(), "the camera was forgotten");
        assert!(behind(&[], &was, 1000, |_| None).is_empty(), "the group was forgotten");
    }
}
