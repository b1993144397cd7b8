//! Draws random worlds: cameras, links and applications of every kind, with faults that may overlap.
//!
//! `media.rs` draws shared media, `grants.rs` rights, `revoked.rs` revocations, `sources.rs` the sources of cameras, `groups.rs` groups of workers,
//! `derived.rs` applications that publish derived streams, `answers.rs` applications that answer frames, `disks.rs` logs on disks and their faults.

mod answers;
mod derived;
mod disks;
mod grants;
mod groups;
mod media;
mod revoked;
mod sources;

use std::time::Duration;

use mez_core::broker::{EPOCH_JUMP_MAX, EPOCH_MAX, NUMBER_MAX, highest_believed};
use mez_core::contract::{Contract, OnInfeasible};
use mez_core::frame::Epoch;
use mez_core::history::Tier;
use mez_core::profile::{Profile, ProfileHash, RungProfile, SizedProfile};
use mez_core::setting::Setting;
use mez_core::subscription::Deliver;

pub use self::answers::answering;
pub use self::derived::deriving;
use self::disks::{disk, disk_faults};
use self::grants::Grants;
pub use self::groups::shared;
use self::media::{declared, medium};
use self::revoked::Members;
use self::sources::{film, give_knobs, give_records, lose_sources, of_knobs, turning_knobs};
use crate::disk::Faults;
use crate::footage::Footage;
use crate::link::LinkSpec;
use crate::random::Random;
use crate::time::{Moment, ms, secs};
use crate::world::{
    Action, ApplicationId, ApplicationSpec, Ask, AttackSpec, CameraId, CameraSpec, CaptureTimes, Conduct,
    Counter, EdgeId, EdgeSpec, Host, Library, Resumes, VisitorSpec, World,
};

/// No fault comes before this moment.
const CALM: Duration = secs(1);
/// No fault comes in this time at the end, so that everything must recover.
const QUIET: Duration = secs(5);
/// The additional time at the end if there was a thief. The edge may have told the camera to wait before it dials again.
const REFUSED: Duration = secs(6);
/// The longest time that the largest frame takes on its link. Slower links have no guarantees.
const SERVICE_TIME_MAX: Duration = secs(2);
/// The longest time that a full queue takes to drain.
const QUEUE_TIME_MAX: Duration = secs(1);

/// What may be drawn. Some kinds have their own random numbers, so that the rest of a seed's world does not depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variety {
    /// Whether planned steps of wall clocks are carried out. This changes nothing else.
    pub wall_steps: bool,
    /// Whether applications may ask for spans of wall-clock time.
    pub spans: bool,
    /// Whether applications make requests to their running sessions: another contract, a measured accuracy, a new chain. Own random numbers.
    pub asks: bool,
    /// Whether some applications want the originals of the newest frames. Own random numbers.
    pub originals: bool,
    /// Whether cameras lose the sources of their frames. Own random numbers.
    pub lost_sources: bool,
    /// Whether the rights of applications are limited, and change. Otherwise each application has grants for everything. Own random numbers.
    pub grants: bool,
    /// Whether cameras give pictures of their sources' own video. Own random numbers.
    pub source_video: bool,
    /// Whether cameras give data records between their pictures. Own random numbers.
    pub records: bool,
    /// Whether cameras give data records with a knob, and applications have a profile of the knob. Own random numbers.
    pub knobs: bool,
    /// Whether members of the site are revoked and join again, at one edge or at two edges between which cameras move.
    pub revocations: bool,
    /// Whether there will be groups of workers ([`shared`]). All rights are then open.
    pub groups: bool,
    /// Whether there will be applications that publish derived streams ([`deriving`]). All rights are then open at first.
    pub derived: bool,
    /// Whether there will be applications that answer frames ([`answering`]). All rights are then open.
    pub answers: bool,
}

impl Variety {
    /// Everything that happens to brokers.
    pub const ALL: Self = Self {
        wall_steps: true,
        spans: true,
        asks: false,
        originals: false,
        lost_sources: false,
        grants: false,
        source_video: false,
        records: false,
        knobs: false,
        revocations: false,
        groups: false,
        derived: false,
        answers: false,
    };
    /// [`Variety::ALL`], and requests of applications to their running sessions.
    pub const ASKING: Self = Self { asks: true, ..Self::ALL };
    /// [`Variety::ASKING`], and applications that want originals beside the others.
    pub const ORIGINALS: Self = Self { originals: true, ..Self::ASKING };
    /// Everything that happens to brokers, and sources that are lost and come back.
    pub const UNPLUGGED: Self = Self { lost_sources: true, ..Self::ALL };
    /// Applications of every kind, and rights that are granted and revoked.
    pub const GRANTED: Self = Self { grants: true, ..Self::ORIGINALS };
    /// Everything that happens to brokers, and cameras whose sources give video, read live.
    pub const SOURCE_VIDEO: Self = Self { source_video: true, spans: false, ..Self::ALL };
    /// Cameras whose sources give video, with applications of every kind, which also read the past and originals.
    pub const SOURCE_VIDEO_READ: Self = Self { source_video: true, ..Self::ORIGINALS };
    /// Cameras whose sources give video, and that move between two edges.
    pub const SOURCE_VIDEO_MOVED: Self = Self { source_video: true, spans: false, ..Self::REVOKED };
    /// Cameras of every kind that give data records between their pictures. Most of these are pictures of their sources' video.
    pub const SOURCE_VIDEO_RECORDS: Self = Self { records: true, ..Self::SOURCE_VIDEO_READ };
    /// Applications with requests to their sessions, and cameras that give data records with a knob, alone or between pictures.
    pub const KNOBS: Self = Self { knobs: true, ..Self::ASKING };
    /// Everything that happens to brokers, and certificates that are revoked.
    pub const REVOKED: Self = Self { revocations: true, ..Self::ALL };
    /// Everything that happens to brokers, with groups of workers beside the applications.
    pub const SHARED: Self = Self { groups: true, ..Self::ALL };
    /// Everything that happens to brokers, with applications that publish derived streams.
    pub const DERIVED: Self = Self { derived: true, ..Self::ALL };
    /// Everything that happens to brokers, with applications that answer frames.
    pub const ANSWERED: Self = Self { answers: true, ..Self::ALL };
}

/// A world drawn from a seed, with its planned faults, and how long to run it.
pub fn random(seed: u64, variety: Variety) -> (World, Duration) {
    // The world draws events from the seed itself. Its construction is drawn from other random numbers of the seed.
    let mut random = Random::seeded(seed ^ 0x7363_656e_6172_696f);
    let length = random.duration(secs(8)..=secs(16));
    let cameras_max = *random.pick(&[1, 1, 1, 2, 2, 3]);
    let mut specs: Vec<CameraSpec> = (0..cameras_max).map(|_| camera(&mut random)).collect();
    give(&mut specs, seed, variety);
    let count = *random.pick(&[1, 1, 2, 3, 4, 32]);
    // Every application may hold a frame for any time, and held frames count against the log. Smaller logs have no guarantees.
    let most = specs.iter().map(|spec| u64::from(*spec.frame_bytes.end())).max().unwrap_or_default();
    let needed = most * (count + 8) * 2 * cameras_max as u64;
    let log_bytes_max = (random.within(6..=64) << 20).max(needed);
    let disk = random.one_in(4).then(|| disk(&mut random));
    let channels = declared(seed);
    let mut granted = variety.grants.then(|| Grants::draw(seed, count));
    let rights = grants::rights(granted.as_ref(), opens(variety), count);
    let edge = EdgeSpec { log_bytes_max, disk, channels, rights, ..EdgeSpec::default() };
    let mut world = World::seeded_with(seed, edge);
    let members = variety.revocations.then(|| Members::draw(&mut world, seed));
    let second_edge = members.as_ref().and_then(Members::second);
    let medium = medium(&mut random, &specs).map(|spec| world.medium(spec));
    let cameras: Vec<CameraId> = ["dock/cam1", "dock/cam2", "yard/cam1"]
        .iter()
        .zip(specs)
        .map(|(name, spec)| world.camera(name, CameraSpec { medium, second_edge, ..spec }))
        .collect();
    let rival = random.one_in(8).then(|| {
        let other = random.one_in(2).then_some("spiffe://world/camera/other");
        world.rival(cameras[0], other)
    });
    let people = Footage::PEDESTRIANS.profile();
    let people = if seed.is_multiple_of(2) { people } else { people.map(leaving_out) };
    let people = people.map(|profile| world.profile(profile));
    let kept = variety.knobs.then(|| world.profile(of_knobs(most)));
    let mut turning = Random::seeded(seed ^ 0x6b6e_6f62_7321_2121);
    // Applications that resume have their own random numbers.
    let mut resuming = Random::seeded(seed ^ 0x7265_7375_6d65_7321);
    let resumes = resuming.one_in(3) && variety.spans;
    let mut wanting = Random::seeded(seed ^ 0x6f72_6967_696e_616c);
    let applications: Vec<ApplicationId> = (0..count)
        .map(|_| {
            let spec = application(&mut random, variety, people);
            let spec = if resumes { resumer(&mut resuming, spec) } else { spec };
            let spec = if variety.originals { original(&mut wanting, spec) } else { spec };
            let spec = if kept.is_some() { turning_knobs(&mut turning, spec, kept) } else { spec };
            world.application(match &mut granted {
                Some(granted) => granted.claimant(spec),
                None => spec,
            })
        })
        .collect();
    if resumes {
        restarts(&mut world, &mut resuming, &cameras, &applications, length);
    }

    if variety.asks {
        asks(&mut world, seed, &applications, people, length);
        libraries(&mut world, seed, &applications);
    }
    if variety.lost_sources {
        lose_sources(&mut world, seed, &cameras, CALM..=length - QUIET);
    }
    if let Some(granted) = granted {
        granted.plan(&mut world, EdgeId::default(), &applications, (CALM..=length - QUIET, length));
    }
    if let Some(members) = members {
        members.plan(&mut world, &cameras, &applications, (CALM..=length - QUIET, rival.is_none()));
    }
    flood(&mut world, seed, cameras.len(), length);
    for _ in 0..random.within(0..=7) {
        plan(&mut world, &mut random, &cameras, rival, &applications, length, variety);
    }
    world.at(Moment::START + (length - QUIET), Action::Heal);
    // A rival and a thief both claim the camera's name, so only one of them is drawn.
    let robbed = rival.is_none() && plan_thefts(&mut world, seed, &cameras, length);
    (world, if robbed || variety.revocations { length + REFUSED } else { length })
}

/// Whether all rights are open at first, because the world will have more than its first applications.
const fn opens(variety: Variety) -> bool {
    variety.groups || variety.derived || variety.answers
}

/// Draws what cameras get from their sources.
fn give(specs: &mut [CameraSpec], seed: u64, variety: Variety) {
    if variety.source_video {
        film(specs, seed);
    }
    if variety.records {
        give_records(specs, seed);
    }
    if variety.knobs {
        give_knobs(specs, seed);
    }
}

/// In some worlds, plans a thief of a camera's keys that comes and goes, and resets of the camera, also without a reason. Own random numbers.
fn plan_thefts(world: &mut World, seed: u64, cameras: &[CameraId], length: Duration) -> bool {
    let mut random = Random::seeded(seed ^ 0x7468_6965_7665_7300);
    if !random.one_in(5) {
        return false;
    }
    let camera = *random.pick(cameras);
    let thief = world.thief(camera);
    let highest = highest_believed(Epoch(0), EPOCH_JUMP_MAX).0;
    let moment = |random: &mut Random| Moment::START + random.duration(CALM..=length - QUIET);
    for _ in 0..random.within(1..=5) {
        let low = random.within(1..=30);
        let epoch = *random.pick(&[
            1,
            4,
            low,
            low,
            highest,
            highest,
            highest + 1,
            highest + 2 * EPOCH_JUMP_MAX,
            EPOCH_MAX.0,
            NUMBER_MAX - 1,
            NUMBER_MAX,
        ]);
        let start = moment(&mut random);
        let stays = random.duration(ms(5)..=secs(4));
        world.at(start, Action::Claim(thief, epoch)).at(start + stays, Action::Leave(thief));
    }
    if random.one_in(3) {
        world.at(moment(&mut random), Action::Reset(camera));
    }
    if random.one_in(3) {
        let poisoned = moment(&mut random);
        world.at(poisoned, Action::Poison(camera));
        world.at(poisoned + random.duration(ms(5)..=secs(4)), Action::Reset(camera));
    }
    true
}

/// Plans requests of applications to their running sessions.
fn asks(
    world: &mut World,
    seed: u64,
    applications: &[ApplicationId],
    people: Option<ProfileHash>,
    length: Duration,
) {
    let mut random = Random::seeded(seed ^ 0x7365_7373_696f_6e73);
    for _ in 0..random.within(2..=12) {
        let application = *random.pick(applications);
        let at = Moment::START + random.duration(CALM..=length - QUIET);
        match random.within(0..=5) {
            0..=2 => {
                let contract = demands(&mut random, people);
                world.asks_at(at, application, Ask::Update(contract));
            }
            3 | 4 => {
                let accuracy = *random.pick(&[0.2, 0.85, 0.95, 1.0]);
                let interval = random.duration(ms(20)..=ms(400));
                for number in 0..random.within(1..=20) as u32 {
                    world.asks_at(at + interval * number, application, Ask::Accuracy(accuracy));
                }
            }
            _ => {
                world.asks_at(at, application, Ask::ChainsLost);
            }
        }
    }
}

/// Gives some applications a client library that reports when they take frames. Own random numbers.
fn libraries(world: &mut World, seed: u64, applications: &[ApplicationId]) {
    let mut random = Random::seeded(seed ^ 0x7461_6b65_6e21_2121);
    for application in applications {
        let way = *random.pick(&[ms(0), ms(1), ms(20), ms(80)]);
        let takes_after = *random.pick(&[ms(0), ms(5), ms(60), ms(300), ms(1_500)]);
        if random.one_in(2) {
            let at = Moment::START + random.duration(secs(0)..=secs(2));
            world.asks_at(at, *application, Ask::Library(Library { way, takes_after }));
        }
    }
}

/// Draws a contract that an application asks for later.
fn demands(random: &mut Random, people: Option<ProfileHash>) -> Contract {
    let accuracy_floor = *random.pick(&[None, Some(0.6), Some(0.9)]);
    Contract {
        latency_bound: *random.pick(&[None, Some(ms(30)), Some(ms(100)), Some(secs(1))]),
        accuracy_floor,
        profile: people.filter(|_| accuracy_floor.is_some() && random.one_in(2)),
        on_infeasible: *random.pick(&[OnInfeasible::Degrade, OnInfeasible::Degrade, OnInfeasible::Skip]),
        priority: random.within(0..=2) as i32,
        ..Contract::default()
    }
}

/// Draws attackers at the edge's door, and honest clients at the same time. Own random numbers.
fn flood(world: &mut World, seed: u64, cameras: usize, length: Duration) {
    let mut random = Random::seeded(seed ^ 0x666c_6f6f_6473);
    if !random.one_in(4) {
        return;
    }
    let edge = EdgeId::default();
    for _ in 0..random.within(1..=3) {
        let attack = AttackSpec {
            edge,
            // The attacker's own address, or that of a camera's network.
            address: if random.one_in(3) {
                random.within(1..=cameras as u64) as u8
            } else {
                random.within(100..=104) as u8
            },
            conduct: *random.pick(&[Conduct::Idle, Conduct::Dribble, Conduct::HalfPreface]),
            interval: random.duration(ms(2)..=ms(30)),
            connections: random.within(100..=1_500) as u32,
        };
        world.attack(Moment::START + random.duration(secs(0)..=length - QUIET), attack);
    }
    for _ in 0..random.within(1..=2) {
        world.visitor(VisitorSpec {
            edge,
            // The visitor's own address, or that of an attacker.
            address: random.within(99..=104) as u8,
            round_trip_time: random.duration(Duration::from_micros(200)..=ms(20)),
            interval: random.duration(ms(100)..=secs(1)),
        });
    }
}

fn camera(random: &mut Random) -> CameraSpec {
    let footage = *random.pick(&Footage::ALL);
    let films = random.one_in(3);
    let interval = *random.pick(&[ms(16), ms(33), ms(66), ms(100), ms(100), ms(200), ms(500), secs(2)]);
    let (least, most) = *random.pick(&[(200, 2_000), (5_000, 20_000), (30_000, 60_000), (100_000, 200_000)]);
    let spec = CameraSpec { footage, frame_bytes: least..=most, interval, ..CameraSpec::default() };
    let spec = if films { CameraSpec::filming(footage) } else { spec };
    let most = *spec.frame_bytes.end();
    let needed = u64::from(most) * 8 * 1_000_000_000 / SERVICE_TIME_MAX.as_nanos() as u64;
    let bits_per_second =
        (*random.pick(&[300_000, 1_000_000, 2_000_000, 5_000_000, 20_000_000, 100_000_000])).max(needed);
    let queue_bytes_max = *random.pick(&[4 << 10, 32 << 10, 128 << 10]);
    let queue_most = bits_per_second / 8 * QUEUE_TIME_MAX.as_millis() as u64 / 1000;
    let delay = *random.pick(&[Duration::from_micros(300), ms(2), ms(5), ms(20), ms(70)]);
    let link = LinkSpec {
        bits_per_second,
        delay_up: delay,
        delay_down: random.duration(delay / 2..=delay * 2),
        queue_bytes_max: u64::min(queue_bytes_max, queue_most),
        lost_once_in: *random.pick(&[0, 0, 0, 1000, 200, 30]),
        bounded: true,
    };
    // Encryption on disk takes more time than all the rest of a world.
    let keeps = random.one_in(3) && most <= 60_000;
    CameraSpec {
        link,
        disk: keeps.then(|| disk(random)),
        codec_slowness: *random.pick(&[1, 1, 1, 4]),
        jitter: *random.pick(&[ms(0), ms(2), ms(30)]),
        log_bytes_max: random.within(2..=16) << 20,
        capture_times: *random.pick(&[
            CaptureTimes::Broker,
            CaptureTimes::Broker,
            CaptureTimes::Publisher { wrong_once_in: 9 },
        ]),
        ..spec
    }
}

/// Makes a profile with additional rungs that leave frames out. Their frames are larger, and their accuracy is lower.
fn leaving_out(known: SizedProfile) -> SizedProfile {
    let mut rungs = known.profile.rungs().to_vec();
    for rung in known.profile.rungs() {
        let Ok(setting) = rung.rung.setting() else { continue };
        rungs.extend([1, 4].map(|skip| RungProfile {
            rung: Setting { skip, ..setting }.rung(),
            bytes: rung.bytes.times(1.0 + f64::from(skip) / 8.0),
            accuracy: rung.accuracy * (1.0 - f64::from(skip) / 200.0),
            ..rung.clone()
        }));
    }
    SizedProfile { profile: Profile::new(rungs).expect("rungs of a sound profile, and others"), ..known }
}

fn application(random: &mut Random, variety: Variety, people: Option<ProfileHash>) -> ApplicationSpec {
    let pattern = *random.pick(&["**", "**", "dock/*", "dock/cam1", "*/cam1", "yard/**"]);
    let consumes = *random.pick(&[ms(0), ms(1), ms(20), ms(80), ms(300)]);
    let latency_bound = *random.pick(&[None, Some(ms(30)), Some(ms(100)), Some(secs(1))]);
    let accuracy_floor = random.one_in(2).then_some(0.9);
    let profile = people.filter(|_| accuracy_floor.is_some() && random.one_in(2));
    let (degrade, skip) = (OnInfeasible::Degrade, OnInfeasible::Skip);
    let on_infeasible = *random.pick(&[degrade, degrade, degrade, degrade, skip, skip, OnInfeasible::Stop]);
    let priority = random.within(0..=2) as i32;
    let every = random.one_in(3);
    let min_fps = if every { 0.0 } else { f64::from(priority) * 5.0 };
    let spec = if every { ApplicationSpec::every(pattern) } else { ApplicationSpec::newest(pattern) };
    let spec = ApplicationSpec {
        contract: Contract {
            latency_bound,
            accuracy_floor,
            profile,
            on_infeasible,
            priority,
            min_fps,
            ..Contract::default()
        },
        replies: random.one_in(4),
        ..spec.consuming(consumes)
    };
    let (begins, ends) = (random.one_in(4), random.one_in(5));
    let (before, end_after_ms) = (random.duration(ms(0)..=secs(4)), random.within(0..=9_000) as i64 - 1_000);
    let reads = random.one_in(6);
    let spec = ApplicationSpec { chains: before.as_nanos() % 4 == 1, ..spec };
    match variety.spans {
        // All of the past, wherever it is held, and perhaps the present too.
        true if reads => ApplicationSpec {
            // Clocks differ by up to a minute, so the span may cover everything or nothing.
            begin_before: Some(before + if begins { secs(0) } else { secs(120) }),
            end_after_ms: ends.then_some(end_after_ms.max(-(before.as_millis() as i64))),
            deliver: if every { Deliver::Newest } else { Deliver::Every },
            tier_max: Tier::Camera,
            reduced: before.as_nanos() % 3 == 0,
            ..spec
        },
        true => ApplicationSpec {
            begin_before: begins.then_some(before),
            end_after_ms: ends.then_some(end_after_ms.max(-(before.as_millis() as i64))),
            ..spec
        },
        false => spec,
    }
}

/// Lets an application want the originals of the newest frames, at random.
fn original(random: &mut Random, spec: ApplicationSpec) -> ApplicationSpec {
    if !random.one_in(3) || spec.resumes == Resumes::Filling {
        return spec;
    }
    let contract = Contract { accuracy_floor: None, profile: None, ..spec.contract };
    ApplicationSpec {
        contract,
        deliver: Deliver::Newest,
        tier_max: Tier::Camera,
        begin_before: None,
        reduced: false,
        originals: true,
        ..spec
    }
}

/// Lets an application resume after its last frames when it subscribes again, at random.
fn resumer(random: &mut Random, spec: ApplicationSpec) -> ApplicationSpec {
    let spec = ApplicationSpec { consumes: spec.consumes.min(ms(20)), ..spec };
    match random.within(0..=3) {
        0 => spec,
        1 => ApplicationSpec { resumes: Resumes::Behind, ..spec },
        2 => ApplicationSpec {
            tier_max: Tier::Camera,
            resumes: Resumes::Behind,
            deliver: Deliver::Every,
            ..spec
        },
        _ => ApplicationSpec {
            tier_max: Tier::Camera,
            resumes: Resumes::Filling,
            deliver: Deliver::Every,
            begin_before: None,
            reduced: false,
            ..spec
        },
    }
}

/// Plans kills and starts of brokers, and applications that subscribe again before, during and after these.
fn restarts(
    world: &mut World,
    random: &mut Random,
    cameras: &[CameraId],
    applications: &[ApplicationId],
    length: Duration,
) {
    for _ in 0..random.within(1..=3) {
        let killed = Moment::START + random.duration(CALM..=length - QUIET);
        let back = killed + random.duration(ms(1)..=secs(3));
        let camera = *random.pick(cameras);
        if random.one_in(2) {
            world
                .at(killed, Action::KillEdge(EdgeId::default()))
                .at(back, Action::StartEdge(EdgeId::default()));
        } else {
            world.at(killed, Action::KillCamera(camera)).at(back, Action::StartCamera(camera, Counter::Kept));
        }
        for _ in 0..random.within(1..=3) {
            let application = *random.pick(applications);
            let comes = killed + random.duration(ms(0)..=back.since(killed) + secs(2));
            let goes = killed + random.duration(ms(0)..=comes.since(killed));
            world.at(goes, Action::Unsubscribe(application)).at(comes, Action::Subscribe(application));
        }
    }
}

/// Plans one fault, and its end.
fn plan(
    world: &mut World,
    random: &mut Random,
    cameras: &[CameraId],
    rival: Option<CameraId>,
    applications: &[ApplicationId],
    length: Duration,
    variety: Variety,
) {
    let camera = *random.pick(cameras);
    let application = *random.pick(applications);
    let start = Moment::START + random.duration(CALM..=length - QUIET);
    let short = random.duration(ms(1)..=ms(900));
    let long = random.duration(ms(5)..=secs(6));
    let counter =
        *random.pick(&[Counter::Kept, Counter::Kept, Counter::Kept, Counter::LastWriteLost, Counter::Lost]);
    let edge = EdgeId::default();
    let hosts = [Host::Camera(camera), Host::Edge(edge)];
    let (short, long) = (start + short, start + long);
    let plan = match random.within(0..=19) {
        0..=2 => vec![(start, Action::Cut(camera)), (long, Action::Restore(camera))],
        3 => vec![(start, Action::Cut(camera)), (short, Action::Restore(camera))],
        4 => vec![(start, Action::Break(camera))],
        5 => {
            let divisor = random.within(2..=50);
            vec![(start, Action::Slow(camera, divisor)), (long, Action::Slow(camera, 1))]
        }
        6 | 7 => vec![(start, Action::KillCamera(camera)), (short, Action::StartCamera(camera, counter))],
        8 => vec![(start, Action::KillEdge(edge)), (short, Action::StartEdge(edge))],
        9 => vec![(start, Action::Stall(application)), (long, Action::Resume(application))],
        10 => vec![(start, Action::Unsubscribe(application)), (short, Action::Subscribe(application))],
        11 => vec![(start, Action::Silence(camera)), (long, Action::Publish(camera))],
        12 => {
            let host = *random.pick(&hosts);
            let seconds = *random.pick(&[3600, -3600]);
            if variety.wall_steps { vec![(start, Action::StepWall(host, seconds))] } else { Vec::new() }
        }
        13 => vec![(start, Action::Freeze(hosts[0])), (long, Action::Thaw(hosts[0]))],
        14 => vec![(start, Action::Freeze(hosts[1])), (short, Action::Thaw(hosts[1]))],
        16 | 17 => {
            let host = *random.pick(&hosts);
            let faults = disk_faults(random);
            vec![(start, Action::Disk(host, faults)), (long, Action::Disk(host, Faults::default()))]
        }
        18 => vec![(start, Action::CutPower(hosts[0])), (short, Action::StartCamera(camera, counter))],
        19 => vec![(start, Action::CutPower(hosts[1])), (short, Action::StartEdge(edge))],
        _ => rival.map_or_else(Vec::new, |rival| {
            vec![(start, Action::StartCamera(rival, Counter::Kept)), (long, Action::KillCamera(rival))]
        }),
    };
    for (at, action) in plan {
        world.at(at, action);
    }
}
