//! H.264: decoding reproduces the coded picture, within its budget, whatever was lost or thrown away.

use mez_core::setting::Quantiser;
use mez_media::h264::{H264Decoder, H264Encoder, H264Error, H264Frame, Library, Wanted};
use mez_media::{Image, ImageView, PixelFormat, Yuv420};

/// A square that moves over a textured background. `shake` moves the whole picture.
fn scene(width: u32, height: u32, at: u32, shake: u32) -> Yuv420 {
    let mut pixels = Vec::with_capacity((width * height * 3) as usize);
    for y in 0..height {
        for x in 0..width {
            let (u, v) = (x + shake, y + shake / 2);
            let texture = u.wrapping_mul(0x9E37_79B9).wrapping_add(v.wrapping_mul(0x85EB_CA6B));
            let noise = (texture ^ texture >> 15).wrapping_mul(0x2C1B_3C6D) >> 27;
            let inside = (x + width - at * 4 % width) % width < width / 6 && y > height / 3 && y < height / 2;
            let base = if inside { 210 } else { 60 + (u % 64) + noise };
            pixels.extend([base as u8, (base / 2 + v % 90) as u8, 200u8.saturating_sub(base as u8)]);
        }
    }
    let mut planes = Yuv420::empty();
    planes.fill_from(&ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap());
    planes
}

fn encode(
    encoder: &mut H264Encoder,
    at: u32,
    number: u64,
    wanted: Wanted,
    most: Option<usize>,
) -> (Yuv420, H264Frame) {
    let (width, height) = encoder.size();
    let picture = scene(width, height, at, 0);
    let frame =
        encoder.encode(&picture.view().unwrap(), number, wanted, Quantiser::clamped(26), most).unwrap();
    (picture, frame)
}

/// Mean difference between the decoded image and the coded picture.
fn distance(image: &Image, picture: &Yuv420) -> f64 {
    let mut expected = Image::empty();
    picture.to_bgr(&mut expected);
    assert_eq!((image.width(), image.height()), (expected.width(), expected.height()));
    let sum: u64 = image.data().iter().zip(expected.data()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / image.data().len() as f64
}

#[test]
fn frames_come_back() {
    // A side that is not a multiple of sixteen is cropped.
    for (library, size) in Library::ALL.iter().flat_map(|library| [(library, (96, 64)), (library, (74, 50))])
    {
        let mut encoder = H264Encoder::by(*library, size.0, size.1).unwrap();
        let mut decoder = H264Decoder::new(1 << 16);
        for number in 0..40 {
            let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
            let (picture, frame) = encode(&mut encoder, number as u32, number, wanted, None);
            assert_eq!(frame.refers, number.checked_sub(1));
            let image = decoder.decode(&frame.payload, number, frame.refers).unwrap();
            let distance = distance(image, &picture);
            assert!(distance < 6.0, "{library}, {number}: {distance}");
            encoder.acknowledge(number);
        }
    }
}

/// Pictures are thrown away and coded again. Those that are sent can still be decoded.
#[test]
fn budgets_hold_and_nothing_drifts() {
    for library in Library::ALL {
        let mut encoder = H264Encoder::by(*library, 160, 96).unwrap();
        let mut decoder = H264Decoder::new(1 << 16);
        let (mut again, mut chains) = (0, 0);
        for number in 0..200u64 {
            let most = [3000, 700, 1500, 400][(number / 13 % 4) as usize];
            let wanted = if number == 0 { Wanted::Independent } else { Wanted::Previous };
            let shake = if number % 50 > 40 { number as u32 } else { 0 };
            let picture = scene(160, 96, number as u32, shake);
            let frame = encoder
                .encode(&picture.view().unwrap(), number, wanted, Quantiser::clamped(20), Some(most))
                .unwrap();
            let bytes = frame.payload.len();
            assert!(frame.fits && bytes <= most, "{library}, {number}: {bytes} of {most}");
            again += u32::from(frame.attempts > 1);
            chains += u32::from(frame.refers.is_none());
            let image = decoder.decode(&frame.payload, number, frame.refers).unwrap();
            let distance = distance(image, &picture);
            assert!(distance < 25.0, "{library}, {number}: {distance}");
            encoder.acknowledge(number);
        }
        assert!(again > 10, "{library}: {again} pictures did not fit at once");
        assert_eq!(chains, 1, "{library}: no independent picture was needed");
    }
}

/// A rung names the quantiser, so the encoder must use it. Six steps coarser double the step size, and take fewer bytes.
#[test]
fn every_quantiser_is_what_it_says() {
    for library in Library::ALL {
        let mut encoder = H264Encoder::by(*library, 160, 96).unwrap();
        let picture = scene(160, 96, 0, 0);
        let sizes = (10..=51u8).map(|quantiser| {
            let view = picture.view().unwrap();
            let number = quantiser.into();
            let quantiser = Quantiser::clamped(quantiser);
            let frame = encoder.encode(&view, number, Wanted::Independent, quantiser, None).unwrap();
            assert_eq!(frame.quantiser, quantiser);
            frame.payload.len()
        });
        let sizes: Vec<usize> = sizes.collect();
        // At the coarsest quantisers there is little left to save.
        let halves = sizes.iter().zip(&sizes[6..]).take(20).all(|(fine, coarse)| *coarse < fine * 3 / 4);
        let shrinks = sizes.windows(7).all(|seven| seven[6] < seven[0]);
        assert!(halves && shrinks, "{library}: {sizes:?}");
    }
}

#[test]
fn a_size_that_cannot_be_coded_is_refused() {
    for library in Library::ALL {
        for (width, height) in [(0, 0), (14, 64), (65, 64), (64, 63), (4000, 64), (3840, 3840)] {
            let refused = H264Encoder::by(*library, width, height).unwrap_err();
            assert_eq!(refused, H264Error::Size { width, height });
        }
        let mut encoder = H264Encoder::by(*library, 64, 64).unwrap();
        let picture = scene(32, 64, 0, 0);
        let result =
            encoder.encode(&picture.view().unwrap(), 0, Wanted::Independent, Quantiser::clamped(30), None);
        assert!(matches!(result, Err(H264Error::Size { .. })));
    }
}
