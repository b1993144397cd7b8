//! Encoding and decoding preserve sizes, strides, formats, planes and settings.

mod common;

use common::{hash, jpeg, picture};
use mez_media::jpeg::{Chroma, Decoder, EncodeError, Encoder, Process, SIDE_MAX, Sampling, probe};
use mez_media::{Image, ImageView, ImageViewMut, PixelFormat, Yuv420View};
use proptest::prelude::*;

const FORMATS: [PixelFormat; 3] = [PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Bgra8];
const SAMPLINGS: [Sampling; 4] = [Sampling::Grey, Sampling::Yuv420, Sampling::Yuv422, Sampling::Yuv444];

fn mean_difference(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(&a, &b)| f64::from(a.abs_diff(b))).sum::<f64>() / a.len() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any size, stride, format and sampling is preserved, and the bytes between rows have no influence.
    #[test]
    fn every_size_and_stride_survives(
        width in 1u32..70,
        height in 1u32..70,
        gap in 0usize..9,
        format in prop::sample::select(&FORMATS[..]),
        sampling in prop::sample::select(&SAMPLINGS[..]),
        filler in any::<u8>(),
        seed in any::<u32>(),
    ) {
        let packed = picture(width, height, format, seed % 1000);
        let row_bytes = width as usize * format.bytes_per_pixel();
        let stride = row_bytes + gap;
        let mut strided = vec![filler; stride * height as usize - gap];
        for (row, source) in packed.chunks_exact(row_bytes).enumerate() {
            strided[row * stride..row * stride + row_bytes].copy_from_slice(source);
        }

        let mut encoder = Encoder::new(95, sampling).unwrap();
        let from_packed = encoder.encode(&ImageView::packed(&packed, width, height, format).unwrap()).unwrap();
        let from_strided = encoder.encode(&ImageView::new(&strided, width, height, stride, format).unwrap()).unwrap();
        prop_assert_eq!(&from_packed, &from_strided);

        let info = probe(&from_packed).unwrap();
        prop_assert_eq!((info.width, info.height, info.bits_per_sample), (width, height, 8));
        let expected_chroma = match (format, sampling) {
            (PixelFormat::Gray8, _) | (_, Sampling::Grey) => Chroma::Grey,
            (_, Sampling::Yuv420) => Chroma::Yuv420,
            (_, Sampling::Yuv422) => Chroma::Yuv422,
            (_, Sampling::Yuv444) => Chroma::Yuv444,
        };
        prop_assert_eq!(info.chroma, expected_chroma);

        let mut decoder = Decoder::default();
        let mut image = Image::empty();
        prop_assert_eq!(decoder.decode(&from_packed, format, &mut image).unwrap(), info);
        prop_assert_eq!((image.width(), image.height(), image.format()), (width, height, format));

        // Decoding into a buffer with gaps gives the same pixels, and does not touch the gaps.
        let mut buffer = vec![filler; stride * height as usize];
        let mut view = ImageViewMut::new(&mut buffer, width, height, stride, format).unwrap();
        decoder.decode_into(&from_packed, &mut view).unwrap();
        // A single row has no gap: its stride is ignored.
        for (row, pixels) in image.data().chunks_exact(row_bytes).enumerate() {
            let (buffer_pixels, gap) = buffer[row * stride..(row + 1) * stride].split_at(row_bytes);
            prop_assert_eq!(buffer_pixels, pixels);
            prop_assert!(gap.iter().all(|&byte| byte == filler));
        }

        // With chroma at full resolution, the picture itself must be preserved.
        if expected_chroma == Chroma::Yuv444 || format == PixelFormat::Gray8 {
            let mut opaque = packed.clone();
            if format == PixelFormat::Bgra8 {
                opaque.chunks_exact_mut(4).for_each(|pixel| pixel[3] = 255);
            }
            let difference = mean_difference(&opaque, image.data());
            prop_assert!(difference < 4.0, "mean difference {}", difference);
        }
    }

    /// Planes of a video decoder are preserved sample for sample, as far as quality 100
    /// allows, also with odd sides. Nothing outside the given planes has any influence.
    #[test]
    fn planes_survive(width in 1u32..70, height in 1u32..70, filler in any::<u8>(), seed in any::<u32>()) {
        let luma = picture(width, height, PixelFormat::Gray8, seed % 1000);
        let (chroma_width, chroma_height) = (width.div_ceil(2), height.div_ceil(2));
        let mut planes = luma.clone();
        for y in 0..chroma_height {
            planes.extend((0..chroma_width).map(|x| (100 + (x + y) % 40) as u8));
        }
        for y in 0..chroma_height {
            planes.extend((0..chroma_width).map(|x| (120 + (x * 2 + y) % 30) as u8));
        }
        prop_assert_eq!(planes.len(), Yuv420View::len_bytes(width, height).unwrap());

        let mut encoder = Encoder::new(100, Sampling::Yuv420).unwrap();
        let encoded = encoder.encode_yuv420(&Yuv420View::packed(&planes, width, height).unwrap()).unwrap();
        let info = probe(&encoded).unwrap();
        prop_assert_eq!((info.width, info.height, info.chroma), (width, height, Chroma::Yuv420));

        let mut longer = planes.clone();
        longer.extend_from_slice(&[filler; 64]);
        let again = encoder.encode_yuv420(&Yuv420View::packed(&longer, width, height).unwrap()).unwrap();
        prop_assert_eq!(&encoded, &again);

        // Decoding to grey gives the file's luma.
        let mut image = Image::empty();
        Decoder::default().decode(&encoded, PixelFormat::Gray8, &mut image).unwrap();
        for (at, (&expected, &found)) in luma.iter().zip(image.data()).enumerate() {
            prop_assert!(expected.abs_diff(found) <= 3, "sample {}: {} became {}", at, expected, found);
        }

        // Grey drops chroma and keeps luma.
        encoder.set_sampling(Sampling::Grey);
        let grey = encoder.encode_yuv420(&Yuv420View::packed(&planes, width, height).unwrap()).unwrap();
        prop_assert_eq!(probe(&grey).unwrap().chroma, Chroma::Grey);
        Decoder::default().decode(&grey, PixelFormat::Gray8, &mut image).unwrap();
        prop_assert!(mean_difference(&luma, image.data()) < 1.5);
    }
}

/// The conversion from Y′CbCr to BGR is that of JFIF: full range, BT.601. A wrong matrix or range shows in every saturated colour.
#[test]
fn planes_have_the_colours_of_jfif() {
    for (bgr, yuv) in [
        ([0u8, 0, 255], [76u8, 85, 255]),
        ([0, 255, 0], [150, 44, 21]),
        ([255, 0, 0], [29, 255, 107]),
        ([255, 255, 255], [255, 128, 128]),
        ([0, 0, 0], [0, 128, 128]),
    ] {
        let mut planes = vec![yuv[0]; 256];
        planes.extend([yuv[1]; 64]);
        planes.extend([yuv[2]; 64]);
        let mut encoder = Encoder::new(100, Sampling::Yuv420).unwrap();
        let encoded = encoder.encode_yuv420(&Yuv420View::packed(&planes, 16, 16).unwrap()).unwrap();
        let mut image = Image::empty();
        Decoder::default().decode_bgr(&encoded, &mut image).unwrap();
        for pixel in image.data().chunks_exact(3) {
            assert!(
                pixel.iter().zip(bgr).all(|(&a, b)| a.abs_diff(b) <= 3),
                "{yuv:?} became {pixel:?}, not {bgr:?}"
            );
        }
    }
}

/// The same pixels give the same bytes, and the same bytes the same pixels, on every machine.
/// The results are recorded, to detect an upgrade of the codec that changes a frame.
#[test]
fn results_are_those_that_were_recorded() {
    let pixels = picture(123, 77, PixelFormat::Bgr8, 1);
    let view = ImageView::packed(&pixels, 123, 77, PixelFormat::Bgr8).unwrap();
    let mut found = Vec::new();
    for sampling in SAMPLINGS {
        let encoded = Encoder::new(80, sampling).unwrap().encode(&view).unwrap();
        let mut image = Image::empty();
        Decoder::default().decode_bgr(&encoded, &mut image).unwrap();
        found.push((sampling, encoded.len(), hash(&encoded), hash(image.data())));
    }
    assert_eq!(found, GOLDEN);
}

/// Sampling, length of the JPEG in bytes, FNV-1a of the JPEG, FNV-1a of the decoded BGR pixels.
const GOLDEN: [(Sampling, usize, u64, u64); 4] = [
    (Sampling::Grey, 1589, 10_161_754_096_077_091_638, 14_347_055_231_406_889_223),
    (Sampling::Yuv420, 2240, 8_358_785_133_958_903_970, 9_461_740_418_241_282_098),
    (Sampling::Yuv422, 2531, 4_523_611_187_092_894_687, 2_943_482_335_597_344_811),
    (Sampling::Yuv444, 2973, 8_393_931_021_132_745_057, 17_744_508_581_570_049_820),
];

/// An encoder that was used before gives the same bytes as a new one.
#[test]
fn an_encoder_carries_nothing_over() {
    let mut used = Encoder::new(30, Sampling::Yuv444).unwrap();
    let big = picture(400, 300, PixelFormat::Bgra8, 9);
    used.encode(&ImageView::packed(&big, 400, 300, PixelFormat::Bgra8).unwrap()).unwrap();
    let planes = vec![90; Yuv420View::len_bytes(33, 15).unwrap()];
    used.encode_yuv420(&Yuv420View::packed(&planes, 33, 15).unwrap()).unwrap();
    used.set_quality(80).unwrap();
    used.set_sampling(Sampling::Yuv422);
    let mut new = Encoder::new(80, Sampling::Yuv422).unwrap();
    for (width, height) in [(64, 48), (1, 1), (33, 17)] {
        let pixels = picture(width, height, PixelFormat::Bgr8, 3);
        let view = ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap();
        assert_eq!(used.encode(&view).unwrap(), new.encode(&view).unwrap());
    }
}

#[test]
fn quality_is_checked_and_matters() {
    assert_eq!(Encoder::new(0, Sampling::Grey).unwrap_err(), EncodeError::Quality { quality: 0 });
    let mut encoder = Encoder::new(1, Sampling::Yuv420).unwrap();
    assert_eq!(encoder.set_quality(101).unwrap_err(), EncodeError::Quality { quality: 101 });
    assert_eq!(encoder.quality(), 1, "a refused quality changes nothing");
    let pixels = picture(64, 64, PixelFormat::Bgr8, 2);
    let view = ImageView::packed(&pixels, 64, 64, PixelFormat::Bgr8).unwrap();
    let sizes: Vec<usize> = [1, 50, 80, 100]
        .map(|quality| {
            encoder.set_quality(quality).unwrap();
            encoder.encode(&view).unwrap().len()
        })
        .to_vec();
    assert!(sizes.is_sorted() && sizes[0] * 4 < sizes[3], "{sizes:?}");
}

/// The longest side of the format is encoded and decoded. One more pixel is refused with an error that names it.
#[test]
fn the_longest_side_is_the_limit() {
    let pixels = vec![128; SIDE_MAX as usize + 1];
    let mut encoder = Encoder::new(80, Sampling::Yuv420).unwrap();
    for (width, height) in [(SIDE_MAX, 1), (1, SIDE_MAX)] {
        let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
        let encoded = encoder.encode(&view).unwrap();
        let mut image = Image::empty();
        Decoder::default().decode(&encoded, PixelFormat::Gray8, &mut image).unwrap();
        assert!(image.data().iter().all(|&pixel| pixel == 128));
    }
    for (width, height) in [(SIDE_MAX + 1, 1), (1, SIDE_MAX + 1)] {
        let view = ImageView::packed(&pixels, width, height, PixelFormat::Gray8).unwrap();
        assert_eq!(encoder.encode(&view).unwrap_err(), EncodeError::TooLarge { width, height });
    }
}

/// Noise at quality 100 with full chroma is the largest possible JPEG. The encoder's buffer is large enough.
#[test]
fn the_worst_image_fits() {
    for (width, height) in [(1, 1), (8, 8), (9, 9), (65, 63)] {
        let mut state = 1u32;
        let mut pixels = Vec::new();
        for _ in 0..width * height * 3 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            pixels.push(if state >> 31 == 0 { 0 } else { 255 });
        }
        let view = ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap();
        for sampling in SAMPLINGS {
            let encoded = Encoder::new(100, sampling).unwrap().encode(&view).unwrap();
            assert_eq!(probe(&encoded).unwrap().width, width);
        }
    }
}

#[test]
fn progressive_and_arithmetic_images_are_decoded() {
    let baseline = common::native_jpeg(70, 50, turbojpeg::PixelFormat::BGR, |_| {});
    let progressive = common::native_jpeg(70, 50, turbojpeg::PixelFormat::BGR, |compressor| {
        compressor.set_progressive(true).unwrap();
    });
    let arithmetic = common::native_jpeg(70, 50, turbojpeg::PixelFormat::BGR, |compressor| {
        compressor.set_arithmetic(true).unwrap();
    });
    assert_eq!(probe(&progressive).unwrap().process, Process::Progressive);
    let decoded = [&baseline, &progressive, &arithmetic].map(|jpeg| {
        let mut image = Image::empty();
        Decoder::default().decode_bgr(jpeg, &mut image).unwrap();
        image
    });
    assert_eq!(decoded[0], decoded[1], "the same coefficients in another order");
    assert_eq!(decoded[0], decoded[2], "the same coefficients coded otherwise");
}

/// Motion JPEG may omit the Huffman tables. The pixels of such a frame must not depend on earlier frames.
#[test]
fn a_frame_without_tables_gets_the_standard_ones() {
    let whole = jpeg(64, 48, 4);
    let bare = common::without_segments(&whole, 0xC4);
    assert!(bare.len() < whole.len());
    let other_tables = common::native_jpeg(64, 48, turbojpeg::PixelFormat::BGR, |compressor| {
        compressor.set_optimize(true).unwrap();
    });
    let mut decoder = Decoder::default();
    let (mut expected, mut found) = (Image::empty(), Image::empty());
    decoder.decode_bgr(&whole, &mut expected).unwrap();
    decoder.decode_bgr(&other_tables, &mut found).unwrap();
    decoder.decode_bgr(&bare, &mut found).unwrap();
    assert_eq!(expected, found);
    // There are no standard quantisation tables. Without them there is no picture, whatever was decoded before.
    assert!(decoder.decode_bgr(&common::without_segments(&whole, 0xDB), &mut found).is_err());
}
