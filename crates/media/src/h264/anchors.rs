//! Says when a picture is predicted from an older one than the one before it, so that a chain can be looked into quickly.
//!
//! A viewer who wants one picture of a chain decodes what that picture needs. If each picture is predicted from the one before, that is the
//! whole chain up to it. An **anchor** is predicted from the anchor before it, over all pictures in between. Then a picture needs the
//! anchors before it, and the pictures since the last one: of a chain of n pictures with an anchor every k, at most n / k + k.
//!
//! An anchor takes more bytes than its neighbours, because more has changed since (measured: 3 to 4 times as many after 24 pictures,
//! 8 to 12 % of the chain). It is made only where that many are at hand. And while pictures are being lost or are too large for their
//! budget, there are none: the picture that a second attempt is predicted from must then be as new as possible.

/// The fewest pictures between two anchors.
const DISTANCE: u32 = 24;
/// An anchor is made if its budget is this many times the bytes that a picture would take otherwise.
pub(super) const ROOM_MIN: usize = 8;
/// After this many pictures without a second attempt or a loss, the next second attempt is expected to be far away.
const CALM_MIN: u32 = 8;

/// Where the encoder is between two anchors.
#[derive(Debug)]
pub(super) struct Anchors {
    distance: u32,
    calm_min: u32,
    /// Pictures since the last one that was predicted from an older one than the one before.
    since: u32,
    /// Pictures since the last second attempt or loss.
    calm: u32,
}

impl Default for Anchors {
    fn default() -> Self {
        Self::with(DISTANCE, CALM_MIN)
    }
}

impl Anchors {
    /// Anchors with so many pictures between two, at least, after so many pictures without a second attempt or a loss.
    pub(super) fn with(distance: u32, calm_min: u32) -> Self {
        Self { distance, calm_min, since: 0, calm: 0 }
    }

    /// Whether the encoder keeps the picture that the next anchor is predicted from, and no newer one.
    pub(super) fn are_kept(&self) -> bool {
        self.calm >= self.calm_min
    }

    /// Whether the next picture is to be one.
    pub(super) fn are_due(&self) -> bool {
        self.are_kept() && self.since >= self.distance
    }

    /// A picture was sent. `leaps`: it is not predicted from the picture before.
    pub(super) fn sent(&mut self, leaps: bool, attempts: u32) {
        self.since = if leaps { 0 } else { self.since.saturating_add(1) };
        self.calm = if attempts > 1 { 0 } else { self.calm.saturating_add(1) };
    }

    /// A picture got lost.
    pub(super) fn lost(&mut self) {
        self.calm = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pictures, each with its attempts, and says which were anchors.
    fn anchors(attempts: impl Fn(u32) -> u32) -> Vec<u32> {
        let mut anchors = Anchors::default();
        (0..100)
            .filter(|at| {
                let due = anchors.are_due();
                anchors.sent(*at == 0 || due, attempts(*at));
                due
            })
            .collect()
    }

    #[test]
    fn anchors_are_so_far_apart() {
        assert_eq!(anchors(|_| 1), [25, 50, 75]);
        assert_eq!(DISTANCE, 24, "so many pictures between two");
    }

    #[test]
    fn while_budgets_are_missed_there_are_none() {
        assert_eq!(anchors(|at| 1 + u32::from(at % 8 == 7)), []);
        assert_eq!(anchors(|at| if at < 60 { 2 } else { 1 }), [68, 93]);
    }
}
