//! Checks this host's clock against its site and its edges.

use std::time::Duration;

use mez_node::client::WallDifference;
use mez_node::identity::Moment;
use mez_node::probe::LinkReport;

use super::finding::{Check, Finding};
use super::network::{Answers, AppAnswer, blamed_on};
use super::subject::Subject;
use crate::text::for_people;

/// A larger difference misleads people who compare times of frames.
const NOTICED: Duration = Duration::from_secs(2);
/// With a larger difference, the past is read at the wrong time, and certificates may be invalid.
const WRONG: Duration = Duration::from_secs(60);
const SET: &str = "set the clock of the host whose time is wrong: `timedatectl set-ntp true`, or `date -s @SECONDS`; a Raspberry Pi without a network starts with a time in the past";

pub(super) fn check(subject: &Subject, answers: &Answers) -> Vec<Finding> {
    if let Ok(keys) = &subject.keys
        && subject.now < keys.validity().not_before
    {
        let (says, made) = (Moment(subject.now), Moment(keys.validity().not_before));
        let found =
            format!("this host's clock says {says}, but site {} was made later, after {made}", keys.site());
        return vec![Finding::fault(Check::Clock, found, SET)];
    }
    let blamed = answers.failures().filter(|(_, failure)| blamed_on(failure) == Check::Clock);
    let mut findings: Vec<Finding> = blamed
        .map(|(place, failure)| Finding::fault(Check::Clock, format!("{place}: {}", failure.text), SET))
        .collect();
    findings.extend(differences(answers).into_iter().map(|(place, clock)| judge(&place, clock)));
    if findings.is_empty() {
        findings.push(Finding::skipped(
            Check::Clock,
            "no edge on another host answered, so there is no clock to compare with",
        ));
    }
    findings
}

/// The clock differences of other hosts, by edge.
fn differences(answers: &Answers) -> Vec<(String, WallDifference)> {
    let links = answers.links.iter().filter_map(|(place, answer)| {
        let LinkReport { tcp, quic, .. } = answer.as_ref().ok()?;
        let of = |answer: &Result<Option<mez_node::probe::LinkAnswer>, _>| {
            Some(answer.as_ref().ok()?.as_ref()?.clock)
        };
        let least = [of(quic), of(tcp)].into_iter().flatten().min_by_key(|clock| clock.error)?;
        Some((place.to_string(), least))
    });
    let edges = answers.edges.iter().filter_map(|(address, answer)| match answer {
        AppAnswer::Asked(Ok(checkup)) if address.as_unix().is_none() => {
            Some((address.to_string(), checkup.clock))
        }
        _ => None,
    });
    links.chain(edges).collect()
}

fn judge(place: &str, clock: WallDifference) -> Finding {
    let side = if clock.is_ahead { "ahead of" } else { "behind" };
    let found = format!("the clock of {place} is {} {side} this host's", for_people(clock.by));
    match clock.at_least() {
        far if far >= WRONG => Finding::fault(Check::Clock, found, SET),
        some if some >= NOTICED => Finding::warning(Check::Clock, found, SET),
        _ => Finding::ok(
            Check::Clock,
            format!(
                "the clock of {place} differs by less than {} ms",
                (clock.by + clock.error).as_millis() + 1
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn what_the_way_explains_is_no_difference() {
        let clock = |by, error| WallDifference {
            by: Duration::from_secs(by),
            is_ahead: true,
            error: Duration::from_secs(error),
        };
        assert_eq!(judge("edge", clock(1, 0)).level, Level::Ok);
        assert_eq!(judge("edge", clock(3, 2)).level, Level::Ok);
        assert_eq!(judge("edge", clock(3, 0)).level, Level::Warning);
        let wrong = judge("edge", clock(7_200, 0));
        assert!(wrong.level == Level::Fault && wrong.found.contains("2 h ahead"), "{wrong:?}");
    }
}
