use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Some morning, far from both ends of the clock.
const START: Timestamp = Timestamp::from_nanos(1_800_000_000_000_000_000);

/// A small generator of chance (SplitMix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn time(&mut self, from: Duration, to: Duration) -> Duration {
        from + (to.saturating_sub(from)).mul_f64(self.next())
    }
}

fn life(begins: Timestamp, lasts: Duration) -> Life {
    Life { begins, ends: begins + lasts }
}

fn now(since_start: Duration) -> Now {
    Now { monotonic: Instant::ZERO + since_start, wall: START + since_start }
}

/// A host over a year: its clock, its certificate, and an edge that may be down.
struct Year {
    chance: Chance,
    /// True time since the start.
    at: Duration,
    /// How far the host's wall clock is ahead.
    ahead: Duration,
    behind: Duration,
    /// How long the host has been running. Its monotonic clock starts again with each start.
    lasts: Duration,
    renewal: Renewal,
    /// The edge is down until then.
    down_until: Duration,
    next_outage: Duration,
    /// When each certificate was issued, in true time.
    issued: Vec<Duration>,
    requests: usize,
    /// The longest time that the host had no certificate that a right clock accepts.
    without: Duration,
    /// How many authorities the site has had.
    authority: usize,
    follows: usize,
    /// When the host began to follow its current authority.
    followed: Duration,
}

impl Year {
    fn begin(seed: u64, lasts: Duration) -> Self {
        let mut chance = Chance(seed);
        let renewal = Renewal::of_issued(life(START, lasts), HOUR, now(Duration::ZERO), chance.next());
        Self {
            chance,
            at: Duration::ZERO,
            ahead: Duration::ZERO,
            behind: Duration::ZERO,
            lasts,
            renewal,
            down_until: Duration::ZERO,
            next_outage: Duration::MAX,
            issued: vec![Duration::ZERO],
            requests: 0,
            without: Duration::ZERO,
            authority: 1,
            follows: 1,
            followed: Duration::ZERO,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Instant::ZERO + self.at, wall: START + self.at + self.ahead - self.behind }
    }

    /// The program restarts with nothing but the file of the certificate.
    fn restart(&mut self) {
        let chance = self.chance.next();
        self.renewal = Renewal::of_loaded(self.renewal.life(), HOUR, self.now(), chance);
    }

    fn run(&mut self, until: Duration, mut each: impl FnMut(&mut Self)) {
        while self.at < until {
            each(self);
            match self.renewal.poll(self.now()) {
                Step::Wait(wait) => {
                    let back = self.down_until.saturating_sub(self.at);
                    let step = if back.is_zero() { wait } else { wait.min(back) };
                    self.at += step.max(Duration::from_millis(1));
                    if !back.is_zero() && self.at >= self.down_until {
                        let chance = self.chance.next();
                        self.renewal.handle_connected(self.now(), chance);
                    }
                }
                Step::Ask => self.ask(),
                Step::Listen => {
                    let is_new = self.at >= self.down_until && self.follows < self.authority;
                    let chance = self.chance.next();
                    self.renewal.handle_heard(is_new, self.now(), chance);
                }
            }
        }
    }

    fn ask(&mut self) {
        self.requests += 1;
        let chance = self.chance.next();
        let old = self.renewal.life();
        let true_wall = START + self.at;
        self.without = self.without.max(true_wall.saturating_since(old.ends));
        let issued = life(true_wall, self.lasts);
        let valid = old.holds_at(true_wall, HOUR);
        if self.at < self.down_until || !valid || !self.renewal.accepts(issued, self.now()) {
            self.renewal.handle_failed(self.now(), chance);
            self.at += Duration::from_millis(5);
            return;
        }
        if self.follows < self.authority {
            (self.follows, self.followed) = (self.authority, self.at);
        }
        self.issued.push(self.at);
        self.renewal = Renewal::of_issued(issued, HOUR, self.now(), chance);
    }
}

/// In a year, every certificate is renewed between 0.6 and two thirds of its life, with one request each.
#[test]
fn a_year_of_renewals_takes_one_request_each() {
    let daily = DAY * 3 / 2;
    for (seed, lasts, least, most) in
        [(1, 30 * DAY, 18, 20), (2, daily, 364, 395), (3, DAY, 540, 600), (4, HOUR, 13_000, 14_300)]
    {
        let mut year = Year::begin(seed, lasts);
        year.run(YEAR, |_| {});
        let renewals = year.issued.len() - 1;
        assert!((least..=most).contains(&renewals), "seed {seed}: {renewals} renewals of {lasts:?}");
        assert_eq!(year.requests, renewals, "seed {seed}");
        assert_eq!(year.without, Duration::ZERO, "seed {seed}");
        for pair in year.issued.windows(2) {
            let share = (pair[1] - pair[0]).as_secs_f64() / lasts.as_secs_f64();
            assert!((0.61..=0.67).contains(&share), "seed {seed}: renewed after {share} of its life");
        }
    }
}

/// The edge is often down, for up to a quarter of a life, and programs restart. The host always has a valid certificate, and does not flood the edge.
#[test]
fn a_year_with_outages_and_restarts_leaves_nobody_without_a_certificate() {
    for seed in 0..200 {
        for lasts in [DAY, 30 * DAY] {
            let mut year = Year::begin(seed, lasts);
            year.next_outage = year.chance.time(Duration::ZERO, lasts);
            let mut restart = year.chance.time(Duration::ZERO, lasts);
            year.run(YEAR, |year| {
                if year.at >= year.next_outage {
                    year.down_until = year.at + year.chance.time(Duration::ZERO, lasts / 4);
                    year.next_outage = year.down_until + year.chance.time(lasts / 50, 2 * lasts);
                }
                if year.at >= restart {
                    year.restart();
                    restart = year.at + year.chance.time(Duration::ZERO, lasts);
                }
            });
            assert_eq!(year.without, Duration::ZERO, "seed {seed}, {lasts:?}");
            let renewals = year.issued.len() - 1;
            // In an outage of a quarter of a life, there are some fast requests, then one per thirtieth of a life or per hour.
            let most = renewals * if lasts > DAY { 200 } else { 30 };
            assert!(year.requests <= most, "seed {seed}, {lasts:?}: {} requests", year.requests);
        }
    }
}

/// The edge is away until after the certificate expires: the host still asks, at most once an hour, and reports that its certificate has expired.
#[test]
fn an_edge_that_is_away_for_too_long_is_asked_ever_more_rarely() {
    let mut year = Year::begin(7, 30 * DAY);
    year.down_until = YEAR;
    year.run(25 * DAY, |_| {});
    assert!(year.renewal.is_due(year.now()) && !year.renewal.has_ended(year.now()));
    year.run(40 * DAY, |_| {});
    assert!(year.renewal.has_ended(year.now()));
    let before = year.requests;
    year.run(50 * DAY, |_| {});
    let asked = year.requests - before;
    assert!((190..=330).contains(&asked), "{asked} requests in ten days");
    assert_eq!(year.issued.len(), 1);
}

/// The edge returns while the host waits for its next attempt: the host asks within the first pause, not after the last one.
#[test]
fn an_edge_that_comes_back_is_asked_soon() {
    let mut year = Year::begin(8, 30 * DAY);
    year.down_until = 24 * DAY;
    year.run(24 * DAY + 2 * FIRST_PAUSE_MAX, |_| {});
    assert_eq!(year.issued.len(), 2);
    assert!(year.issued[1] - 24 * DAY <= FIRST_PAUSE_MAX, "{:?}", year.issued[1]);
}

/// The clock is set ahead by a year while the program runs, and back again: renewals come when they are due, without a flood of requests.
#[test]
fn a_clock_that_is_set_wrong_by_a_year_costs_a_renewal_and_no_certificate() {
    for seed in 0..50 {
        let mut year = Year::begin(seed, 30 * DAY);
        let wrong = year.chance.time(DAY, 100 * DAY);
        let right = wrong + year.chance.time(HOUR, 100 * DAY);
        let is_ahead = seed % 2 == 0;
        year.run(YEAR, |year| {
            let off = if (wrong..right).contains(&year.at) { YEAR } else { Duration::ZERO };
            (year.ahead, year.behind) = if is_ahead { (off, Duration::ZERO) } else { (Duration::ZERO, off) };
        });
        assert_eq!(year.without, Duration::ZERO, "seed {seed}");
        let renewals = year.issued.len() - 1;
        assert!((18..=22).contains(&renewals), "seed {seed}: {renewals} renewals");
        assert!(year.requests <= renewals + 1, "seed {seed}: {} requests", year.requests);
    }
}

/// The authority is replaced every other month, and the old one is trusted for two more days.
/// A host that is connected now and then follows in time, although certificates last longer.
#[test]
fn a_new_authority_is_followed_within_hours() {
    for seed in 0..50 {
        let mut year = Year::begin(seed, 30 * DAY);
        let mut next = year.chance.time(DAY, 60 * DAY);
        let mut replaced = Duration::ZERO;
        year.run(YEAR, |year| {
            if year.at >= next {
                assert_eq!(year.follows, year.authority, "seed {seed}: the one before was not followed");
                assert!(year.followed < replaced + 30 * HOUR, "seed {seed}: followed too late");
                (year.authority, replaced) = (year.authority + 1, year.at);
                next = year.at + year.chance.time(3 * DAY, 60 * DAY);
                // The authority is replaced while no edge can be reached.
                year.down_until = year.at + year.chance.time(Duration::ZERO, DAY);
            }
        });
        assert_eq!(year.without, Duration::ZERO, "seed {seed}");
        let renewals = year.issued.len() - 1;
        assert!(
            renewals <= 22 + year.authority,
            "seed {seed}: {renewals} renewals, {} authorities",
            year.authority
        );
    }
}

/// A program that starts with a wrong clock does not know the age of its certificate, so it asks at once.
#[test]
fn a_program_that_starts_with_a_wrong_clock_asks_at_once() {
    for (ahead, behind) in [(YEAR, Duration::ZERO), (Duration::ZERO, YEAR)] {
        let mut year = Year::begin(11, 30 * DAY);
        year.at = DAY;
        (year.ahead, year.behind) = (ahead, behind);
        year.restart();
        assert_eq!(year.renewal.poll(year.now()), Step::Ask);
        year.ask();
        assert_eq!(year.issued.len(), 2, "the edge, whose clock is right, was not followed");
        // Then the monotonic clock counts.
        year.run(YEAR, |_| {});
        assert_eq!(year.without, Duration::ZERO);
        assert!((18..=21).contains(&year.issued.len()), "{}", year.issued.len());
    }
}

/// The authority's clock is wrong by a year: its certificates are not used while the old certificate is valid.
#[test]
fn a_certificate_of_an_authority_with_a_wrong_clock_is_not_used() {
    let renewal = Renewal::of_issued(life(START, 30 * DAY), HOUR, now(Duration::ZERO), 0.5);
    let at = now(20 * DAY);
    for issued in [life(at.wall + YEAR, 30 * DAY), life(at.wall - YEAR, 30 * DAY)] {
        assert!(!renewal.accepts(issued, at), "{issued:?}");
    }
    assert!(renewal.accepts(life(at.wall + HOUR / 2, 30 * DAY), at), "a clock that is half an hour ahead");
}

/// A notebook that slept for weeks renews as soon as it wakes, although its monotonic clock stood still.
#[test]
fn a_host_that_slept_renews_when_it_wakes() {
    let mut renewal = Renewal::of_issued(life(START, 30 * DAY), HOUR, now(Duration::ZERO), 0.5);
    let asleep = Now { monotonic: Instant::ZERO + DAY, wall: START + 25 * DAY };
    assert_eq!(renewal.poll(asleep), Step::Ask);
}

/// Pauses are shares of a life, so even a certificate of seconds is renewed in time.
#[test]
fn lives_of_seconds_have_short_pauses() {
    let lasts = Duration::from_secs(6);
    let mut year = Year::begin(12, lasts);
    let (mut at, mut asked) = (Duration::ZERO, Vec::new());
    while at < lasts {
        match year.renewal.poll(now(at)) {
            Step::Wait(wait) => at += wait,
            Step::Listen => year.renewal.handle_heard(false, now(at), 0.5),
            Step::Ask => {
                asked.push(at);
                year.renewal.handle_failed(now(at), 0.5);
            }
        }
    }
    assert!((10..=25).contains(&asked.len()), "{asked:?}");
    assert!(asked[0] >= lasts.mul_f64(0.6));
}

/// A hundred cameras that were enrolled on one morning ask over a day and a half, not all at once.
#[test]
fn members_of_one_morning_are_spread() {
    let mut chance = Chance(5);
    let mut due: Vec<Duration> = (0..100)
        .map(|_| {
            let mut renewal =
                Renewal::of_issued(life(START, 30 * DAY), HOUR, now(Duration::ZERO), chance.next());
            let mut at = Duration::ZERO;
            loop {
                match renewal.poll(now(at)) {
                    Step::Wait(wait) => at += wait,
                    Step::Listen => renewal.handle_heard(false, now(at), chance.next()),
                    Step::Ask => return at,
                }
            }
        })
        .collect();
    due.sort();
    assert!(due[99] - due[0] > DAY, "{:?}", due[99] - due[0]);
    assert!(due[99] <= 20 * DAY + HOUR && due[0] >= 18 * DAY);
}
