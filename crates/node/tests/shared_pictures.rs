//! Programs on the edge's host that share decoded pictures: real brokers, a link that carries only video,
//! a real decoding process beside the edge, and programs that leave, stall, keep pictures, or lie.

mod api_support;
mod chain_support;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api_support::{Site, everything, frame, within};
use bytes::Bytes;
use chain_support::{INTERVAL, jpeg_shows, picture, shows, slow_network};
use mez_core::broker::edge::EdgeConfig;
use mez_core::contract::Contract;
use mez_core::frame::{Encoding, FrameMeta, SkipReason};
use mez_core::name::CameraName;
use mez_media::{ImageViewMut, PixelFormat};
use mez_node::api::{ApiLimits, ApiServer, pb};
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{Address, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::edge::{EdgeBroker, EdgeHandle, EdgeOptions};
use mez_node::identity::name::Role;
use mez_node::local::{Kind, LocalConnection, PacketError, Place};
use mez_node::pictures::{PictureService, serve};
use mez_node::ports::EdgeAddress;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinHandle;

const BOUND: Duration = Duration::from_millis(500);
const FLOOR: f64 = 0.9;

/// Set in a process that an edge of these tests has started to decode.
const DECODES: &str = "MEZ_TEST_DECODES";

/// Not a test itself: the decoding process beside the edge.
#[test]
fn child_process_that_decodes() {
    if std::env::var_os(DECODES).is_some() {
        serve(std::io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
        std::process::exit(0);
    }
}

/// A decoding process beside the edge.
fn beside() -> PictureService {
    let test = std::env::current_exe().unwrap();
    let words = ["--exact", "child_process_that_decodes", "--nocapture", "--test-threads=1"];
    let command = ["/usr/bin/env".into(), format!("{DECODES}=1").into(), test.into()].into_iter();
    PictureService::new(command.chain(words.map(OsString::from)).collect())
}

/// An edge behind slow networks, with cameras that publish pictures while this lives.
struct Running {
    edge: EdgeHandle,
    pictures: PictureService,
    site: Site,
    cameras: Vec<(CameraHandle, JoinHandle<()>)>,
    server: Option<ApiServer>,
    unix: Address,
    tls: Address,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cameras.iter().for_each(|(_, publishing)| publishing.abort());
    }
}

impl Running {
    async fn new() -> Self {
        Self::with(beside(), 1, INTERVAL).await
    }

    /// With `count` cameras, each with a network of its own. `pictures` decodes for sharing programs, `interval` is the time between two pictures.
    async fn with(pictures: PictureService, count: u32, interval: Duration) -> Self {
        let site = Site::new();
        let (listen, credentials) = ("127.0.0.1:0".parse().unwrap(), site.credentials(Role::Edge, "edge"));
        let options = EdgeOptions::new(listen, credentials, EdgeConfig::default());
        let edge = EdgeBroker::start(EdgeOptions { pictures: pictures.clone(), ..options }).unwrap();
        let mut cameras = Vec::new();
        for number in 1..=count {
            let network = slow_network(edge.link_address(), Arc::new(AtomicBool::new(false))).await;
            let name = format!("dock/cam{number}");
            let camera = site.camera_with(&name, &edge, |options| {
                options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
                options.transport = Transport::Quic;
            });
            let camera = camera.await;
            let publisher = camera.clone();
            let publishing = tokio::spawn(async move {
                let mut ticks = tokio::time::interval(interval);
                ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                for number in 0.. {
                    ticks.tick().await;
                    publisher.publish(picture(number)).unwrap();
                }
            });
            cameras.push((camera, publishing));
        }
        let (server, unix, tls) = site.serve_edge(&edge).await;
        Self { edge, pictures, site, cameras, server: Some(server), unix, tls }
    }

    async fn program(&self, address: &Address, options: SubscribeOptions) -> Program {
        let client = self.site.client(address).await;
        Program { subscription: client.subscribe(options).await.unwrap(), last: HashMap::new() }
    }

    async fn local(&self) -> Program {
        self.program(&self.unix, options()).await
    }

    /// Two programs that share.
    async fn pair(&self) -> (Program, Program) {
        let (mut one, mut other) = (self.local().await, self.local().await);
        together(&mut one, &mut other, |one, other| one.is_shared && other.is_shared).await;
        (one, other)
    }
}

fn options() -> SubscribeOptions {
    SubscribeOptions {
        contract: Contract { accuracy_floor: Some(FLOOR), latency_bound: Some(BOUND), ..Contract::default() },
        ..SubscribeOptions::new("dock/*".parse().unwrap())
    }
}

/// A program that checks every frame.
struct Program {
    subscription: Subscription,
    last: HashMap<CameraName, u64>,
}

impl Program {
    /// The next frame. Checks that it shows what was published under its number, and that the frames before it are accounted for.
    async fn next(&mut self) -> Box<ReceivedFrame> {
        let frame = frame(&mut self.subscription).await;
        check(&frame);
        let number = frame.meta.id.sequence.0;
        if let Some(last) = self.last.insert(frame.camera.clone(), number) {
            assert!(number > last, "{number} after {last}");
            assert_eq!(frame.skipped.total(), number - last - 1, "between {last} and {number}");
        }
        frame
    }

    /// Reads until `wanted` accepts a frame.
    async fn until(&mut self, wanted: impl Fn(&ReceivedFrame) -> bool) -> Box<ReceivedFrame> {
        for _ in 0..2_000 {
            let frame = self.next().await;
            if wanted(&frame) {
                return frame;
            }
        }
        panic!("it never came");
    }
}

fn kill(process: u32) {
    signal(process, Signal::KILL);
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Both read until `wanted` accepts their last frames.
async fn together(
    one: &mut Program,
    other: &mut Program,
    wanted: impl Fn(&ReceivedFrame, &ReceivedFrame) -> bool,
) {
    for _ in 0..2_000 {
        let (of_one, of_other) = tokio::join!(one.next(), other.next());
        if wanted(&of_one, &of_other) {
            return;
        }
    }
    panic!("it never came");
}

fn check(frame: &ReceivedFrame) {
    let FrameMeta { id, width, height, encoding, .. } = &frame.meta;
    let (number, what) = (id.sequence.0, id.to_string());
    match encoding {
        Encoding::H264 | Encoding::Tiles => {
            let start = frame.payload.get(..4);
            let is_video = start == Some(&[0, 0, 0, 1][..]);
            assert_eq!(is_video, *encoding == Encoding::H264, "{what}: the payload is what crossed the link");
            let mut pixels = vec![0; (width * height * 3) as usize];
            let view = ImageViewMut::packed(&mut pixels, *width, *height, PixelFormat::Bgr8);
            frame.show(&mut view.unwrap()).unwrap();
            shows(&pixels, (*width, *height), number, &what);
        }
        Encoding::Jpeg => jpeg_shows(&frame.payload, (*width, *height), number, &what),
        other => panic!("{what} came as {other:?}"),
    }
}

/// The edge decodes for two programs of its host. A program that is alone, one on another host and one that takes stills are unaffected.
#[tokio::test(flavor = "multi_thread")]
async fn two_programs_of_a_host_share_pictures() {
    let running = Running::new().await;
    let mut alone = running.local().await;
    let mut remote = running.program(&running.tls, options()).await;
    let accept_encodings = vec![Encoding::Jpeg];
    let mut stills = running.program(&running.unix, SubscribeOptions { accept_encodings, ..options() }).await;
    for _ in 0..30 {
        let (of_one, of_remote, still) = tokio::join!(alone.next(), remote.next(), stills.next());
        assert!(!of_one.is_shared && !of_remote.is_shared && !still.is_shared, "nobody shares with one");
    }
    let (mut one, mut other) = (alone, running.local().await);
    together(&mut one, &mut other, |one, other| one.is_shared && other.is_shared).await;
    let (mut shared, mut skipped) = (0, 0);
    for _ in 0..60 {
        let (of_one, of_other, of_remote, still) =
            tokio::join!(one.next(), other.next(), remote.next(), stills.next());
        for frame in [of_one, of_other] {
            shared += u32::from(frame.is_shared);
            skipped += frame.skipped.total();
        }
        assert!(!of_remote.is_shared && !still.is_shared && still.meta.encoding == Encoding::Jpeg);
    }
    assert!(shared > 80, "{shared} of 120 were shared, {skipped} skipped");
}

/// An edge that decodes in its own process shares the same pictures.
#[tokio::test(flavor = "multi_thread")]
async fn two_programs_share_what_the_edge_itself_decodes() {
    let running = Running::with(PictureService::off(), 1, INTERVAL).await;
    let (mut one, mut other) = running.pair().await;
    let mut shared = 0;
    for _ in 0..60 {
        let (of_one, of_other) = tokio::join!(one.next(), other.next());
        shared += u32::from(of_one.is_shared) + u32::from(of_other.is_shared);
    }
    assert!(shared > 80, "{shared} of 120");
}

/// The place of decoding can change while programs share, from the next chain on. The programs do not notice.
#[tokio::test(flavor = "multi_thread")]
async fn programs_share_on_while_the_decoding_moves() {
    let running = Running::new().await;
    let (mut one, mut other) = running.pair().await;
    assert!(running.pictures.process_id().is_some(), "a process decodes");
    for is_beside in [false, true] {
        running.pictures.set_on(is_beside);
        let before = one.next().await.meta.chain.chain;
        together(&mut one, &mut other, |one, other| {
            let is_later = |frame: &ReceivedFrame| frame.meta.chain.chain > before && frame.is_shared;
            is_later(one) && is_later(other)
        })
        .await;
    }
    assert!(running.pictures.process_id().is_some(), "a process decodes again");
}

/// The decoding process is killed while two programs share. Both are told which frames
/// cannot be shown, and decode by themselves. The process is not restarted at once.
#[tokio::test(flavor = "multi_thread")]
async fn the_death_of_the_process_costs_pictures_and_not_the_edge() {
    let running = Running::new().await;
    let (mut one, mut other) = running.pair().await;
    let mut stills = running
        .program(&running.unix, SubscribeOptions { accept_encodings: vec![Encoding::Jpeg], ..options() })
        .await;
    let process = running.pictures.process_id().expect("a process decodes");
    // It has frames to decode when it dies. A program on another host gets them meanwhile.
    let mut remote = running.program(&running.tls, options()).await;
    for _ in 0..3 {
        let chain = remote.next().await.meta.chain.chain;
        signal(process, Signal::STOP);
        let mut last = remote.next().await;
        for _ in 0..2 {
            last = remote.next().await;
        }
        // A new chain could be decoded without what was missed.
        if last.meta.encoding.is_chained() && last.meta.chain.chain == chain {
            break;
        }
        signal(process, Signal::CONT);
    }
    kill(process);
    let own = |frame: &ReceivedFrame| frame.meta.encoding.is_chained() && !frame.is_shared;
    let mut missed = 0;
    for program in [&mut one, &mut other] {
        for _ in 0..2_000 {
            let frame = program.next().await;
            missed += frame.skipped.of(SkipReason::NotDecoded);
            if own(&frame) {
                break;
            }
        }
    }
    for _ in 0..60 {
        let (of_one, of_other, still) = tokio::join!(one.next(), other.next(), stills.next());
        assert!(!of_one.is_shared && !of_other.is_shared, "they decode by themselves");
        assert_eq!(still.meta.encoding, Encoding::Jpeg);
        missed += of_one.skipped.of(SkipReason::NotDecoded) + of_other.skipped.of(SkipReason::NotDecoded);
    }
    assert!(missed > 0, "what could not be shown is told");
    assert_eq!(running.pictures.process_id(), None, "it rests");
}

/// A process that cannot be started, or ends at once: programs decode by themselves, as without sharing.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_process_programs_decode_by_themselves() {
    for program in ["/nonexistent/mez", "/bin/true"] {
        let running = Running::with(PictureService::new(vec![program.into()]), 1, INTERVAL).await;
        let (mut one, mut other) = (running.local().await, running.local().await);
        for _ in 0..40 {
            let (of_one, of_other) = tokio::join!(one.next(), other.next());
            assert!(!of_one.is_shared && !of_other.is_shared);
        }
        assert_eq!(running.pictures.process_id(), None);
    }
}

/// The process ends with the edge.
#[tokio::test(flavor = "multi_thread")]
async fn the_process_ends_with_the_edge() {
    let running = Running::new().await;
    let programs = running.pair().await;
    let process = running.pictures.process_id().expect("a process decodes");
    drop(programs);
    let edge = running.edge.clone();
    drop(running);
    edge.stop().await;
    drop(edge);
    within(async {
        while rustix::process::test_kill_process(Pid::from_raw(process as i32).unwrap()).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Programs come and go while two share. Each time, pictures go into a new memory
/// that the programs that left cannot see. The process keeps only one memory.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_sees_no_more_and_memory_is_bounded() {
    let running = Running::new().await;
    let (mut one, mut other) = running.pair().await;
    let process = running.pictures.process_id().expect("a process decodes");
    let mut watches = Raw::new(&running, true).await;
    for _ in 0..6 {
        let mut third = running.local().await;
        for _ in 0..8 {
            tokio::join!(one.next(), other.next(), third.next(), watches.read(true));
        }
        third.until(|frame| frame.is_shared).await;
        let before = watches.offered;
        drop(third);
        while watches.offered == before {
            tokio::join!(one.next(), other.next(), watches.read(true));
        }
        let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let mapped = maps.lines().filter(|line| line.contains("memfd:mez-frames")).count();
        assert!(mapped <= 2, "one for each decoder at most:\n{maps}");
    }
}

/// A program that is left alone continues with pictures, and decodes by itself from the next chain on. No frame is lost.
#[tokio::test(flavor = "multi_thread")]
async fn who_stays_alone_decodes_again_where_a_chain_begins() {
    let running = Running::new().await;
    let (mut one, other) = running.pair().await;
    drop(other);
    let mut before = one.next().await;
    for _ in 0..2_000 {
        let frame = one.next().await;
        if frame.meta.encoding == Encoding::H264 && !frame.is_shared {
            let begins = frame.meta.id.sequence.0 - u64::from(frame.meta.chain.index);
            assert!(
                begins > before.meta.id.sequence.0,
                "not in the middle of a chain: {:?}",
                frame.meta.chain
            );
            return;
        }
        before = frame;
    }
    panic!("pictures come for ever");
}

/// A program that keeps pictures still gets more. A stalled program delays no other.
#[tokio::test(flavor = "multi_thread")]
async fn who_keeps_pictures_or_stands_still_changes_nothing_for_others() {
    let running = Running::new().await;
    let (mut keeps, mut other) = running.pair().await;
    let mut kept = Vec::new();
    while kept.len() < 12 {
        let (frame, _) = tokio::join!(keeps.next(), other.next());
        if frame.is_shared {
            kept.push(frame);
        }
    }
    // The program stalls with all its pictures.
    for _ in 0..60 {
        other.next().await;
    }
    kept.iter().for_each(|frame| check(frame));
    keeps.until(|frame| frame.is_shared).await;
}

/// After a restart of the edge, both share again.
#[tokio::test(flavor = "multi_thread")]
async fn programs_share_again_after_a_restart_of_the_interface() {
    let mut running = Running::new().await;
    let (mut one, mut other) = running.pair().await;
    running.server.take().expect("it serves").stop().await;
    let Address::Unix(path) = &running.unix else { panic!("a socket") };
    let mut server = ApiServer::edge(running.edge.clone(), everything(), ApiLimits::default());
    server.listen_unix(path).unwrap();
    let before = [one.next().await, other.next().await].map(|frame| frame.meta.id);
    together(&mut one, &mut other, |one, other| {
        let is_later = one.meta.id > before[0] && other.meta.id > before[1];
        is_later && one.is_shared && other.is_shared
    })
    .await;
}

/// If sharing is disabled, programs decode by themselves, however many there are.
#[tokio::test(flavor = "multi_thread")]
async fn sharing_can_be_switched_off() {
    let running = Running::new().await;
    let off = ApiLimits { shared_pictures_from: 0, ..ApiLimits::default() };
    running.server.as_ref().expect("it serves").set_limits(off);
    let (mut one, mut other) = (running.local().await, running.local().await);
    for _ in 0..60 {
        let (of_one, of_other) = tokio::join!(one.next(), other.next());
        assert!(!of_one.is_shared && !of_other.is_shared);
    }
}

/// Sharing is disabled while two programs share: both continue with pictures, and decode by themselves from the next chain on.
#[tokio::test(flavor = "multi_thread")]
async fn sharing_ends_where_a_chain_begins_when_it_is_switched_off() {
    let running = Running::new().await;
    let (mut one, mut other) = running.pair().await;
    let off = ApiLimits { shared_pictures_from: 0, ..ApiLimits::default() };
    running.server.as_ref().expect("it serves").set_limits(off);
    let (of_one, of_other) =
        tokio::join!(one.until(|frame| !frame.is_shared), other.until(|frame| !frame.is_shared));
    for own in [of_one, of_other] {
        assert!(own.meta.encoding.is_chained(), "no stills had to come in between: {:?}", own.meta);
        assert_eq!(own.skipped.of(SkipReason::NotDecoded), 0);
    }
}

/// Eight cameras, each with its own decoder at the edge: two programs get all frames in order, with pictures.
#[tokio::test(flavor = "multi_thread")]
async fn two_programs_share_the_pictures_of_eight_cameras() {
    let running = Running::with(beside(), 8, 5 * INTERVAL).await;
    let (mut one, mut other) = (running.local().await, running.local().await);
    let mut shared: [HashSet<CameraName>; 2] = Default::default();
    for _ in 0..4_000 {
        let (of_one, of_other) = tokio::join!(one.next(), other.next());
        for (shared, frame) in shared.iter_mut().zip([of_one, of_other]) {
            if frame.is_shared {
                shared.insert(frame.camera.clone());
            }
        }
        if shared.iter().all(|shared| shared.len() == 8) {
            return;
        }
    }
    panic!("{shared:?}");
}

/// A client of the local protocol that takes pictures, and what it received.
struct Raw {
    connection: LocalConnection,
    /// The number of offered memories.
    offered: usize,
    places: Vec<Place>,
    through_the_socket: usize,
}

impl Raw {
    async fn new(running: &Running, takes_pictures: bool) -> Self {
        let Address::Unix(path) = &running.unix else { panic!("a socket") };
        let mut connection = LocalConnection::open(path).await.unwrap();
        let accept = [Encoding::H264, Encoding::Jpeg].map(|encoding| encoding as i32).to_vec();
        let request =
            pb::SubscribeRequest { pattern: "dock/*".into(), accept_encodings: accept, ..Default::default() };
        connection.writer.write(Kind::Subscribe, &request, Bytes::new()).await.unwrap();
        if takes_pictures {
            connection.writer.write(Kind::TakesPictures, &(), Bytes::new()).await.unwrap();
        }
        Self { connection, offered: 0, places: Vec::new(), through_the_socket: 0 }
    }

    /// Reads a packet. With `maps`, confirms to have mapped offered memory.
    async fn read(&mut self, maps: bool) {
        let packet = within(self.connection.reader.read()).await.unwrap().expect("it is served");
        match (packet.kind, packet.shared) {
            (Kind::Memory, _) if maps && packet.payload[1] > 0 => {
                self.offered += 1;
                let number = packet.payload.slice(..1);
                self.connection.writer.write(Kind::Mapped, &(), number).await.unwrap();
            }
            (Kind::Picture, Some(place)) => {
                assert!(place.memory > 128, "{place:?}");
                assert!(!self.places.contains(&place), "a place is given twice: {:?}", self.places);
                self.places.push(place);
            }
            (Kind::Picture, None) => self.through_the_socket += usize::from(!packet.payload.is_empty()),
            _ => {}
        }
    }
}

/// Until a program has mapped its memory, or if it never does, pictures come through the socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_memory_gets_pictures_through_its_socket() {
    let running = Running::new().await;
    let (mut without, mut other) = (Raw::new(&running, true).await, running.local().await);
    let read = async {
        for _ in 0..400 {
            without.read(false).await;
        }
    };
    let looks = async {
        loop {
            other.next().await;
        }
    };
    tokio::select! {
        () = read => {}
        () = looks => {}
    }
    assert_eq!(without.places, []);
    assert!(without.through_the_socket > 30, "{}", without.through_the_socket);
}

/// A client of the local protocol that takes pictures, confirms its memory, and never frees a slot. It
/// gets three pictures there, and the others through its socket. Other clients get as many as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_lets_go_holds_three_pictures() {
    let running = Running::new().await;
    let mut greedy = Raw::new(&running, true).await;
    let hold = async {
        for _ in 0..400 {
            greedy.read(true).await;
        }
        assert!(!greedy.places.is_empty() && greedy.through_the_socket > 30, "{}", greedy.through_the_socket);
        // However often the memory is replaced.
        assert!(greedy.places.len() <= 3, "{:?}", greedy.places);
    };
    let mut other = running.local().await;
    let looks = async {
        loop {
            other.next().await;
        }
    };
    tokio::select! {
        () = hold => {}
        () = looks => {}
    }
    let mut shared = 0;
    for _ in 0..40 {
        shared += u32::from(other.next().await.is_shared);
    }
    assert!(shared > 20, "{shared} of 40");
}

/// A client cannot send pictures, nor make the broker read any.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_pictures_is_refused() {
    let running = Running::new().await;
    let mut client = Raw::new(&running, false).await.connection;
    client.writer.write(Kind::Picture, &(), Bytes::new()).await.unwrap();
    let told = within(async {
        loop {
            let packet = client.reader.read().await.unwrap().expect("an answer");
            if let Err(PacketError::Refused(refused)) =
                packet.decode::<pb::SubscribeEvent>(Kind::SubscribeEvent)
            {
                return refused;
            }
        }
    })
    .await;
    assert_eq!(told.reason, "MALFORMED");
}
