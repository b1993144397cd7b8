//! Bounds on a number of places, in total and for each holder.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A bounded number of places.
pub(super) struct Places<K> {
    max: usize,
    of_one_max: usize,
    /// The number of places of each holder. Holders without a place have no entry, so there are at most `max` entries.
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// All places are taken.
    All,
    /// This holder has as many places as one may have.
    Own,
}

/// A place. Dropping it frees it.
pub(super) struct Place<K: Hash + Eq> {
    of: K,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq + Clone> Places<K> {
    /// `max` places, of which one holder may have `of_one_max`.
    pub(super) fn new(max: usize, of_one_max: usize) -> Self {
        Self { max, of_one_max, taken: Arc::default() }
    }

    /// Takes a place, if one is free.
    pub(super) fn enter(&self, of: K) -> Result<Place<K>, Full> {
        let mut taken = lock(&self.taken);
        if taken.get(&of).is_some_and(|own| *own >= self.of_one_max) {
            return Err(Full::Own);
        }
        if taken.values().sum::<usize>() >= self.max {
            return Err(Full::All);
        }
        *taken.entry(of.clone()).or_default() += 1;
        Ok(Place { of, taken: Arc::clone(&self.taken) })
    }
}

impl<K: Hash + Eq> Drop for Place<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        match taken.get_mut(&self.of) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(taken.remove(&self.of)),
        }
    }
}

fn lock<K>(taken: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    // Each statement leaves the map consistent, so a poisoned lock is safe to use.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_the_places_of_others() {
        let places = Places::new(5, 3);
        let own: Vec<_> = (0..3).map(|_| places.enter("a").expect("there is room")).collect();
        assert_eq!(places.enter("a").err(), Some(Full::Own));
        let others = [places.enter("b"), places.enter("b")];
        assert_eq!(places.enter("b").err(), Some(Full::All));
        drop((own, others));
        assert!(places.enter("a").is_ok());
        assert!(lock(&places.taken).is_empty(), "who has none takes no room");
    }
}
