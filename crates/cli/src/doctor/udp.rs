//! Checks whether QUIC works where TCP does.

use mez_node::probe::LinkReport;

use super::finding::{Check, Finding};
use super::network::Answers;

pub(super) fn check(answers: &Answers) -> Vec<Finding> {
    let look = |(place, answer): &(_, _)| match answer {
        Ok(LinkReport { quic: Ok(Some(answer)), .. }) => {
            let took: &mez_node::probe::LinkAnswer = answer;
            Finding::ok(
                Check::Udp,
                format!("QUIC gets through to {place} within {} ms", took.took.as_millis()),
            )
        }
        Ok(LinkReport { tcp: Ok(Some(_)), quic: Err(failure), .. }) => Finding::fault(
            Check::Udp,
            format!("UDP does not get through to {place}, but TCP does: {}", failure.text),
            format!(
                "open UDP port {} in the firewall of the edge host; until then the link uses TCP, and frames are later on a bad network",
                port(place)
            ),
        ),
        _ => Finding::skipped(
            Check::Udp,
            format!("not checked over QUIC, because {place} was not reached: see the faults above"),
        ),
    };
    answers.links.iter().map(look).collect()
}

fn port(place: &mez_node::ports::EdgeAddress) -> u16 {
    place.port
}
