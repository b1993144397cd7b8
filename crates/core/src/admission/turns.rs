//! Limits how much expensive work, such as the signatures of handshakes, unauthenticated peers can cause at
//! once.

use std::collections::{BTreeMap, VecDeque};

use super::Address;

/// Gives out at most a fixed number of turns at once. Addresses alternate; within one address, first come is
/// first served. So a thousand handshakes from one address delay another address by only one of them.
///
/// The caller identifies each asker by a number. There are as many entries as connections that ask, and their
/// rooms bound those.
#[derive(Debug)]
pub struct Turns {
    at_once_max: usize,
    given: usize,
    /// The askers that wait, by address.
    waiting: BTreeMap<Address, VecDeque<u64>>,
    /// Addresses with a waiting asker; the first gets the next turn.
    order: VecDeque<Address>,
}

impl Turns {
    /// No asker waits yet. At most `at_once_max` have a turn at the same time.
    pub const fn new(at_once_max: usize) -> Self {
        Self { at_once_max, given: 0, waiting: BTreeMap::new(), order: VecDeque::new() }
    }

    /// An asker asks for a turn; [`Turns::poll_turn`] gives it.
    pub fn ask(&mut self, address: Address, asker: u64) {
        let queue = self.waiting.entry(address).or_default();
        if queue.is_empty() {
            self.order.push_back(address);
        }
        queue.push_back(asker);
    }

    /// A waiting asker no longer wants its turn. Returns false if it did not wait.
    pub fn withdraw(&mut self, address: Address, asker: u64) -> bool {
        let Some(queue) = self.waiting.get_mut(&address) else { return false };
        let Some(place) = queue.iter().position(|waiting| *waiting == asker) else { return false };
        queue.remove(place);
        if queue.is_empty() {
            self.waiting.remove(&address);
            self.order.retain(|other| *other != address);
        }
        true
    }

    /// A turn is over.
    pub fn end(&mut self) {
        debug_assert!(self.given > 0, "a turn ends that nobody had");
        self.given = self.given.saturating_sub(1);
    }

    /// The asker that gets a turn now, if a turn is free and an asker waits.
    pub fn poll_turn(&mut self) -> Option<u64> {
        if self.given >= self.at_once_max {
            return None;
        }
        let address = self.order.pop_front()?;
        let queue = self.waiting.get_mut(&address)?;
        let asker = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&address);
        } else {
            self.order.push_back(address);
        }
        self.given += 1;
        Some(asker)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn address(last: u8) -> Address {
        IpAddr::from([10, 0, 0, last]).into()
    }

    #[test]
    fn addresses_take_turns_whatever_one_of_them_asks() {
        let mut turns = Turns::new(1);
        for asker in 0..1000 {
            turns.ask(address(1), asker);
        }
        assert_eq!(turns.poll_turn(), Some(0));
        turns.ask(address(2), 5000);
        assert_eq!(turns.poll_turn(), None, "one at once");
        turns.end();
        // The address with a thousand askers gets at most one more turn before the other address.
        assert_eq!(turns.poll_turn(), Some(1));
        turns.end();
        assert_eq!(turns.poll_turn(), Some(5000));
        turns.end();
        assert_eq!(turns.poll_turn(), Some(2));
    }

    #[test]
    fn whoever_withdraws_is_passed_over_and_leaves_nothing_behind() {
        let mut turns = Turns::new(2);
        turns.ask(address(1), 1);
        turns.ask(address(2), 2);
        turns.ask(address(2), 3);
        assert!(turns.withdraw(address(1), 1));
        assert!(!turns.withdraw(address(1), 1));
        assert!(turns.withdraw(address(2), 2));
        assert_eq!((turns.poll_turn(), turns.poll_turn()), (Some(3), None));
        assert!(!turns.withdraw(address(2), 3), "it has its turn already");
        assert!(turns.waiting.is_empty() && turns.order.is_empty());
    }
}
