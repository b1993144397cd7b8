//! Passes on the site's deny list: edges to cameras, and cameras to the next edge that they connect to.
//!
//! Each side of a connection tells the version that it holds. A side that hears of a newer version
//! repeats its own, and the other side then sends its list. The content and the signature of a list are
//! not known here: the driver checks each list that arrives, and tells which one is held from then on.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::LinkId;
use crate::wire::Message;

/// The exchange of lists on one connection.
#[derive(Debug, Default)]
struct Exchange {
    /// The newest version that the other side is known to hold.
    theirs: u64,
    /// The newest version that the other side was asked for.
    asked: u64,
    /// The newest version that the other side was sent.
    sent: u64,
}

/// The list that is held, and what is known of the other sides.
#[derive(Debug, Default)]
pub(super) struct Courier {
    /// The version of the held list. 0: none is held.
    version: u64,
    signed: Bytes,
    links: BTreeMap<LinkId, Exchange>,
}

impl Courier {
    /// A camera was accepted on a connection. Both sides call this. Returns the message that tells the held version.
    pub(super) fn handle_taken_in(&mut self, link: LinkId) -> Option<Message> {
        self.links.insert(link, Exchange::default());
        (self.version > 0).then_some(Message::RevocationVersion { version: self.version })
    }

    /// A connection is gone.
    pub(super) fn handle_closed(&mut self, link: LinkId) {
        self.links.remove(&link);
    }

    /// The other side tells the version that it holds. Returns the answer: a request for the newer list, or the held list if it is newer.
    pub(super) fn handle_version(&mut self, link: LinkId, theirs: u64) -> Option<Message> {
        let exchange = self.links.get_mut(&link)?;
        exchange.theirs = theirs;
        if theirs > self.version && theirs > exchange.asked {
            exchange.asked = theirs;
            return Some(Message::RevocationVersion { version: self.version });
        }
        if theirs < self.version && exchange.sent < self.version {
            (exchange.sent, exchange.theirs) = (self.version, self.version);
            return Some(Message::RevocationList { signed: self.signed.clone() });
        }
        None
    }

    /// A list has arrived. Returns whether the driver should check it: only if it was asked for.
    pub(super) fn handle_list(&self, link: LinkId) -> bool {
        self.links.get(&link).is_some_and(|exchange| exchange.asked > self.version)
    }

    /// Another list is held from now on. Returns the messages for connections whose other side has an older version.
    pub(super) fn handle_held(&mut self, version: u64, signed: Bytes) -> Vec<(LinkId, Message)> {
        debug_assert!(version >= self.version, "version {version} after {}", self.version);
        (self.version, self.signed) = (version, signed);
        let lacks = self.links.iter().filter(|(_, exchange)| exchange.theirs < version);
        lacks.map(|(link, _)| (*link, Message::RevocationVersion { version })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkId = LinkId(7);

    fn holding(version: u64) -> Courier {
        let mut courier = Courier::default();
        if version > 0 {
            courier.handle_held(version, vec![version as u8; 9].into());
        }
        courier
    }

    /// Exchanges messages between two sides until neither has one left. Returns how many lists were sent.
    fn talk(sides: &mut [Courier; 2], mut said: Vec<(usize, Message)>) -> usize {
        let mut lists = 0;
        while !said.is_empty() {
            let (from, message) = said.remove(0);
            let to = 1 - from;
            match message {
                Message::RevocationVersion { version } => {
                    said.extend(sides[to].handle_version(LINK, version).map(|answer| (to, answer)));
                }
                Message::RevocationList { signed } => {
                    lists += 1;
                    assert!(sides[to].handle_list(LINK), "it was asked for");
                    let told = sides[to].handle_held(signed[0].into(), signed);
                    said.extend(told.into_iter().map(|(_, message)| (to, message)));
                }
                other => panic!("{other:?}"),
            }
        }
        lists
    }

    fn meet(sides: &mut [Courier; 2]) -> usize {
        let greetings = [0, 1].map(|side| (side, sides[side].handle_taken_in(LINK)));
        talk(sides, greetings.into_iter().filter_map(|(side, said)| Some((side, said?))).collect())
    }

    #[test]
    fn after_a_meeting_both_hold_the_newer_list_and_it_was_sent_once() {
        for (one, other) in [(0, 0), (0, 3), (3, 0), (2, 3), (3, 2), (3, 3)] {
            let mut sides = [holding(one), holding(other)];
            assert_eq!(meet(&mut sides), usize::from(one != other), "{one} and {other}");
            assert!(sides.iter().all(|side| side.version == one.max(other)), "{one} and {other}");
        }
    }

    #[test]
    fn a_new_list_reaches_whoever_is_connected() {
        let mut sides = [holding(0), holding(0)];
        meet(&mut sides);
        for version in [1, 5] {
            let told = sides[0].handle_held(version, vec![version as u8].into());
            let said = told.into_iter().map(|(_, message)| (0, message)).collect();
            assert_eq!(talk(&mut sides, said), 1);
            assert_eq!(sides[1].version, version);
        }
    }

    /// A list with a bad signature changes nothing, and is not asked for again.
    #[test]
    fn what_nobody_asked_for_is_not_looked_at() {
        let mut courier = holding(2);
        courier.handle_taken_in(LINK);
        assert!(!courier.handle_list(LINK));
        assert!(courier.handle_version(LINK, 9).is_some());
        assert!(courier.handle_list(LINK));
        assert_eq!(courier.handle_version(LINK, 9), None, "it was asked for once");
        assert_eq!(
            courier.handle_version(LINK, 1),
            Some(Message::RevocationList { signed: vec![2; 9].into() })
        );
        assert_eq!(courier.handle_version(LINK, 1), None, "it was sent once");
        courier.handle_closed(LINK);
        assert!(!courier.handle_list(LINK) && courier.handle_version(LINK, 12).is_none());
    }
}
