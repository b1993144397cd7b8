//! Pictures that show their number, and a network that is too slow for independent pictures.
#![allow(dead_code, reason = "every test uses another part")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mez_core::broker::Published;
use mez_core::frame::Encoding;
use mez_media::jpeg::{Decoder, Encoder, Sampling};
use mez_media::{Image, ImageView, PixelFormat};
use tokio::net::UdpSocket;
use tokio::time::Instant;

pub const SIZE: (u32, u32) = (320, 240);
/// The number of blocks in the top row that encode a picture's number.
pub const BITS: u32 = 16;
/// The time between two pictures.
pub const INTERVAL: Duration = Duration::from_millis(30);
const LINK_BITS_PER_SECOND: u64 = 2_000_000;
/// Packets beyond this queueing delay are dropped.
const QUEUE_MAX: Duration = Duration::from_millis(300);
const LOST_ONCE_IN: u64 = 150;

/// A slow network in front of an edge. Returns its address. Nothing passes while `cut` is set.
pub async fn slow_network(edge: SocketAddr, cut: Arc<AtomicBool>) -> SocketAddr {
    network(edge, cut, Arc::new(AtomicU64::new(LINK_BITS_PER_SECOND))).await
}

/// A network with a capacity in bits per second that may change.
pub async fn network(edge: SocketAddr, cut: Arc<AtomicBool>, capacity: Arc<AtomicU64>) -> SocketAddr {
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let outside = Arc::new(UdpSocket::bind(loopback).await.unwrap());
    let address = outside.local_addr().unwrap();
    tokio::spawn(async move {
        let mut cameras = std::collections::HashMap::<SocketAddr, Arc<UdpSocket>>::new();
        let (mut free, mut random) = (Instant::now(), 1u64);
        let mut packet = vec![0; 65_536];
        loop {
            let Ok((bytes, camera)) = outside.recv_from(&mut packet).await else { continue };
            let inside = match cameras.get(&camera) {
                Some(inside) => Arc::clone(inside),
                None => {
                    let inside = way_back(edge, (Arc::clone(&outside), camera), Arc::clone(&cut)).await;
                    cameras.insert(camera, Arc::clone(&inside));
                    inside
                }
            };
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let now = Instant::now();
            let lost = (random >> 33).is_multiple_of(LOST_ONCE_IN) || cut.load(Ordering::Relaxed);
            if lost || free.saturating_duration_since(now) > QUEUE_MAX {
                continue;
            }
            free = free.max(now)
                + Duration::from_nanos(bytes as u64 * 8_000_000_000 / capacity.load(Ordering::Relaxed));
            let (packet, at) = (packet[..bytes].to_vec(), free);
            tokio::spawn(async move {
                tokio::time::sleep_until(at).await;
                let _ = inside.send(&packet).await;
            });
        }
    });
    address
}

/// A socket to the edge for one camera. Packets from the edge go to the camera.
async fn way_back(
    edge: SocketAddr,
    (outside, camera): (Arc<UdpSocket>, SocketAddr),
    cut: Arc<AtomicBool>,
) -> Arc<UdpSocket> {
    let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    inside.connect(edge).await.unwrap();
    let back = Arc::clone(&inside);
    tokio::spawn(async move {
        let mut packet = vec![0; 65_536];
        loop {
            match back.recv(&mut packet).await {
                Ok(bytes) if !cut.load(Ordering::Relaxed) => {
                    let _ = outside.send_to(&packet[..bytes], camera).await;
                }
                Ok(_) => {}
                // The edge may be absent for a while.
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    });
    inside
}

/// The brightness of a picture: a slope with texture, a moving square, and the number in blocks.
pub fn pixels(number: u64) -> Vec<u8> {
    let (width, height) = SIZE;
    let block = width / BITS;
    let pixel = |at: u32| {
        let (x, y) = (at % width, at / width);
        let square = (number as u32 * 3) % (width - 40);
        match (x, y) {
            (x, 0..32) => 40 + 170 * (number >> (x / block) & 1) as u8,
            (x, 120..160) if (square..square + 40).contains(&x) => 230,
            _ => (60 + (x + y) / 5 + ((x ^ y) & 7) * 2) as u8,
        }
    };
    (0..width * height).map(pixel).collect()
}

pub fn picture(number: u64) -> Published {
    let (width, height) = SIZE;
    let pixels = pixels(number);
    let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
    let payload = Encoder::new(95, Sampling::Yuv420).unwrap().encode(&view).unwrap();
    Published { payload, encoding: Encoding::Jpeg, width, height, captured: None }
}

/// Asserts that pixels (blue, green, red) are the picture with this number, at any size.
pub fn shows(bgr: &[u8], (width, height): (u32, u32), expected: u64, what: &str) {
    let shown = |x: u32, y: u32| f64::from(bgr[((y * width + x) * 3 + 1) as usize]);
    // The middle of each block at any size.
    let bit = |bit: u32| shown((2 * bit + 1) * width / (2 * BITS), 16 * height / SIZE.1) > 125.0;
    let number = (0..BITS).filter(|at| bit(*at)).fold(0u64, |number, at| number | 1 << at);
    assert_eq!(number, expected, "{what} shows another picture");
    let published = pixels(number);
    let mut squares = 0.0;
    for y in 0..height {
        for x in 0..width {
            // The source pixel at the middle of this pixel's area.
            let source = |at: u32, from: u32, to: u32| (2 * at + 1) * to / (2 * from);
            let (from_x, from_y) = (source(x, width, SIZE.0), source(y, height, SIZE.1));
            let was = f64::from(published[(from_y * SIZE.0 + from_x) as usize]);
            squares += (shown(x, y) - was).powi(2);
        }
    }
    let psnr = 10.0 * (255.0f64.powi(2) * f64::from(width * height) / squares.max(1.0)).log10();
    assert!(psnr > 20.0, "{what} has {psnr:.1} dB");
}

/// Asserts that a JPEG is the picture with this number, and has the stated size.
pub fn jpeg_shows(jpeg: &[u8], size: (u32, u32), expected: u64, what: &str) {
    let mut image = Image::empty();
    Decoder::new(1 << 20).decode_bgr(jpeg, &mut image).unwrap();
    assert_eq!((image.width(), image.height()), size, "{what}");
    shows(image.data(), size, expected, what);
}
