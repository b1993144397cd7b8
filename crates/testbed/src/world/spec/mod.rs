//! Describes the parts of a world.

mod answers;

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

pub use self::answers::{AnswerSpec, TakeSpec};
use crate::channel::wifi::Scene;
use crate::footage::Footage;
use crate::link::LinkSpec;
use crate::time::{HostClock, ms};

/// Names an edge of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeId(pub(crate) usize);

impl EdgeId {
    /// The edge that every world has.
    pub const FIRST: Self = Self(0);
}

/// Names a camera host of a world, with its process and its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CameraId(pub(crate) usize);

impl CameraId {
    /// The camera that is created first.
    pub const FIRST: Self = Self(0);
}

/// Names an application of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId(pub(crate) usize);

impl ApplicationId {
    /// The application that is created as number `place`, counted from 0. Rights that exist before the application need its id.
    pub const fn nth(place: usize) -> Self {
        Self(place)
    }

    /// The application's principal at its edge: `app/reader/0`.
    pub fn who(self) -> Bearer {
        Bearer::App(format!("reader/{}", self.0).parse().expect("it is a name"))
    }
}

/// Names a group of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(crate) usize);

impl GroupId {
    /// The principal of the group's workers at their edge: `app/crew/0`.
    pub fn who(self) -> Bearer {
        Bearer::App(format!("crew/{}", self.0).parse().expect("it is a name"))
    }
}

/// Names rights that an edge of a world may get.
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
    /// One queue before one bottleneck in each direction, first come, first served. Each camera has an equal part of the queue.
    Queue {
        /// The rate of all cameras together.
        bits_per_second: u64,
        /// How many bytes of all cameras together may wait in the queue.
        queue_bytes_max: u64,
        /// The number of cameras.
        cameras: usize,
    },
    /// A Wi-Fi medium. The first stations, those without a load, are the cameras of the world, in the order
    /// of their creation. The other stations only add load.
    Wifi(Scene),
}

/// How a broker of a world keeps a camera's log on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// When records are made durable.
    pub durability: Durability,
    /// The most bytes of a log on disk.
    pub disk_bytes_max: u64,
    /// The size at which a segment is closed.
    pub segment_bytes: u64,
}

impl Default for DiskSpec {
    fn default() -> Self {
        Self { durability: Durability::Group, disk_bytes_max: 8 << 20, segment_bytes: 1 << 20 }
    }
}

/// An edge broker on its own host.
#[derive(Clone, Debug)]
pub struct EdgeSpec {
    /// The budget of all replica logs together, in bytes. Default 256 MiB.
    pub log_bytes_max: u64,
    /// The largest payload that the edge accepts, in bytes. Default 32 MiB.
    pub frame_bytes_max: u32,
    /// How the edge keeps its replica logs on disk. Default: not at all.
    pub disk: Option<DiskSpec>,
    /// The most cameras. Default 64.
    pub cameras_max: usize,
    /// The declared channels: which cameras share one. Default: none.
    pub channels: Channels,
    /// The rights at the edge, until [`Action::Rights`](super::Action::Rights) changes them. Default: every application may do everything.
    pub rights: Rights,
    /// The host's clocks. Default: drawn, with a drift of up to 50 ppm and a wall clock up to a minute off.
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
    /// The camera broker stamps the frames.
    Broker,
    /// The publisher gives the wall-clock time. Once in `wrong_once_in` frames, the time is not after that of the last frame.
    Publisher {
        /// One frame in this many has a wrong time.
        wrong_once_in: u64,
    },
}

/// How a camera's source encodes its video.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceVideo {
    /// One picture in this many is a key frame. At least 1.
    pub key_every: u64,
    /// One picture in this many, at random, is needed by no other. 0: none.
    pub spare_once_in: u64,
    /// Whether the source gives a key frame on request.
    pub answers: bool,
    /// One picture in this many, at random, is lost before the camera broker reads it. The following
    /// pictures are withheld until the next key frame. 0: none.
    pub lost_once_in: u64,
    /// Bytes of key frames and of other pictures, in thousandths of the picture's bytes as JPEG.
    pub permille: (u32, u32),
}

impl SourceVideo {
    /// x264 without B-frames, as in cameras: large key frames, one in ten seconds at 25 frames per second.
    pub const X264: Self =
        Self { key_every: 250, spare_once_in: 0, answers: false, lost_once_in: 0, permille: (400, 37) };
    /// openh264: no other picture needs every second picture, and there is a key frame every two seconds.
    pub const OPENH264: Self =
        Self { key_every: 50, spare_once_in: 2, answers: true, lost_once_in: 0, permille: (270, 45) };

    /// Bytes of a picture that would have `as_jpeg` bytes as JPEG.
    pub(super) fn bytes(&self, is_key: bool, as_jpeg: u32) -> u32 {
        let permille = if is_key { self.permille.0 } else { self.permille.1 };
        (u64::from(as_jpeg) * u64::from(permille) / 1000 + 1) as u32
    }

    /// Bytes that a picture of `bytes` bytes would have as JPEG.
    pub(super) fn as_jpeg(&self, is_key: bool, bytes: u64) -> u64 {
        let permille = if is_key { self.permille.0 } else { self.permille.1 };
        bytes * 1000 / u64::from(permille).max(1)
    }
}

/// A camera broker on its own host, at the end of its own link.
#[derive(Clone, Debug)]
pub struct CameraSpec {
    /// The edge that the camera dials. Default: the first.
    pub edge: EdgeId,
    /// A second edge that the camera dials. The camera reaches only one of the two at a time ([`Action::Move`](super::Action::Move)). Default: none.
    pub second_edge: Option<EdgeId>,
    /// The link to the edge. Default 20 Mbit/s, 5 ms each way.
    pub link: LinkSpec,
    /// The medium that the link shares with other cameras' links, and that sets the rate. Default: none.
    pub medium: Option<MediumId>,
    /// The time between two frames. Default 100 ms.
    pub interval: Duration,
    /// How far the interval varies, up and down. Default 2 ms.
    pub jitter: Duration,
    /// The size of a published frame, in bytes. Successive frames have similar sizes. Default 30,000 to 40,000.
    pub frame_bytes: RangeInclusive<u32>,
    /// What the camera sees. The footage sets the size of encoded frames, relative to the published size,
    /// and the encoding times. Default: people who walk by.
    pub footage: Footage,
    /// Width and height of the frames, in pixels. Default 64 × 48.
    pub pixels: (u32, u32),
    /// Encoding takes this many times as long as in the measurement of the footage. Default 1.
    pub codec_slowness: u32,
    /// The budget of the camera's log, in bytes. Default 32 MiB.
    pub log_bytes_max: u64,
    /// How the camera keeps its log on disk. Default: not at all, so a kill loses the log.
    pub disk: Option<DiskSpec>,
    /// Where capture times come from. Default: the broker.
    pub capture_times: CaptureTimes,
    /// The source's own video, of which the frames are pictures. Default: the frames are stills.
    pub video: Option<SourceVideo>,
    /// One frame in this many, at random, is replaced by a data record. Default 0: none.
    pub record_once_in: u64,
    /// Whether the publisher declares a knob for its data records ([`crate::payload::knobs`]). Default: no.
    pub knobs: bool,
    /// The host's clocks. Default: drawn, with a drift of up to 50 ppm and a wall clock up to a minute off.
    pub clock: Option<HostClock>,
    /// The identity in the camera's certificate. Default: one for the camera's name.
    pub identity: Option<String>,
}

impl CameraSpec {
    /// Bytes that a frame's picture would have as JPEG.
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
    /// A camera with `fps` frames of `bytes` bytes in a second.
    pub fn frames(fps: u64, bytes: u32) -> Self {
        Self {
            interval: Duration::from_nanos(1_000_000_000 / fps),
            frame_bytes: bytes..=bytes,
            ..Self::default()
        }
    }

    /// A camera that sees `footage`, with the frame rate and frame sizes of its measurement.
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

    /// The same camera on a link of `bits_per_second`.
    #[must_use]
    pub fn at_rate(mut self, bits_per_second: u64) -> Self {
        self.link.bits_per_second = bits_per_second;
        self
    }

    /// The same camera on a link with a delay of `each_way`.
    #[must_use]
    pub fn at_distance(mut self, each_way: Duration) -> Self {
        (self.link.delay_up, self.link.delay_down) = (each_way, each_way);
        self
    }
}

/// The size of an encoded profile, in bytes. Instead of JSON, each byte is the first byte of the profile's hash.
pub(super) const PROFILE_BYTES: usize = 20_000;

/// Where an application that subscribes again begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumes {
    /// Like an application that never had a frame.
    Anew,
    /// After the last frame of each camera that it has. Missing frames are counted.
    Behind,
    /// After the last frame of each camera that it has. Missing frames are fetched.
    Filling,
}

/// A client library that reports when its application takes a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    /// How long a frame takes from the edge to the library.
    pub way: Duration,
    /// How long after its arrival in the library the application takes the frame.
    pub takes_after: Duration,
}

/// An application at an edge.
#[derive(Clone, Debug)]
pub struct ApplicationSpec {
    /// The edge of the application. Default: the first.
    pub edge: EdgeId,
    /// The cameras to read, as a pattern.
    pub cameras: String,
    /// The contract with these cameras.
    pub contract: Contract,
    /// How far back reading begins, counted from the time of subscribing. `None`: with the first frame after it.
    pub begin_before: Option<Duration>,
    /// When the wanted capture times end, in milliseconds from the time of subscribing; negative is in the past. `None`: never.
    pub end_after_ms: Option<i64>,
    /// Whether to deliver the newest or every frame.
    pub deliver: Deliver,
    /// Where frames may be taken from if the edge's memory lacks them. Default: nowhere.
    pub tier_max: Tier,
    /// Whether frames of the past are wanted at [`PAST_RUNG`](super::PAST_RUNG). Default no: as they are held, or as published.
    pub reduced: bool,
    /// Whether the originals of the newest frames are wanted, whatever rung the contracts on the cameras have. Default no.
    pub originals: bool,
    /// Whether the application decodes chains itself, and gets live frames as they crossed the link. Default no.
    pub chains: bool,
    /// How long the application works on each frame. Default 1 ms.
    pub consumes: Duration,
    /// How the application treats frames that it missed. Default: each subscription begins anew.
    pub resumes: Resumes,
    /// The client library between the edge and the application, which reports when frames are taken. Default: none.
    pub library: Option<Library>,
    /// Whether the application replies to each frame after its work. Default no.
    pub replies: bool,
    /// The derived stream that the application publishes. Default: none.
    pub derives: Option<DeriveSpec>,
    /// How the application answers frames. Default: not at all.
    pub answers: Option<AnswerSpec>,
}

/// A derived stream that an application publishes at its edge, with a record of each frame that it has processed.
#[derive(Clone, Debug)]
pub struct DeriveSpec {
    /// The name of the stream.
    pub stream: String,
    /// The streams that the derived stream is made of, by name.
    pub of: Vec<String>,
    /// How long a record travels to the edge.
    pub way: RangeInclusive<Duration>,
    /// The smallest and the largest size of a record, in bytes.
    pub record_bytes: RangeInclusive<u32>,
    /// How many programs of the application publish the stream, in turn.
    pub workers: usize,
    /// After one record in this many, its program dies. Another program takes its place. 0: none dies.
    pub dies_once_in: u64,
}

impl DeriveSpec {
    /// A stream made of `of`, with records of up to 2 kB, published by one program.
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
            answers: None,
        }
    }

    /// The same application, which also publishes a derived stream.
    pub fn deriving(self, derives: DeriveSpec) -> Self {
        Self { derives: Some(derives), ..self }
    }

    /// The same application, which also answers frames.
    pub fn answering(self, answers: AnswerSpec) -> Self {
        Self { answers: Some(answers), ..self }
    }

    /// The originals of the newest frames of `cameras`, beside any contracts.
    pub fn originals(cameras: &str) -> Self {
        Self { originals: true, tier_max: Tier::Camera, ..Self::newest(cameras) }
    }

    /// All frames of `cameras`, each camera resumed after the last frame that the application has, also across restarts of brokers.
    pub fn filling(cameras: &str) -> Self {
        Self { tier_max: Tier::Camera, resumes: Resumes::Filling, ..Self::every(cameras) }
    }

    /// Every frame of `cameras` that crosses the link from now on.
    pub fn every(cameras: &str) -> Self {
        Self { deliver: Deliver::Every, ..Self::newest(cameras) }
    }

    /// Every frame of `cameras` from `before` ago on, and all later ones.
    pub fn since(cameras: &str, before: Duration) -> Self {
        Self { begin_before: Some(before), ..Self::every(cameras) }
    }

    /// Every frame captured between `begin` and `end` ago, wherever it is held.
    pub fn read(cameras: &str, begin: Duration, end: Duration) -> Self {
        Self {
            begin_before: Some(begin),
            end_after_ms: Some(-(end.as_millis() as i64)),
            tier_max: Tier::Camera,
            ..Self::every(cameras)
        }
    }

    /// The same application, which works for `consumes` on each frame.
    #[must_use]
    pub fn consuming(mut self, consumes: Duration) -> Self {
        self.consumes = consumes;
        self
    }
}

/// A group of workers that share the records of some cameras.
#[derive(Clone, Debug)]
pub struct GroupSpec {
    /// The edge of the group. Default: the first.
    pub edge: EdgeId,
    /// The cameras to read, as a pattern.
    pub cameras: String,
    /// How the records are shared.
    pub options: GroupOptions,
    /// The workers. All start at once.
    pub workers: Vec<WorkerSpec>,
}

impl GroupSpec {
    /// A group of equal workers.
    pub fn new(cameras: &str, options: GroupOptions, workers: usize, worker: &WorkerSpec) -> Self {
        let workers = vec![worker.clone(); workers];
        Self { edge: EdgeId::FIRST, cameras: cameras.into(), options, workers }
    }
}

/// A worker of a group.
#[derive(Clone, Debug)]
pub struct WorkerSpec {
    /// How long the worker works on a record.
    pub works: RangeInclusive<Duration>,
    /// How many records the worker takes at once. Default 1.
    pub at_once: u32,
    /// What goes wrong with the worker. Default: nothing.
    pub mishaps: Mishaps,
}

impl WorkerSpec {
    /// A worker that works this long on a record and never fails.
    pub fn steady(works: RangeInclusive<Duration>) -> Self {
        Self { works, at_once: 1, mishaps: Mishaps::default() }
    }
}

/// What goes wrong with a worker. Each number n means one record in n; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// The worker reports that it cannot process the record.
    pub fails: u64,
    /// The worker reports nothing, and continues with other records.
    pub forgets: u64,
    /// The worker acknowledges the record twice.
    pub twice: u64,
    /// The worker also acknowledges a record that was given to another member.
    pub others: u64,
    /// The worker dies before the work is done.
    pub dies_before: u64,
    /// The worker dies after the work is done, and before it has reported the result.
    pub dies_after: u64,
    /// The worker loses its connection during the work. It connects again, and then reports the result.
    pub cut: u64,
    /// The worker leaves the group, and joins again as another member.
    pub leaves: u64,
}

/// A request of an application to its running session.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The contract is replaced by this one.
    Update(Contract),
    /// The application measured this accuracy of its results, from 0 to 1, on the frames of all its cameras.
    Accuracy(f64),
    /// The application cannot decode the present chains of its cameras any further.
    ChainsLost,
    /// The application uses this client library, which reports when frames are taken.
    Library(Library),
    /// The application lists the cameras of its pattern.
    List,
}

/// How an attacker's connections continue after they are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// The connections send nothing.
    Idle,
    /// The connections begin the handshake and never complete it.
    Dribble,
    /// The connections authenticate with a stolen key, and send half of a first message.
    HalfPreface,
}

/// An attacker that opens connections as fast as possible, and holds all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttackSpec {
    /// The edge under attack.
    pub edge: EdgeId,
    /// The last byte of the attacker's address. Cameras have 1, 2, 3 in the order of their creation.
    pub address: u8,
    /// How the connections continue.
    pub conduct: Conduct,
    /// The time between two connections.
    pub interval: Duration,
    /// The total number of connections.
    pub connections: u32,
}

/// An honest client that connects again and again and leaves at once, such as a program that lists cameras.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitorSpec {
    /// The edge that the visitor connects to.
    pub edge: EdgeId,
    /// The last byte of the visitor's address.
    pub address: u8,
    /// The round trip time to the edge.
    pub round_trip_time: Duration,
    /// The pause between two visits.
    pub interval: Duration,
}
