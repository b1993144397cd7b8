//! The decoders of a subscription, with a real encoder before them.

use std::sync::Mutex;

use mez_core::frame::{FrameId, Reference};
use mez_core::setting::Setting;
use mez_core::units::Instant;
use mez_media::stream::{Outcome, Request, Source, StreamEncoder};
use mez_media::{ImageView, ImageViewMut, PixelFormat};

use super::*;
use crate::api::pb;
use crate::client::frame::BrokerClock;

const SIZE: (u32, u32) = (64, 48);

/// The output: frames, and how often a new chain was requested.
#[derive(Default)]
struct Out {
    frames: Mutex<Vec<ReceivedFrame>>,
    restarts: Mutex<u32>,
}

impl Sink for Out {
    fn put(&self, frame: Box<ReceivedFrame>) {
        self.frames.lock().unwrap().push(*frame);
    }
    fn restart(&self, camera: &CameraName) {
        assert_eq!(camera.as_str(), "dock/cam1");
        *self.restarts.lock().unwrap() += 1;
    }
}

impl Out {
    /// Number, encoding and skip count of each frame in the output.
    fn frames(&self) -> Vec<(u64, Encoding, u64)> {
        let frames = self.frames.lock().unwrap();
        let of =
            |frame: &ReceivedFrame| (frame.meta.id.sequence.0, frame.meta.encoding, frame.skipped.total());
        frames.iter().map(of).collect()
    }
}

/// A camera's codec.
struct Camera {
    encoder: StreamEncoder,
    next: u64,
}

impl Camera {
    fn new() -> Self {
        Self { encoder: StreamEncoder::new(1 << 20).unwrap(), next: 0 }
    }

    /// A picture of one shade, which is twice its number.
    fn frame(&mut self, rung: &str, reference: Reference) -> Box<ReceivedFrame> {
        let (sequence, setting) = (self.next, rung.parse::<Setting>().unwrap());
        self.next += 1;
        let pixels = vec![sequence as u8 * 2; (SIZE.0 * SIZE.1) as usize];
        let view = ImageView::packed(&pixels, SIZE.0, SIZE.1, PixelFormat::Gray8).unwrap();
        let request = Request {
            sequence: Sequence(sequence),
            captured: Instant::from_nanos(sequence * 66_000_000),
            setting: &setting,
            bytes_max: None,
            reference,
        };
        let Outcome::Frame(made) = self.encoder.encode(&Source::Pixels(view), &request).unwrap() else {
            panic!("{rung} leaves nothing out");
        };
        let (reference, refers) = match made.chain.reference {
            Reference::Independent => (pb::Reference::Independent, None),
            Reference::Previous => (pb::Reference::Previous, None),
            Reference::Acknowledged(refers) => (pb::Reference::Acknowledged, Some(refers.0)),
        };
        let message = pb::Frame {
            camera: "dock/cam1".into(),
            epoch: 1,
            sequence,
            encoding: made.encoding as i32,
            rung: rung.into(),
            width: made.width,
            height: made.height,
            chain_sequence: made.chain.chain.0,
            index_in_chain: made.chain.index,
            reference: reference as i32,
            reference_sequence: refers,
            payload: made.payload,
            ..Default::default()
        };
        Box::new(ReceivedFrame::from_message(message, Instant::ZERO, BrokerClock::Same).unwrap())
    }

    fn chained(&mut self) -> Box<ReceivedFrame> {
        self.frame("h264/q24", Reference::Previous)
    }
}

/// The picture is the one that was published under its number, in blue, green and red.
fn check(frame: &ReceivedFrame) {
    assert_eq!((frame.meta.width, frame.meta.height), SIZE);
    assert_eq!(frame.meta.encoding, Encoding::H264, "what came stays what it is");
    assert!(!frame.payload.is_empty());
    let mut pixels = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
    frame.show(&mut ImageViewMut::packed(&mut pixels, SIZE.0, SIZE.1, PixelFormat::Bgr8).unwrap()).unwrap();
    let shade = i32::from(pixels[0]);
    let published = frame.meta.id.sequence.0 as i32 * 2;
    assert!((shade - published).abs() <= 4, "{shade} instead of {published}");
    assert_eq!(frame.meta.rung.as_str(), "h264/q24");
}

#[tokio::test]
async fn every_frame_of_a_chain_becomes_a_picture() {
    let (out, mut camera) = (Arc::new(Out::default()), Camera::new());
    let mut decoders = ChainDecoders::new(true, Arc::clone(&out));
    for _ in 0..20 {
        decoders.take(camera.chained(), Shared::Nothing).await;
    }
    let frames = std::mem::take(&mut *out.frames.lock().unwrap());
    assert_eq!(frames.len(), 20, "each is there when the next is asked for");
    frames.iter().for_each(check);
    assert_eq!(*out.restarts.lock().unwrap(), 0);
}

/// Pictures that nobody waits for are not made, but their frames are decoded and counted. Stills keep their place in the order.
#[tokio::test]
async fn the_newest_picture_wins_and_order_is_kept() {
    let (out, mut camera) = (Arc::new(Out::default()), Camera::new());
    let mut decoders = ChainDecoders::new(false, Arc::clone(&out));
    for place in 0..60 {
        let frame =
            if place % 7 == 3 { camera.frame("jpeg/q80/420", Reference::Previous) } else { camera.chained() };
        decoders.take(frame, Shared::Nothing).await;
    }
    let owed = decoders.finish().await;
    let frames = out.frames();
    assert!(frames.is_sorted_by_key(|(sequence, ..)| *sequence), "{frames:?}");
    let stills = frames.iter().filter(|(_, encoding, _)| *encoding == Encoding::Jpeg).count();
    assert_eq!(stills, (0..60).filter(|place| place % 7 == 3).count(), "no still is waited for");
    let accounted: u64 = frames.iter().map(|(.., skipped)| 1 + skipped).sum();
    assert_eq!(accounted, 60);
    assert_eq!(
        (frames.last().unwrap().0, owed.values().map(|owed| owed.skipped.total()).sum::<u64>()),
        (59, 0)
    );
    let frames = out.frames.lock().unwrap();
    frames.iter().filter(|frame| frame.meta.encoding == Encoding::H264).for_each(check);
    assert!(frames.iter().all(|frame| frame.skipped.of(SkipReason::NotDecoded) == 0), "all are decoded");
    assert_eq!(*out.restarts.lock().unwrap(), 0);
}

/// If every third picture is wanted, all frames are decoded, and a third of the pictures is kept.
#[test]
fn pictures_are_kept_of_what_is_wanted() {
    let (mut camera, mut decode) = (Camera::new(), decoder());
    for place in 0..9 {
        let mut frame = camera.chained();
        let wanted = place % 3 == 2;
        let (sequence, encoding) = (frame.meta.id.sequence, frame.meta.encoding);
        let (chain, payload) = (frame.meta.chain, frame.payload.clone());
        let task = Task { encoding, sequence, chain, payload, afresh: false, wanted };
        let picture = decode(task).unwrap();
        assert_eq!(picture.is_some(), wanted, "{place}");
        if let Some(picture) = picture {
            frame.picture = Some(Arc::new(picture));
            check(&frame);
        }
    }
}

/// A damaged frame costs itself and the frames that need it. The loss is counted, and a new chain is requested, which gives pictures again.
#[tokio::test]
async fn a_damaged_frame_costs_its_chain_and_is_accounted_for() {
    let (out, mut camera) = (Arc::new(Out::default()), Camera::new());
    let mut decoders = ChainDecoders::new(true, Arc::clone(&out));
    for place in 0..12 {
        let mut frame = match place {
            8 => camera.frame("h264/q24", Reference::Independent),
            _ => camera.chained(),
        };
        if place == 4 {
            frame.payload = vec![0xa5; frame.payload.len()].into();
        }
        decoders.take(frame, Shared::Nothing).await;
    }
    let shown: Vec<(u64, u64)> =
        out.frames().iter().map(|(sequence, _, skipped)| (*sequence, *skipped)).collect();
    assert_eq!(shown, [(0, 0), (1, 0), (2, 0), (3, 0), (8, 4), (9, 0), (10, 0), (11, 0)]);
    assert_eq!(out.frames.lock().unwrap()[4].skipped.of(SkipReason::NotDecoded), 4);
    assert_eq!(*out.restarts.lock().unwrap(), 4, "whoever is asked sees to it that it is not too often");
    // The last failure remains in the counts.
    let mut frame = camera.chained();
    frame.payload = Bytes::from_static(b"nothing");
    decoders.take(frame, Shared::Nothing).await;
    let owed = decoders.finish().await;
    assert_eq!(owed[&"dock/cam1".parse().unwrap()].skipped.of(SkipReason::NotDecoded), 1);
}

/// A decoder that panics does not affect others, and is started again.
#[tokio::test]
async fn a_decoder_that_panics_costs_its_frame() {
    let (out, mut camera) = (Arc::new(Out::default()), Camera::new());
    let unwell = Worker::new("unwell", || {
        let mut decode = decoder();
        move |task: Task| {
            assert!(task.sequence != Sequence(2), "planned");
            decode(task)
        }
    });
    let sink = Arc::clone(&out);
    let decoder = Decoder::start("dock/cam1".parse().unwrap(), unwell, true, sink).unwrap();
    for place in 0..6 {
        let reference = if place == 4 { Reference::Independent } else { Reference::Previous };
        assert!(decoder.give(camera.frame("h264/q24", reference), Shared::Nothing, true).await.is_ok());
    }
    let shown: Vec<(u64, u64)> =
        out.frames().iter().map(|(sequence, _, skipped)| (*sequence, *skipped)).collect();
    assert_eq!(shown, [(0, 0), (1, 0), (4, 2), (5, 0)]);
}

/// After a restart of the camera, sequences start at zero, and new chains do not depend on old ones.
#[tokio::test]
async fn another_epoch_begins_anew() {
    let out = Arc::new(Out::default());
    let mut decoders = ChainDecoders::new(true, Arc::clone(&out));
    for epoch in 1..3 {
        let mut camera = Camera::new();
        for _ in 0..3 {
            let mut frame = camera.chained();
            frame.meta.id = FrameId { epoch: Epoch(epoch), ..frame.meta.id };
            decoders.take(frame, Shared::Nothing).await;
        }
    }
    assert_eq!(out.frames().len(), 6);
}
