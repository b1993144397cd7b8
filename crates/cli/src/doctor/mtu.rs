//! Checks the size of datagrams to an edge.

use mez_node::probe::{DatagramSizes, LinkReport};

use super::finding::{Check, Finding};
use super::network::Answers;

pub(super) fn check(answers: &Answers) -> Vec<Finding> {
    let sizes = |answer: &LinkReport| answer.quic.as_ref().ok()?.as_ref()?.datagrams;
    let look = |(place, answer): &(mez_node::ports::EdgeAddress, Result<LinkReport, _>)| {
        let Some(sizes) = answer.as_ref().ok().and_then(sizes) else {
            return Finding::skipped(
                Check::Mtu,
                format!("not checked, because {place} was not reached over QUIC"),
            );
        };
        judge(&place.to_string(), &place.host, sizes)
    };
    answers.links.iter().map(look).collect()
}

fn judge(place: &str, host: &str, sizes: DatagramSizes) -> Finding {
    let DatagramSizes { path, route } = sizes;
    if sizes.is_usual() {
        return Finding::ok(Check::Mtu, format!("datagrams of {path} bytes get through to {place}"));
    }
    Finding::warning(
        Check::Mtu,
        format!(
            "only datagrams of up to {path} bytes get through to {place}, although this host's route allows {route}: there is a tunnel on the path"
        ),
        format!(
            "frames need more packets, and large packets of other programs may be lost: find the size with `ping -M do -s {} {host}`, and \
             set it on the interface with `ip link set DEVICE mtu SIZE`",
            path.saturating_sub(8)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_path_that_takes_less_than_the_route_is_a_warning() {
        let level = |path, route| judge("edge:7650", "edge", DatagramSizes { path, route }).level;
        assert_eq!(level(1452, 1452), Level::Ok);
        assert_eq!(level(65_000, 65_000), Level::Ok);
        assert_eq!(level(1252, 1452), Level::Warning);
    }
}
