//! Decides when a picture is predicted from an older one than the previous, so that single pictures of a chain can be decoded quickly.
//!
//! To show one picture of a chain, a decoder must decode all pictures that it needs. If each picture is predicted from the one before, this
//! is the whole chain up to it. An **anchor** is predicted from the anchor before it, over all pictures in between. Then a picture needs
//! the anchors before it, and the pictures since the last anchor: in a chain of n pictures with an anchor every k, at most n / k + k.
//!
//! An anchor has more bytes than its neighbours, because more has changed since its reference (measured: 3 to 4 times as many after 24 pictures, 8
//! to 13 % of the chain). It is made only if the caller says that the link can carry it. The encoder keeps **one** picture to predict from, besides
//! the last: for anchors, for second attempts at a picture that is too large, and after losses. For the last two it should be as new as possible. So
//! while there is no room for anchors, or pictures are lost or too large, the kept picture is the newest acknowledged one, and no anchor is made.

/// Minimum number of pictures between two anchors.
const DISTANCE: u32 = 24;
/// Expected bytes of an anchor, relative to a usual picture.
const TIMES_USUAL: usize = 4;
/// After this many pictures with room for an anchor, and without a second attempt or a loss, the next such disturbance is expected to be far away.
const CALM_MIN: u32 = 8;

/// State between two anchors.
#[derive(Debug)]
pub(super) struct Anchors {
    distance: u32,
    calm_min: u32,
    /// Maximum bytes of an anchor. 0: no anchors.
    bytes_max: usize,
    /// Pictures since the last one that was not predicted from the picture before.
    since: u32,
    /// Pictures since the last second attempt, loss, or lack of room for an anchor.
    calm: u32,
    /// Consecutive pictures, including the next, without room for an anchor.
    cramped: u32,
}

impl Default for Anchors {
    fn default() -> Self {
        Self::with(DISTANCE, CALM_MIN)
    }
}

impl Anchors {
    /// Anchors with at least `distance` pictures between two, after at least `calm_min` calm pictures.
    pub(super) fn with(distance: u32, calm_min: u32) -> Self {
        Self { distance, calm_min, bytes_max: 0, since: 0, calm: 0, cramped: 0 }
    }

    /// Sets the maximum bytes of an anchor.
    pub(super) fn set_bytes_max(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
    }

    /// Sets the expected bytes of the next picture if it is not an anchor. `None`: unknown.
    pub(super) fn expect(&mut self, bytes: Option<usize>) {
        let needs = bytes.map_or(1, |bytes| bytes.saturating_mul(TIMES_USUAL));
        self.cramped = if needs <= self.bytes_max { 0 } else { self.cramped.saturating_add(1) };
        // A single picture without room is ignored: it may only serve to measure the link.
        if self.cramped > 1 {
            self.calm = 0;
        }
    }

    /// Whether the reference of the next anchor is kept, instead of the newest acknowledged picture.
    pub(super) fn keep_reference(&self) -> bool {
        self.calm >= self.calm_min
    }

    /// Whether the next picture should be an anchor.
    pub(super) fn is_due(&self) -> bool {
        self.keep_reference() && self.since >= self.distance && self.cramped == 0
    }

    /// Reports a sent picture. `leaps`: it is not predicted from the picture before. `attempts`: how often it was coded.
    pub(super) fn sent(&mut self, leaps: bool, attempts: u32) {
        self.since = if leaps { 0 } else { self.since.saturating_add(1) };
        self.calm = if attempts > 1 { 0 } else { self.calm.saturating_add(1) };
    }

    /// Reports a lost picture.
    pub(super) fn lost(&mut self) {
        self.calm = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pictures of 1000 bytes. `of` returns each picture's attempts and room for an anchor. Returns the numbers of the anchors.
    fn anchors(of: impl Fn(u32) -> (u32, usize)) -> Vec<u32> {
        let mut anchors = Anchors::default();
        let sent = (0..100).filter(|at| {
            let (attempts, bytes_max) = of(*at);
            anchors.set_bytes_max(bytes_max);
            anchors.expect((*at > 0).then_some(1000));
            let due = anchors.is_due();
            anchors.sent(*at == 0 || due, attempts);
            due
        });
        sent.collect()
    }

    #[test]
    fn anchors_are_so_far_apart() {
        assert_eq!(anchors(|_| (1, 4000)), [25, 50, 75]);
        assert_eq!(DISTANCE, 24, "so many pictures between two");
    }

    #[test]
    fn under_pressure_there_are_none() {
        assert_eq!(anchors(|at| (1 + u32::from(at % 8 == 7), 4000)), []);
        assert_eq!(anchors(|at| (if at < 60 { 2 } else { 1 }, 4000)), [68, 93]);
        assert_eq!(anchors(|_| (1, 3999)), [], "the link does not carry them");
        assert_eq!(anchors(|at| (1, if at < 60 { 0 } else { 4000 })), [67, 92]);
    }

    #[test]
    fn a_picture_that_measures_the_link_only_puts_them_off() {
        let measures = |at: u32| [12, 25, 40].contains(&at);
        assert_eq!(anchors(|at| (1, if measures(at) { 0 } else { 4000 })), [26, 51, 76]);
    }
}
