//! Programs on the edge's host that share decoded pictures: real brokers, a link that carries video only, programs that leave, stand still,
//! keep what they get, or lie.

mod api_support;
mod chain_support;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use api_support::{Site, everything, frame, within};
use bytes::Bytes;
use chain_support::{INTERVAL, jpeg_shows, picture, shows, slow_network};
use mez_core::contract::Contract;
use mez_core::frame::{Encoding, FrameMeta};
use mez_media::{ImageViewMut, PixelFormat};
use mez_node::api::pb::subscribe_event::Event as Told;
use mez_node::api::{ApiLimits, ApiServer, pb};
use mez_node::camera::{CameraHandle, Transport};
use mez_node::client::{Address, ReceivedFrame, SubscribeOptions, Subscription};
use mez_node::edge::EdgeHandle;
use mez_node::local::{Kind, LocalConnection, PacketError};
use mez_node::ports::EdgeAddress;
use tokio::task::JoinHandle;

const BOUND: Duration = Duration::from_millis(500);
const FLOOR: f64 = 0.9;

/// An edge behind a slow network, with a camera that publishes pictures for as long as this lives.
struct Running {
    edge: EdgeHandle,
    site: Site,
    publishing: JoinHandle<()>,
    _camera: CameraHandle,
    server: Option<ApiServer>,
    unix: Address,
    tls: Address,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

impl Running {
    async fn new() -> Self {
        let site = Site::new();
        let edge = site.edge();
        let network = slow_network(edge.link_address(), Arc::new(AtomicBool::new(false))).await;
        let camera = site.camera_with("dock/cam1", &edge, |options| {
            options.edges = vec![EdgeAddress { host: "127.0.0.1".into(), port: network.port() }];
            options.transport = Transport::Quic;
        });
        let camera = camera.await;
        let (server, unix, tls) = site.serve_edge(&edge).await;
        let publisher = camera.clone();
        let publishing = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for number in 0.. {
                ticks.tick().await;
                publisher.publish(picture(number)).unwrap();
            }
        });
        Self { edge, site, publishing, _camera: camera, server: Some(server), unix, tls }
    }

    async fn program(&self, address: &Address, options: SubscribeOptions) -> Program {
        let client = self.site.client(address).await;
        Program { subscription: client.subscribe(options).await.unwrap(), last: None }
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

/// A program that looks at every frame that it gets.
struct Program {
    subscription: Subscription,
    last: Option<u64>,
}

impl Program {
    /// The next frame, once it is clear that it shows what was published under its number, and that those before it are accounted for.
    async fn next(&mut self) -> Box<ReceivedFrame> {
        let frame = frame(&mut self.subscription).await;
        check(&frame);
        let number = frame.meta.id.sequence.0;
        if let Some(last) = self.last.replace(number) {
            assert!(number > last, "{number} after {last}");
            assert_eq!(frame.skipped.total(), number - last - 1, "between {last} and {number}");
        }
        frame
    }

    /// Reads until a frame is as wanted.
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

/// Both read until what they got last is as wanted.
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
        Encoding::H264 => {
            let start = frame.payload.get(..4);
            assert_eq!(start, Some(&[0, 0, 0, 1][..]), "{what}: the payload is what crossed the link");
            let mut pixels = vec![0; (width * height * 3) as usize];
            let view = ImageViewMut::packed(&mut pixels, *width, *height, PixelFormat::Bgr8);
            frame.show(&mut view.unwrap()).unwrap();
            shows(&pixels, (*width, *height), number, &what);
        }
        Encoding::Jpeg => jpeg_shows(&frame.payload, (*width, *height), number, &what),
        other => panic!("{what} came as {other:?}"),
    }
}

/// The edge decodes for two programs of its host. One that is alone, one on another host and one that takes stills get what they
/// always got.
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

/// Who stays alone goes on with pictures, and decodes by itself from the next chain on; nothing is lost in between.
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

/// A program that keeps pictures keeps what it got, and gets more. One that stands still holds nobody up.
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
    // The program stands still, with all that it has.
    for _ in 0..60 {
        other.next().await;
    }
    kept.iter().for_each(|frame| check(frame));
    keeps.until(|frame| frame.is_shared).await;
}

/// After a restart of the edge both share again.
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

/// Whoever has sharing switched off decodes by itself, however many there are.
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

/// A client of the local protocol that takes pictures, says that it has mapped the memory, and never frees a place: it gets three, and
/// others as many as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_lets_go_holds_three_pictures() {
    let running = Running::new().await;
    let Address::Unix(path) = &running.unix else { panic!("a socket") };
    let mut greedy = LocalConnection::open(path).await.unwrap();
    let accept = [Encoding::H264, Encoding::Jpeg].map(|encoding| encoding as i32).to_vec();
    let request =
        pb::SubscribeRequest { pattern: "dock/*".into(), accept_encodings: accept, ..Default::default() };
    greedy.writer.write(Kind::Subscribe, &request, Bytes::new()).await.unwrap();
    greedy.writer.write(Kind::TakesPictures, &(), Bytes::new()).await.unwrap();
    let hold = async {
        let (mut places, mut passed) = (Vec::new(), 0);
        while passed < 30 {
            let packet = within(greedy.reader.read()).await.unwrap().expect("it is served");
            match (packet.kind, packet.shared) {
                (Kind::Memory, _) => {
                    let number = packet.payload.slice(..1);
                    greedy.writer.write(Kind::Mapped, &(), number).await.unwrap();
                }
                (Kind::Picture, Some(place)) => {
                    assert!(place.memory > 127, "{place:?}");
                    assert!(!places.contains(&place), "a place is given twice: {places:?}");
                    places.push(place);
                }
                (Kind::Picture, None) => passed += 1,
                _ => {}
            }
        }
        // Pictures that grow get a larger memory in place of the one before.
        for memory in 128..=u8::MAX {
            let held = places.iter().filter(|place| place.memory == memory).count();
            assert!(held <= 3, "{places:?}");
        }
        assert!(!places.is_empty());
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
    // It cannot send pictures of its own, nor make the broker read any.
    greedy.writer.write(Kind::Picture, &(), Bytes::new()).await.unwrap();
    let told = within(async {
        loop {
            let packet = greedy.reader.read().await.unwrap().expect("an answer");
            match packet.decode::<pb::SubscribeEvent>(Kind::SubscribeEvent) {
                Ok(pb::SubscribeEvent { event: Some(Told::Frame(_)) }) => {}
                Err(PacketError::Refused(refused)) => return refused,
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(told.reason, "MALFORMED");
}
