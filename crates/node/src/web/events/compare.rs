//! Finds the changes between two looks.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use mez_core::broker::edge::SubscriptionId;
use mez_core::contract::ContractState;
use mez_core::source::SourceState;
use mez_core::units::Timestamp;

use super::super::certificates::{Ending, Standing};
use super::super::watcher::{Look, Looked};
use super::happened::{About, Happened};
use crate::edge::{AccountNow, GivenNow};

/// The events of the first look: the cameras that are there, and everything that is not normal.
pub(super) fn begin(look: &Look, soon: Duration) -> Vec<Happened> {
    let mut found = Vec::new();
    look.cameras.iter().for_each(|looked| compare_camera(look, None, looked, &mut found));
    compare_certificates(None, certificates(look), soon, &mut found);
    compare_groups(None, look, &mut found);
    found
}

/// The changes between two looks. A certificate ends soon if it expires within `soon`.
pub(super) fn changed(before: &Look, after: &Look, soon: Duration) -> Vec<Happened> {
    let mut found = Vec::new();
    for looked in &after.cameras {
        compare_camera(after, before.camera(looked.name()), looked, &mut found);
    }
    for looked in before.cameras.iter().filter(|looked| after.camera(looked.name()).is_none()) {
        let connected = connection(looked);
        let sentence = "the edge has forgotten the camera".to_owned();
        found.push(of_camera(after, looked, "camera", ("forgotten", Some(connected), sentence)));
    }
    compare_contracts(before, after, &mut found);
    compare_certificates(Some(certificates(before)), certificates(after), soon, &mut found);
    compare_groups(Some(before), after, &mut found);
    found
}

fn connection(looked: &Looked) -> &'static str {
    if looked.camera.info.connected { "connected" } else { "absent" }
}

/// An event about a camera at this look.
fn of_camera(
    look: &Look,
    looked: &Looked,
    kind: &'static str,
    state: (&'static str, Option<&'static str>, String),
) -> Happened {
    Happened::of(look.at_utc, About::Camera(looked.name().clone()), kind, state)
}

/// The changes of a camera. Without an earlier look: everything about it that is not normal.
fn compare_camera(look: &Look, before: Option<&Looked>, after: &Looked, found: &mut Vec<Happened>) {
    let (was, is) = (before.map(connection), connection(after));
    if was != Some(is) {
        let sentence = match is {
            "connected" => format!("camera {} is connected", after.name()),
            _ => format!("camera {} is not connected", after.name()),
        };
        found.push(of_camera(look, after, "camera", (is, was, sentence)));
    }
    let source = |looked: &Looked| looked.camera.info.source.as_ref().map(|source| source.state);
    let (was, is) = (before.and_then(source), source(after));
    if let (true, Some(standing)) = (was != is, &after.camera.info.source)
        && (was.is_some() || standing.state != SourceState::Live)
    {
        let sentence = standing.sentence().unwrap_or_else(|| "the camera's source gives frames".into());
        let state = (standing.state.name(), was.map(SourceState::name), sentence);
        found.push(of_camera(look, after, "source", state));
    }
    let degraded = |looked: &Looked| {
        looked.store.as_ref().and_then(|store| store.degraded.as_ref()).map(ToString::to_string)
    };
    let (was, is) = (before.and_then(degraded), degraded(after));
    if was.is_some() != is.is_some() {
        let name = |is_degraded: bool| if is_degraded { "degraded" } else { "ok" };
        let state = (name(is.is_some()), before.map(|_| name(was.is_some())));
        let sentence = is.unwrap_or_else(|| "frames are written to disk again".into());
        found.push(of_camera(look, after, "store", (state.0, state.1, sentence)));
    }
}

/// The changes of the contracts of applications.
fn compare_contracts(before: &Look, after: &Look, found: &mut Vec<Happened>) {
    let known: BTreeMap<SubscriptionId, &AccountNow> =
        before.subscriptions.iter().map(|account| (account.id, account)).collect();
    for account in after.subscriptions.iter().filter(|account| !account.asked.looks_on) {
        for (camera, given) in &account.cameras {
            let state = |given: &GivenNow| given.state.as_ref().map(|(state, ..)| *state);
            // Accounts are newer than cameras. A contract on a camera that was not in the earlier look was not reported before.
            let told = before.camera(camera).and_then(|_| known.get(&account.id));
            let was = told.and_then(|before| before.cameras.get(camera)).and_then(state);
            let (Some((is, reason, _)), Some(looked)) = (&given.state, after.camera(camera)) else {
                continue;
            };
            if was == Some(*is) || (was.is_none() && *is == ContractState::Unverified) {
                continue;
            }
            let event = of_camera(
                after,
                looked,
                "contract",
                (is.name(), was.map(ContractState::name), reason.clone()),
            );
            let severity = match is {
                ContractState::Ok => "info",
                ContractState::Unverified | ContractState::Drifted => "warning",
                _ => "error",
            };
            let of = Some((account.id, account.asked.application.clone()));
            found.push(Happened { severity, of, ..event });
        }
    }
}

/// Certificates at a time.
type Certificates<'a> = (&'a [Ending], Timestamp);

fn certificates(look: &Look) -> Certificates<'_> {
    (&look.certificates, look.at_utc)
}

/// The changes of certificates. A certificate that was not in the earlier look counts as previously `Ok`.
fn compare_certificates(
    before: Option<Certificates<'_>>,
    (after, now): Certificates<'_>,
    soon: Duration,
    found: &mut Vec<Happened>,
) {
    let mut stood: HashMap<&str, Standing> = HashMap::new();
    if let Some((before, then)) = before {
        stood.extend(before.iter().map(|ending| (ending.of.as_str(), ending.standing(then, soon))));
    }
    for ending in after {
        let was = stood.get(ending.of.as_str()).copied().unwrap_or(Standing::Ok);
        let is = ending.standing(now, soon);
        if was == is {
            continue;
        }
        let about = ending.cameras.clone().map_or(About::Edge, About::Host);
        let state = (is.name(), Some(was.name()), certificate_in_words(ending, is, now));
        found.push(Happened::of(now, about, "certificate", state));
    }
}

fn certificate_in_words(ending: &Ending, standing: Standing, now: Timestamp) -> String {
    let (of, days) = (&ending.of, ending.left(now).as_secs_f64() / 86_400.0);
    match standing {
        Standing::Ok => format!("the certificate of {of} is valid for {days:.0} days"),
        Standing::EndsSoon => format!("the certificate of {of} expires in {days:.1} days"),
        Standing::Ended => format!("the certificate of {of} has expired"),
    }
}

/// The groups that have fallen behind or caught up.
fn compare_groups(before: Option<&Look>, after: &Look, found: &mut Vec<Happened>) {
    for report in &after.groups {
        let key = &report.key;
        let (was, is) = (before.and_then(|before| before.behind.get(key)), after.behind.get(key));
        let (state, usual, what) = match (was, is) {
            (None, Some((camera, records))) => {
                ("behind", "ok", format!("is {records} records behind on {camera}"))
            }
            (Some(_), None) => ("ok", "behind", "has caught up".to_owned()),
            _ => continue,
        };
        let sentence = format!("the group {} of {} {what}", key.name, key.owner);
        let about = About::Group(key.owner.clone());
        found.push(Happened::of(after.at_utc, about, "group", (state, Some(usual), sentence)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn day(day: u32) -> Timestamp {
        Timestamp::from_nanos(u64::try_from((DAY * day).as_nanos()).unwrap())
    }

    fn ending(of: &str, ends: u32, cameras: &[&str]) -> Ending {
        let cameras: Vec<_> = cameras.iter().map(|camera| camera.parse().unwrap()).collect();
        Ending { of: of.into(), ends: day(ends), cameras: (!cameras.is_empty()).then_some(cameras) }
    }

    /// The sentences of the events between two moments.
    fn told(before: Option<Certificates<'_>>, after: Certificates<'_>) -> Vec<String> {
        let mut found = Vec::new();
        compare_certificates(before, after, DAY * 7, &mut found);
        found.into_iter().map(|happened| format!("{}: {}", happened.state, happened.sentence)).collect()
    }

    #[test]
    fn a_certificate_is_told_once_when_it_ends_soon_has_ended_and_is_renewed() {
        let (old, new) = ([ending("edge/main", 30, &[])], [ending("edge/main", 120, &[])]);
        assert!(told(None, (&old, day(20))).is_empty(), "as usual");
        assert!(told(Some((&old, day(20))), (&old, day(22))).is_empty());
        assert_eq!(
            told(Some((&old, day(22))), (&old, day(23))),
            ["ends_soon: the certificate of edge/main expires in 7.0 days"]
        );
        assert!(told(Some((&old, day(23))), (&old, day(24))).is_empty(), "once");
        assert_eq!(
            told(Some((&old, day(24))), (&old, day(30))),
            ["ended: the certificate of edge/main has expired"]
        );
        assert_eq!(
            told(Some((&old, day(30))), (&new, day(31))),
            ["ok: the certificate of edge/main is valid for 89 days"]
        );
        assert_eq!(told(None, (&old, day(24))).len(), 1, "an edge that is started tells it again");
    }

    #[test]
    fn a_host_of_several_cameras_has_one_event_about_all_of_them() {
        let hosts = [ending("camera/dock", 5, &["dock/a", "dock/b"]), ending("camera/yard", 90, &["yard/a"])];
        let mut found = Vec::new();
        compare_certificates(None, (&hosts, day(1)), DAY * 7, &mut found);
        let [happened] = &found[..] else { panic!("{} events", found.len()) };
        let About::Host(cameras) = &happened.about else { panic!("{:?}", happened.about) };
        assert_eq!(cameras.len(), 2);
        assert_eq!((happened.kind, happened.severity), ("certificate", "warning"));
    }
}
