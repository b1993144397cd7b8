//! Decides when a member of the site asks for its next certificate.
//!
//! A certificate is renewed at about two thirds of its life ([`DUE_SHARE`]). The last third is a
//! reserve: after a failure, the member asks again, with growing pauses, until an edge answers.
//!
//! Two clocks decide. The wall clock tells how old a certificate is when it is loaded, and counts while the host sleeps.
//! The monotonic clock tells how long the certificate has been held since, and nobody sets it. A request is due as soon
//! as one of the clocks says so: a renewal too early costs one signature, one too late costs the camera. If the wall
//! clock lies outside of a certificate's life, it does not tell how much of the life is left. The member then asks at
//! once if the certificate was loaded from a file, and uses the monotonic clock alone if the certificate was just issued.
//!
//! A site may replace its authority, with a time in which the old and the new one are both trusted. This time may be shorter than the rest of
//! a certificate's life. So the member regularly asks whether there is a new authority ([`Step::Listen`]), and renews at once if there is one.
//!
//! Drive it like a broker: [`Renewal::poll`] returns the next step, and `handle_*` report what happened.

use std::time::Duration;

use crate::units::{Instant, Timestamp};

/// The share of a certificate's life after which it is renewed, at the latest: two thirds.
pub const DUE_SHARE: f64 = 2.0 / 3.0;
/// The share of a life over which the renewals of many members are spread, before [`DUE_SHARE`]. A hundred
/// cameras that were enrolled on one morning do not all ask in one minute.
pub const SPREAD_SHARE: f64 = 1.0 / 20.0;
/// The longest pause between two checks of the clocks, because the wall clock may be set meanwhile.
pub const LOOK_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The longest pause between two queries for a new authority.
pub const LISTEN_INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// The pause between two queries for a new authority, as a share of a life, if it is below [`LISTEN_INTERVAL_MAX`].
const LISTEN_SHARE: f64 = 1.0 / 30.0;
/// The pause after a first failure: this share of a life, within [`FIRST_PAUSE_MIN`] and [`FIRST_PAUSE_MAX`].
const FIRST_PAUSE_SHARE: f64 = 1.0 / 500.0;
/// The shortest first pause.
const FIRST_PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest first pause.
const FIRST_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The longest pause after many failures, as a share of a life: ten attempts fit into the last third.
const LAST_PAUSE_SHARE: f64 = 1.0 / 30.0;
/// The longest pause of all after many failures.
const LAST_PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The period in which a certificate is valid, by the clock of the authority that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// When the certificate was issued. Certificates are dated back so that slow clocks accept them; the back-dating does not count here.
    pub begins: Timestamp,
    /// When the certificate expires.
    pub ends: Timestamp,
}

impl Life {
    /// How long the certificate is valid.
    pub const fn lasts(&self) -> Duration {
        self.ends.saturating_since(self.begins)
    }

    /// Whether `now` lies within the life. A clock that is behind by up to `tolerance` still counts as within.
    pub fn holds_at(&self, now: Timestamp, tolerance: Duration) -> bool {
        now + tolerance >= self.begins && now <= self.ends
    }

    /// When two thirds of the life are over.
    pub fn due(&self) -> Timestamp {
        self.begins + self.lasts().mul_f64(DUE_SHARE)
    }
}

/// The readings of both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The monotonic clock.
    pub monotonic: Instant,
    /// The wall clock.
    pub wall: Timestamp,
}

/// The next step of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask an edge for a new certificate, then report the outcome.
    Ask,
    /// Ask an edge which authorities the site trusts now, then report the answer.
    Listen,
    /// Do nothing for this long; then call [`Renewal::poll`] again.
    Wait(Duration),
}

/// The state of the renewals of one identity. See the [module](self).
#[derive(Clone, Debug)]
pub struct Renewal {
    life: Life,
    /// A certificate that begins up to this long after the wall clock's time still counts as valid.
    tolerance: Duration,
    /// When renewal is due by the wall clock. `None` if this clock was wrong when the certificate was issued.
    due_wall: Option<Timestamp>,
    /// When renewal is due by the monotonic clock.
    due: Instant,
    /// When the certificate expires by the monotonic clock.
    ends: Instant,
    /// The end of the pause after a failure.
    paused_until: Instant,
    failures: u32,
    /// When to listen next.
    listen: Instant,
    /// Whether an answer is outstanding.
    asking: bool,
}

impl Renewal {
    /// For a certificate that was loaded from a file and may have any age. `tolerance`: how far certificates are
    /// dated back. `chance`, from 0 to 1, is drawn once for each member and start, and spreads the renewals.
    pub fn of_loaded(life: Life, tolerance: Duration, now: Now, chance: f64) -> Self {
        let spread = spread(life, chance);
        let due_wall = before(life.due(), spread);
        let (due, ends) = if life.holds_at(now.wall, tolerance) {
            let left = |until: Timestamp| now.monotonic + until.saturating_since(now.wall);
            (left(due_wall), left(life.ends))
        } else {
            // The age of the certificate is unknown.
            (now.monotonic, now.monotonic)
        };
        Self::new(life, tolerance, Some(due_wall), (due, ends, listens(life, now, chance)))
    }

    /// For a certificate that an edge has just issued.
    pub fn of_issued(life: Life, tolerance: Duration, now: Now, chance: f64) -> Self {
        let spread = spread(life, chance);
        let trusted = life.holds_at(now.wall, tolerance);
        let due_wall = trusted.then(|| before(life.due(), spread));
        let due = now.monotonic + life.lasts().mul_f64(DUE_SHARE).saturating_sub(spread);
        Self::new(life, tolerance, due_wall, (due, now.monotonic + life.lasts(), listens(life, now, chance)))
    }

    fn new(
        life: Life,
        tolerance: Duration,
        due_wall: Option<Timestamp>,
        (due, ends, listen): (Instant, Instant, Instant),
    ) -> Self {
        let paused_until = Instant::ZERO;
        Self { life, tolerance, due_wall, due, ends, paused_until, failures: 0, listen, asking: false }
    }

    /// The life of the certificate in use.
    pub const fn life(&self) -> Life {
        self.life
    }

    /// The next step. Call again when the time of [`Step::Wait`] is over, or after an event.
    pub fn poll(&mut self, now: Now) -> Step {
        if self.asking {
            return Step::Wait(LOOK_INTERVAL_MAX);
        }
        let wait = self.time_to_due(now).max(self.paused_until.saturating_since(now.monotonic));
        if wait.is_zero() {
            self.asking = true;
            return Step::Ask;
        }
        // A renewal also brings the current authorities.
        if self.is_due(now) {
            return Step::Wait(wait.min(LOOK_INTERVAL_MAX));
        }
        let silence = self.listen.saturating_since(now.monotonic);
        if silence.is_zero() {
            self.asking = true;
            return Step::Listen;
        }
        Step::Wait(wait.min(silence).min(LOOK_INTERVAL_MAX))
    }

    /// Whether a new certificate is wanted, perhaps after a pause.
    pub fn is_due(&self, now: Now) -> bool {
        self.time_to_due(now).is_zero()
    }

    /// Whether the certificate in use has expired, as far as both clocks can tell.
    pub fn has_ended(&self, now: Now) -> bool {
        match self.due_wall {
            Some(_) => now.wall > self.life.ends,
            None => now.monotonic > self.ends,
        }
    }

    /// No edge could be asked, or none gave a certificate. The pause doubles with
    /// each failure. `chance`, from 0 to 1, spreads members that failed together.
    pub fn handle_failed(&mut self, now: Now, chance: f64) {
        self.asking = false;
        let (first, last) = self.pauses();
        // Beyond this the longest pause is reached anyway.
        let pause = first.saturating_mul(1 << self.failures.min(20)).min(last);
        self.failures = self.failures.saturating_add(1);
        self.paused_until = now.monotonic + pause.mul_f64(0.75 + 0.5 * chance.clamp(0.0, 1.0));
    }

    /// The answer to [`Step::Listen`]. `is_new`: the site has an authority that this member does not follow yet
    /// and can follow; the member then renews at once. `chance`, from 0 to 1, spreads the queries of many members.
    pub fn handle_heard(&mut self, is_new: bool, now: Now, chance: f64) {
        self.asking = false;
        self.listen = listens(self.life, now, chance);
        if is_new {
            self.due = self.due.min(now.monotonic);
        }
    }

    /// An edge can be reached again. A member that waits for an edge asks soon; `chance`, from 0 to 1, spreads these members.
    pub fn handle_connected(&mut self, now: Now, chance: f64) {
        let soon = now.monotonic + self.pauses().0.mul_f64(chance.clamp(0.0, 1.0));
        self.listen = self.listen.min(soon);
        if self.failures > 0 {
            self.failures = 0;
            self.paused_until = self.paused_until.min(soon);
        }
    }

    /// Whether to use a certificate that an edge has issued, instead of the one in use.
    ///
    /// A certificate that is not valid by the wall clock is refused: the authority's clock may be wrong,
    /// and the old certificate is still valid. If the old one is not valid by the wall clock either, the
    /// clock of this host is wrong. The new one is then accepted, because edges verify by their own clocks.
    pub fn accepts(&self, issued: Life, now: Now) -> bool {
        issued.holds_at(now.wall, self.tolerance) || !self.life.holds_at(now.wall, self.tolerance)
    }

    /// The pauses after the first failure and after many.
    fn pauses(&self) -> (Duration, Duration) {
        let life = self.life.lasts();
        let first = life.mul_f64(FIRST_PAUSE_SHARE).clamp(FIRST_PAUSE_MIN, FIRST_PAUSE_MAX);
        (first, life.mul_f64(LAST_PAUSE_SHARE).clamp(first, LAST_PAUSE_MAX))
    }

    fn time_to_due(&self, now: Now) -> Duration {
        let by_monotonic = self.due.saturating_since(now.monotonic);
        match self.due_wall {
            Some(due) => by_monotonic.min(due.saturating_since(now.wall)),
            None => by_monotonic,
        }
    }
}

/// How much earlier than at two thirds of its life a member renews.
fn spread(life: Life, chance: f64) -> Duration {
    life.lasts().mul_f64(SPREAD_SHARE * chance.clamp(0.0, 1.0))
}

/// When to listen next: after half an interval to a full one.
fn listens(life: Life, now: Now, chance: f64) -> Instant {
    let interval = life.lasts().mul_f64(LISTEN_SHARE).clamp(FIRST_PAUSE_MIN, LISTEN_INTERVAL_MAX);
    now.monotonic + interval.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

fn before(due: Timestamp, spread: Duration) -> Timestamp {
    due - spread
}

#[cfg(test)]
mod tests;
