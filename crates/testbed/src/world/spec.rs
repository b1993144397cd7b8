//! Describes what a world is made of.

use std::ops::RangeInclusive;
use std::time::Duration;

use mez_core::contract::Contract;
use mez_core::controller::share::Channels;
use mez_core::frame::Frame;
use mez_core::group::GroupOptions;
use mez_core::history::Tier;
use mez_core::rights::{Bearer, Rights};
use mez_core::store::Durability;
use mez_core::subscription::Deliver;

use crate::channel::wifi::Scene;
use crate::footage::Footage;
use crate::link::LinkSpec;
use crate::time::{HostClock, ms};

/// Names an edge of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub(crate) usize);

impl EdgeId {
    /// The one that every world has.
    pub const FIRST: Self = Self(0);
}

/// Names a camera host of a world, with its process and its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CameraId(pub(crate) usize);

/// Names an application of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub(crate) usize);

impl ApplicationId {
    /// The application that is made as this one, counted from 0. Rights that are there before it need its name.
    pub const fn nth(place: usize) -> Self {
        Self(place)
    }

    /// Who it is to the rights of its edge: `app/reader/0`.
    pub fn who(self) -> Bearer {
        Bearer::App(format!("reader/{}", self.0).parse().expect("it is a name"))
    }
}

/// Names a group of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) usize);

impl GroupId {
    /// Who its workers are to the rights of its edge: `app/crew/0`.
    pub fn who(self) -> Bearer {
        Bearer::App(format!("crew/{}", self.0).parse().expect("it is a name"))
    }
}

/// Names rights that an edge of a world may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RightsId(pub(crate) usize);

/// Names a medium that cameras of a world share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub(crate) usize);

/// Names a visitor of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VisitorId(pub(crate) usize);

/// A medium that several cameras share.
#[derive(Clone, Debug, PartialEq)]
pub enum MediumSpec {
    /// One queue in front of one bottleneck, each way, first come, first served. Each camera may have as much in it as the others.
    Queue {
        /// The rate of all together.
        bits_per_second: u64,
        /// What may wait in the queue, in bytes, of all together.
        queue_bytes_max: u64,
        /// How many cameras there will be.
        cameras: usize,
    },
    /// A Wi-Fi medium. Its first stations, those without a load, are the cameras of the world, in the order in which they are made; others are
    /// there beside them.
    Wifi(Scene),
}

/// How a broker of a world keeps a camera's log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// When records are made durable.
    pub durability: Durability,
    /// The most bytes on disk.
    pub disk_bytes_max: u64,
    /// The size at which a segment is closed.
    pub segment_bytes: u64,
}

impl Default for DiskSpec {
    fn default() -> Self {
        Self { durability: Durability::Group, disk_bytes_max: 8 << 20, segment_bytes: 1 << 20 }
    }
}

/// An edge broker on a host of its own.
#[derive(Clone, Debug)]
pub struct EdgeSpec {
    /// The budget of all replica logs together, in bytes. Default 256 MiB.
    pub log_bytes_max: u64,
    /// The largest payload that it takes, in bytes. Default 32 MiB.
    pub frame_bytes_max: u32,
    /// How it keeps its replica logs on disk. Default: not at all.
    pub disk: Option<DiskSpec>,
    /// The most cameras. Default 64.
    pub cameras_max: usize,
    /// Which cameras it is told share a channel. Default: none.
    pub channels: Channels,
    /// Who may do what at it, until that is changed. Default: every application everything.
    pub rights: Rights,
    /// Its clocks. Default: drawn, up to 50 ppm and a minute of the wall clock off.
    pub clock: Option<HostClock>,
}

impl Default for EdgeSpec {
    fn default() -> Self {
        Self {
            log_bytes_max: 256 << 20,
            frame_bytes_max: 32 << 20,
            cameras_max: 64,
            disk: None,
            channels: Channels::default(),
            rights: Rights::open(),
            clock: None,
        }
    }
}

/// Where capture times come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureTimes {
    /// The broker stamps the frames.
    Broker,
    /// The publisher gives the wall-clock time, and once in `wrong_once_in` frames one that is not after the last.
    Publisher {
        /// How often it is wrong.
        wrong_once_in: u64,
    },
}

/// How a camera's source codes its video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceVideo {
    /// One picture in so many is a key frame. At least 1.
    pub key_every: u64,
    /// One picture in so many, at random, is one that no other needs. 0: none.
    pub spare_once_in: u64,
    /// Whether it gives a key frame when it is asked for one.
    pub answers: bool,
    /// One picture in so many, at random, is lost before it is read. Nothing that follows is given before the next key frame. 0: none.
    pub lost_once_in: u64,
    /// Bytes of key frames and of others, in thousandths of what the picture has as JPEG.
    pub permille: (u32, u32),
}

impl SourceVideo {
    /// x264 without B-frames, as cameras use it: much in key frames, one in ten seconds at 25 frames per second.
    pub const X264: Self =
        Self { key_every: 250, spare_once_in: 0, answers: false, lost_once_in: 0, permille: (400, 37) };
    /// openh264: every second picture is one that no other needs, a key frame in two seconds.
    pub const OPENH264: Self =
        Self { key_every: 50, spare_once_in: 2, answers: true, lost_once_in: 0, permille: (270, 45) };

    /// Bytes of a picture that has so many as JPEG.
    pub(super) fn bytes(&self, is_key: bool, as_jpeg: u32) -> u32 {
        let permille = if is_key { self.permille.0 } else { self.permille.1 };
        (u64::from(as_jpeg) * u64::from(permille) / 1000 + 1) as u32
    }

    /// Bytes that a picture would have as JPEG.
    pub(super) fn as_jpeg(&self, is_key: bool, bytes: u64) -> u64 {
        let permille = if is_key { self.permille.0 } else { self.permille.1 };
        bytes * 1000 / u64::from(permille).max(1)
    }
}

/// A camera broker on a host of its own, at the end of a link of its own.
#[derive(Clone, Debug)]
pub struct CameraSpec {
    /// The edge that it dials. Default: the first.
    pub edge: EdgeId,
    /// Another edge that it dials as well. It reaches the one or the other ([`Action::Move`](super::Action::Move)). Default: none.
    pub second_edge: Option<EdgeId>,
    /// The link to it. Default 20 Mbit/s, 5 ms each way.
    pub link: LinkSpec,
    /// What its link shares with those of other cameras, which then decides on the rate. Default: nothing.
    pub medium: Option<MediumId>,
    /// The time between two frames. Default 100 ms.
    pub interval: Duration,
    /// By how much that varies, up and down. Default 2 ms.
    pub jitter: Duration,
    /// The size of a frame as it is published, in bytes; neighbours are alike. Default 30,000 to 40,000.
    pub frame_bytes: RangeInclusive<u32>,
    /// What it sees: how large frames are when codecs are done with them, against their size as published, and how long that takes. Default: people
    /// who walk by.
    pub footage: Footage,
    /// Width and height of its frames, in pixels. Default 64 × 48.
    pub pixels: (u32, u32),
    /// Its codecs take so many times as long to encode as those that the footage was measured with. Default 1.
    pub codec_slowness: u32,
    /// The budget of its log, in bytes. Default 32 MiB.
    pub log_bytes_max: u64,
    /// How it keeps its log on disk. Default: not at all, so that it forgets when it is killed.
    pub disk: Option<DiskSpec>,
    /// Where capture times come from. Default: the broker.
    pub capture_times: CaptureTimes,
    /// Its frames are pictures of its source's own video. Default: they are stills.
    pub video: Option<SourceVideo>,
    /// In place of one picture in so many, at random, its publisher gives a data record. Default 0: of none.
    pub record_once_in: u64,
    /// Whether its publisher declares a knob of its data records ([`crate::payload::knobs`]). Default: it does not.
    pub knobs: bool,
    /// Its clocks. Default: drawn, up to 50 ppm and a minute of the wall clock off.
    pub clock: Option<HostClock>,
    /// The identity in its certificate. Default: one of its own, for its name.
    pub identity: Option<String>,
}

impl CameraSpec {
    /// Bytes of a frame's picture as JPEG.
    pub(super) fn picture_bytes(&self, frame: &Frame) -> u64 {
        let (bytes, is_key) = (frame.payload.len() as u64, frame.meta.chain.index == 0);
        let video = self.video.filter(|_| frame.meta.encoding.is_chained());
        video.map_or(bytes, |video| video.as_jpeg(is_key, bytes))
    }
}

impl Default for CameraSpec {
    fn default() -> Self {
        Self {
            edge: EdgeId(0),
            second_edge: None,
            link: LinkSpec::default(),
            medium: None,
            interval: ms(100),
            jitter: ms(2),
            frame_bytes: 30_000..=40_000,
            footage: Footage::PEDESTRIANS,
            pixels: (64, 48),
            codec_slowness: 1,
            log_bytes_max: 32 << 20,
            disk: None,
            capture_times: CaptureTimes::Broker,
            video: None,
            record_once_in: 0,
            knobs: false,
            clock: None,
            identity: None,
        }
    }
}

impl CameraSpec {
    /// Frames of `bytes` bytes, `fps` of them in a second.
    pub fn frames(fps: u64, bytes: u32) -> Self {
        Self {
            interval: Duration::from_nanos(1_000_000_000 / fps),
            frame_bytes: bytes..=bytes,
            ..Self::default()
        }
    }

    /// A camera that sees this, at the rate and in the sizes at which it was measured.
    pub fn filming(footage: Footage) -> Self {
        let [least, _, most] = footage.published;
        Self {
            interval: Duration::from_secs_f64(1.0 / footage.frames_per_second),
            frame_bytes: least as u32..=most as u32,
            footage,
            pixels: footage.pixels,
            ..Self::default()
        }
    }

    /// The same on a link of `bits_per_second`.
    #[must_use]
    pub fn at_rate(mut self, bits_per_second: u64) -> Self {
        self.link.bits_per_second = bits_per_second;
        self
    }

    /// The same on a link with a delay of `each_way`.
    #[must_use]
    pub fn at_distance(mut self, each_way: Duration) -> Self {
        (self.link.delay_up, self.link.delay_down) = (each_way, each_way);
        self
    }
}

/// How many bytes a profile has in worlds. In place of JSON, all of them are the first byte of its hash.
pub(super) const PROFILE_BYTES: usize = 20_000;

/// Where an application begins when it subscribes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumes {
    /// As one that never had a frame.
    Anew,
    /// Behind the last frame that it has of each camera; what it lacks is counted.
    Behind,
    /// The same, and what it lacks is fetched.
    Filling,
}

/// A client library that reports when its application has taken a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// How long a frame takes from the edge into the library.
    pub way: Duration,
    /// How long after that the application takes it.
    pub takes_after: Duration,
}

/// An application, at an edge.
#[derive(Clone, Debug)]
pub struct ApplicationSpec {
    /// The edge that it asks. Default: the first.
    pub edge: EdgeId,
    /// The cameras that it wants, as a pattern.
    pub cameras: String,
    /// What it demands of them.
    pub contract: Contract,
    /// How far back it begins to read, counted from its subscribing. `None`: what is published from then on.
    pub begin_before: Option<Duration>,
    /// When the capture times that it wants end, counted from its subscribing; negative is in the past.
    /// In milliseconds. `None`: never.
    pub end_after_ms: Option<i64>,
    /// Newest or every frame.
    pub deliver: Deliver,
    /// How far back it reaches for what the edge's memory does not hold. Default no further.
    pub tier_max: Tier,
    /// Whether it wants frames of the past at [`PAST_RUNG`](super::PAST_RUNG). Default no: as they are held, or were published.
    pub reduced: bool,
    /// Whether it wants the originals of the newest frames, whatever rung the contracts on their cameras have. Default no.
    pub originals: bool,
    /// Whether it decodes chains itself, and gets present frames as they came. Default no.
    pub chains: bool,
    /// How long it takes for each frame. Default 1 ms.
    pub consumes: Duration,
    /// What it does about frames that it did not get when they were new. Default: it begins anew with every subscription.
    pub resumes: Resumes,
    /// The client library between the edge and its hands, which reports when it takes frames. Default: none.
    pub library: Option<Library>,
    /// Whether it replies to each frame when it has done with it. Default no.
    pub replies: bool,
    /// What it publishes of what it makes of frames. Default nothing.
    pub derives: Option<DeriveSpec>,
}

/// What an application publishes at its edge: a derived stream with a record of each frame that it has done with.
#[derive(Clone, Debug)]
pub struct DeriveSpec {
    /// The name of the stream.
    pub stream: String,
    /// What the stream is made of, by name.
    pub of: Vec<String>,
    /// How long a record is on its way to the edge.
    pub way: RangeInclusive<Duration>,
    /// The least and most bytes of a record.
    pub record_bytes: RangeInclusive<u32>,
    /// How many programs of the application publish the stream, in turn.
    pub workers: usize,
    /// Of so many records one is the last thing that its program does before it dies. Another one takes its place. 0: none dies.
    pub dies_once_in: u64,
}

impl DeriveSpec {
    /// Records of up to 2 kB, which one program publishes as `stream`.
    pub fn new(stream: &str, of: &str) -> Self {
        Self {
            stream: stream.into(),
            of: vec![of.into()],
            way: ms(0)..=ms(3),
            record_bytes: 20..=2_000,
            workers: 1,
            dies_once_in: 0,
        }
    }
}

impl ApplicationSpec {
    /// The newest frames of `cameras` from now on.
    pub fn newest(cameras: &str) -> Self {
        Self {
            edge: EdgeId(0),
            cameras: cameras.into(),
            contract: Contract::default(),
            begin_before: None,
            end_after_ms: None,
            deliver: Deliver::Newest,
            tier_max: Tier::Memory,
            reduced: false,
            originals: false,
            chains: false,
            consumes: ms(1),
            resumes: Resumes::Anew,
            library: None,
            replies: false,
            derives: None,
        }
    }

    /// The same, and publishes what it makes of the frames.
    pub fn deriving(self, derives: DeriveSpec) -> Self {
        Self { derives: Some(derives), ..self }
    }

    /// The originals of the newest frames of `cameras`, beside whatever contracts there are.
    pub fn originals(cameras: &str) -> Self {
        Self { originals: true, tier_max: Tier::Camera, ..Self::newest(cameras) }
    }

    /// All frames of `cameras`, behind the last one that it has of each, whoever was killed meanwhile.
    pub fn filling(cameras: &str) -> Self {
        Self { tier_max: Tier::Camera, resumes: Resumes::Filling, ..Self::every(cameras) }
    }

    /// Every frame of `cameras` that crosses from now on.
    pub fn every(cameras: &str) -> Self {
        Self { deliver: Deliver::Every, ..Self::newest(cameras) }
    }

    /// Every frame of `cameras` from `before` ago on, and then what comes.
    pub fn since(cameras: &str, before: Duration) -> Self {
        Self { begin_before: Some(before), ..Self::every(cameras) }
    }

    /// Every frame that was captured between `begin` and `end` ago, from wherever it is held.
    pub fn read(cameras: &str, begin: Duration, end: Duration) -> Self {
        Self {
            begin_before: Some(begin),
            end_after_ms: Some(-(end.as_millis() as i64)),
            tier_max: Tier::Camera,
            ..Self::every(cameras)
        }
    }

    /// The same, working for `consumes` on every frame.
    #[must_use]
    pub fn consuming(mut self, consumes: Duration) -> Self {
        self.consumes = consumes;
        self
    }
}

/// A group of workers that share the records of some cameras.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// The edge that they ask. Default: the first.
    pub edge: EdgeId,
    /// The cameras, as a pattern.
    pub cameras: String,
    /// How records are shared.
    pub options: GroupOptions,
    /// Its workers. All begin at once.
    pub workers: Vec<WorkerSpec>,
}

impl GroupSpec {
    /// So many workers of one kind.
    pub fn new(cameras: &str, options: GroupOptions, workers: usize, worker: &WorkerSpec) -> Self {
        let workers = vec![worker.clone(); workers];
        Self { edge: EdgeId::FIRST, cameras: cameras.into(), options, workers }
    }
}

/// A worker of a group.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// How long it works on a record.
    pub works: RangeInclusive<Duration>,
    /// How many records it takes at once. Default 1.
    pub at_once: u32,
    /// What goes wrong with it. Default: nothing.
    pub mishaps: Mishaps,
}

impl WorkerSpec {
    /// One that works so long on a record, and never fails.
    pub fn steady(works: RangeInclusive<Duration>) -> Self {
        Self { works, at_once: 1, mishaps: Mishaps::default() }
    }
}

/// What goes wrong with a worker: each with one record in so many. 0: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// It says that it cannot work on the record.
    pub fails: u64,
    /// It says nothing, and goes on with others.
    pub forgets: u64,
    /// It acknowledges the record twice.
    pub twice: u64,
    /// It also acknowledges a record that somebody else was given.
    pub others: u64,
    /// It dies before it has done the work.
    pub dies_before: u64,
    /// It dies after it has done the work, and before it has said so.
    pub dies_after: u64,
    /// Its connection is lost meanwhile. It comes back, and says what it has to say.
    pub cut: u64,
    /// It leaves in good order, and joins again as another member.
    pub leaves: u64,
}

/// Something that an application asks of its running session.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Its contract is this from now on.
    Update(Contract),
    /// It measured this accuracy of its results, from 0 to 1, on the frames of all cameras that it reads.
    Accuracy(f64),
    /// It cannot decode the chains of its cameras any further.
    ChainsLost,
    /// From now on it has a client library that reports when it takes frames.
    Library(Library),
    /// It lists the cameras of its pattern.
    List,
}

/// How an attacker's connections go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// They say nothing.
    Idle,
    /// They begin their handshake and never end it.
    Dribble,
    /// They prove who they are with a stolen key, and say half a first message.
    HalfPreface,
}

/// An attacker that opens connections as fast as it can, and holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackSpec {
    /// Whose door.
    pub edge: EdgeId,
    /// The last byte of its address. Cameras have 1, 2, 3 in the order in which they were made.
    pub address: u8,
    /// How its connections go on.
    pub conduct: Conduct,
    /// The time between two connections.
    pub interval: Duration,
    /// Connections in all.
    pub connections: u32,
}

/// An honest client that comes again and again and leaves at once, such as a program that lists cameras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitorSpec {
    /// Whose door.
    pub edge: EdgeId,
    /// The last byte of its address.
    pub address: u8,
    /// The round trip to the edge.
    pub round_trip_time: Duration,
    /// The pause between two visits.
    pub interval: Duration,
}
