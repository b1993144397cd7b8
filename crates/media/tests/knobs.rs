//! Results of every knob are right to the last bit. Figures of OpenCV are from version 4.14.

mod common;

use common::{hash, jpeg, picture};
use mez_core::frame::{Reference, Sequence};
use mez_core::setting::{BoxBlur, ColourSpace, Form, Setting};
use mez_core::units::Instant;
use mez_media::jpeg::{Decoder, Encoder, Sampling, probe};
use mez_media::knobs::{Knobs, Turned, blur, colour};
use mez_media::resize::{Filter, Resizer};
use mez_media::stream::{Outcome, Request, Source, StreamEncoder};
use mez_media::{Image, ImageView, PixelFormat, Yuv420, png};
use proptest::prelude::*;

/// The picture of 53×37 pixels from which OpenCV's figures come.
fn reference() -> Image {
    let mut pixels = Vec::new();
    for y in 0..37u32 {
        for x in 0..53u32 {
            pixels.extend([x * 5 + y * 3, x * x + 7 * y, 255 - x * y % 256].map(|value| (value % 256) as u8));
        }
    }
    Image::from_packed(pixels, 53, 37, PixelFormat::Bgr8).unwrap()
}

fn bgr(pixels: &[[u8; 3]]) -> Image {
    Image::from_packed(pixels.concat(), pixels.len() as u32, 1, PixelFormat::Bgr8).unwrap()
}

fn turn(name: &str, frames: &[Image]) -> Vec<Option<Image>> {
    let Form::Knobs(settings) = name.parse::<Setting>().unwrap().form else { panic!("{name}") };
    let mut knobs = Knobs::new();
    let turned = |frame: &Image| match knobs.turn(&settings, &frame.view().unwrap()).unwrap() {
        Turned::Image(image) => Some(image.clone()),
        Turned::LeftOut { .. } => None,
    };
    frames.iter().map(turned).collect()
}

#[test]
fn blur_grey_and_hsv_are_those_of_opencv() {
    let source = reference();
    let mut image = Image::empty();
    let blurred = [BoxBlur::B5, BoxBlur::B10, BoxBlur::B15].map(|side| {
        blur::blur(&source, side.side(), &mut image);
        hash(image.data())
    });
    let opencv = [15_873_258_525_431_246_838, 7_369_041_705_065_451_169, 14_254_743_345_673_344_920];
    assert_eq!(blurred, opencv);
    colour::convert(&source, ColourSpace::Gray, &mut image);
    assert_eq!((image.format(), hash(image.data())), (PixelFormat::Gray8, 7_452_528_725_879_542_171));
    colour::convert(&source, ColourSpace::Hsv, &mut image);
    assert_eq!(hash(image.data()), 16_739_354_928_803_485_402);
}

#[test]
fn lab_and_luv_are_those_of_opencv_within_one() {
    let source = bgr(&[
        [0, 0, 0],
        [255, 255, 255],
        [128, 128, 128],
        [255, 0, 0],
        [0, 255, 0],
        [0, 0, 255],
        [10, 200, 90],
        [200, 30, 120],
        [3, 2, 1],
        [250, 251, 252],
        [90, 60, 30],
        [17, 99, 180],
    ]);
    let lab = [
        [0, 128, 128],
        [255, 128, 128],
        [137, 128, 128],
        [82, 207, 20],
        [224, 42, 211],
        [136, 208, 195],
        [183, 69, 198],
        [92, 194, 58],
        [1, 128, 127],
        [252, 128, 129],
        [62, 128, 106],
        [128, 156, 183],
    ];
    let luv = [
        [0, 96, 136],
        [255, 96, 136],
        [136, 96, 136],
        [82, 90, 10],
        [223, 37, 241],
        [135, 222, 173],
        [183, 59, 219],
        [92, 108, 39],
        [1, 96, 136],
        [251, 97, 137],
        [62, 88, 112],
        [128, 144, 181],
    ];
    for (space, opencv) in [(ColourSpace::Lab, lab), (ColourSpace::Luv, luv)] {
        let mut image = Image::empty();
        colour::convert(&source, space, &mut image);
        let near =
            image.data().iter().zip(opencv.as_flattened()).all(|(&a, &b): (&u8, &u8)| a.abs_diff(b) <= 1);
        assert!(near, "{space:?}: {:?}", image.data().chunks(3).collect::<Vec<_>>());
    }
}

/// Recorded results, to detect any change of a knob's pixels.
#[test]
fn results_are_those_that_were_recorded() {
    let frames = [1, 1, 2].map(|seed| {
        Image::from_packed(picture(200, 150, PixelFormat::Bgr8, seed), 200, 150, PixelFormat::Bgr8).unwrap()
    });
    let found: Vec<(&str, u64)> = GOLDEN
        .iter()
        .map(|(name, _)| {
            let turned = turn(name, &frames);
            let all: Vec<u8> = turned.iter().flatten().flat_map(|image| image.data()).copied().collect();
            (*name, hash(&all))
        })
        .collect();
    assert_eq!(found, GOLDEN);
}

const GOLDEN: [(&str, u64); 15] = [
    ("knobs/png", 11_382_115_481_518_719_687),
    ("knobs/s68/png", 4_012_495_051_402_960_438),
    ("knobs/s50/png", 6_150_501_451_612_105_186),
    ("knobs/s33/png", 11_835_271_114_106_393_230),
    ("knobs/s25/png", 16_350_456_551_313_693_626),
    ("knobs/gray/png", 1_549_737_111_489_691_785),
    ("knobs/hsv/png", 1_439_025_071_275_740_855),
    ("knobs/lab/png", 14_504_966_587_048_114_806),
    ("knobs/luv/png", 2_089_242_859_690_033_638),
    ("knobs/blur5/png", 11_965_669_431_756_075_147),
    ("knobs/blur8/png", 4_969_756_842_005_165_580),
    ("knobs/moving/png", 4_752_575_584_570_373_962),
    ("knobs/contours/png", 12_799_067_303_345_049_928),
    ("knobs/diff0/png", 2_322_026_230_217_714_233),
    ("knobs/s50/gray/blur10/moving/diff18/png", 1_779_037_022_048_333_922),
];

/// A square that moves over a static background.
fn square(at: u32) -> Image {
    let mut pixels = vec![[90u8, 120, 60]; 100 * 60];
    for y in 20..30 {
        for x in at..at + 10 {
            pixels[y * 100 + x as usize] = [200, 30, 40];
        }
    }
    Image::from_packed(pixels.concat(), 100, 60, PixelFormat::Bgr8).unwrap()
}

#[test]
fn only_what_moves_is_left() {
    let frames = [square(30), square(34), square(34)];
    let moving = turn("knobs/moving/png", &frames);
    assert_eq!(moving[0].as_ref(), Some(&frames[0]), "nothing to compare with: all of it moves");
    let kept = |image: &Image, x: usize, y: usize| image.data()[(y * 100 + x) * 3..][..3] != [0, 0, 0];
    let second = moving[1].as_ref().unwrap();
    // Where the square was, where it is, and three pixels around; not the overlap, which did not change.
    for (x, y, expected) in [(31, 25, true), (42, 25, true), (28, 18, true), (26, 25, false), (50, 50, false)]
    {
        assert_eq!(kept(second, x, y), expected, "{x},{y}");
    }
    assert!(moving[2].as_ref().unwrap().data().iter().all(|&value| value == 0), "what stands still vanishes");
    let contours = turn("knobs/contours/png", &frames);
    let outline = contours[1].as_ref().unwrap();
    assert!(outline.data().iter().all(|&value| value == 0 || value == 255));
    // The rim is three pixels outside of the spot, and the inside is black.
    assert!(kept(outline, 27, 25) && !kept(outline, 29, 25) && !kept(outline, 26, 25));
}

#[test]
fn frames_that_hardly_differ_are_left_out() {
    let sent = |name: &str, frames: &[Image]| -> Vec<bool> {
        turn(name, frames).iter().map(Option::is_some).collect()
    };
    let frames = [square(30), square(30), square(31), square(32), square(33), square(60)];
    // One step changes 20 of 6,000 pixels.
    assert_eq!(sent("knobs/diff0/png", &frames), [true, false, true, true, true, true]);
    assert_eq!(sent("knobs/diff1/png", &frames), [true, false, false, false, false, true]);
    assert_eq!(sent("knobs/diff100/png", &frames), [true, false, false, false, false, false]);
    // 20 pixels are a third of a percent. They add up, because the comparison is with the last frame sent, not with the last frame.
    let slow: Vec<Image> = (30..36).map(square).collect();
    assert_eq!(sent("knobs/diff1/png", &slow), [true, false, false, false, true, false]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// The filter with running sums gives the result of the definition.
    #[test]
    fn blur_is_the_mean_of_the_box(
        width in 1u32..24,
        height in 1u32..24,
        side in prop::sample::select(&[1u32, 2, 5, 8, 10, 15][..]),
        grey in any::<bool>(),
        seed in any::<u32>(),
    ) {
        let format = if grey { PixelFormat::Gray8 } else { PixelFormat::Bgr8 };
        let source = Image::from_packed(picture(width, height, format, seed % 1000), width, height, format).unwrap();
        let mut found = Image::empty();
        blur::blur(&source, side, &mut found);
        let channels = format.bytes_per_pixel();
        let mirror = |at: i64, len: u32| {
            let (mut at, last) = (at, i64::from(len) - 1);
            while at < 0 || at > last {
                at = if last == 0 { 0 } else if at < 0 { -at } else { 2 * last - at };
            }
            at as usize
        };
        let area = f64::from(side * side);
        for y in 0..height {
            for x in 0..width {
                for channel in 0..channels {
                    let mut sum = 0u32;
                    for dy in 0..i64::from(side) {
                        for dx in 0..i64::from(side) {
                            let row = mirror(i64::from(y) + dy - i64::from(side / 2), height);
                            let column = mirror(i64::from(x) + dx - i64::from(side / 2), width);
                            sum += u32::from(source.data()[(row * width as usize + column) * channels + channel]);
                        }
                    }
                    let expected = (f64::from(sum) / area).round_ties_even() as u8;
                    let at = (y as usize * width as usize + x as usize) * channels + channel;
                    prop_assert_eq!(found.data()[at], expected);
                }
            }
        }
    }

    /// Any rung of knobs accepts any image, and PNG preserves its pixels.
    #[test]
    fn every_rung_takes_every_image(
        width in 1u32..90,
        height in 1u32..90,
        format in prop::sample::select(&[PixelFormat::Bgr8, PixelFormat::Gray8, PixelFormat::Bgra8][..]),
        name in prop::sample::select(&[
            "knobs/png", "knobs/s68/hsv/blur5/png", "knobs/s50/lab/blur8/moving/png", "knobs/s33/luv/blur10/contours/png",
            "knobs/s25/gray/blur15/moving/diff18/png", "knobs/hsv/contours/diff0/png",
        ][..]),
        seed in any::<u32>(),
    ) {
        let frames = [seed % 1000, seed % 1000 + 1].map(|seed| {
            Image::from_packed(picture(width, height, format, seed), width, height, format).unwrap()
        });
        let size = name.parse::<Setting>().unwrap().size((width, height));
        for image in turn(name, &frames).iter().flatten() {
            prop_assert_eq!((image.width(), image.height()), size);
            let mut back = Image::empty();
            png::decode(&png::encode(&image.view().unwrap()).unwrap(), 1 << 20, &mut back).unwrap();
            prop_assert_eq!(image, &back);
        }
    }

    /// Decoding at a scale and converting planes do not change the picture.
    #[test]
    fn scaled_and_planar_decoding_agree_with_plain_decoding(width in 64u32..200, height in 64u32..200, share in 1u32..9) {
        let bytes = jpeg(width, height, share);
        let smallest = (width.div_ceil(share), height.div_ceil(share));
        let mut decoder = Decoder::default();
        let (mut plain, mut small, mut scaled) = (Image::empty(), Image::empty(), Image::empty());
        decoder.decode_bgr(&bytes, &mut plain).unwrap();
        decoder.decode_scaled(&bytes, PixelFormat::Bgr8, smallest, &mut scaled).unwrap();
        let size = (scaled.width(), scaled.height());
        prop_assert!(size.0 >= smallest.0 && size.1 >= smallest.1);
        prop_assert!(share == 1 || size.0 < 4 * smallest.0, "{:?} for {:?}", size, smallest);
        let mean = |a: &Image, b: &Image| {
            let sum: u64 = a.data().iter().zip(b.data()).map(|(&a, &b)| u64::from(a.abs_diff(b))).sum();
            sum as f64 / a.data().len() as f64
        };
        Resizer::new().resize(&plain.view().unwrap(), size, Filter::Area, &mut small).unwrap();
        prop_assert!(mean(&small, &scaled) < 12.0, "{}", mean(&small, &scaled));

        let mut planes = Yuv420::empty();
        let odd = size.0 % 2 == 1 || size.1 % 2 == 1;
        let decoded = decoder.decode_yuv420_scaled(&bytes, smallest, &mut planes).unwrap();
        prop_assert_eq!(decoded.is_none(), odd);
        if !odd {
            let mut converted = Yuv420::empty();
            converted.fill_from(&scaled.view().unwrap());
            let luma = size.0 as usize * size.1 as usize;
            for (a, b) in planes.data()[..luma].iter().zip(&converted.data()[..luma]) {
                prop_assert!(a.abs_diff(*b) < 40, "{} {}", a, b);
            }
        }
    }
}

/// Full range and the matrix of JFIF in both directions: nothing becomes darker, and colours are preserved.
#[test]
fn planes_and_pixels_are_the_same_picture() {
    for colour in [[0u8, 0, 255], [0, 255, 0], [255, 0, 0], [255, 255, 255], [0, 0, 0], [90, 120, 60]] {
        for (width, height) in [(16, 16), (5, 3), (1, 1)] {
            let pixels = vec![colour; width as usize * height as usize].concat();
            let mut planes = Yuv420::empty();
            planes.fill_from(&ImageView::packed(&pixels, width, height, PixelFormat::Bgr8).unwrap());
            let mut back = Image::empty();
            planes.to_bgr(&mut back);
            assert!(
                back.data().iter().zip(&pixels).all(|(a, b)| a.abs_diff(*b) <= 2),
                "{colour:?}: {:?}",
                &back.data()[..3]
            );
        }
    }
}

/// The vector code of the resizer and its plain code give the same pixels, so all machines give the same results.
#[test]
fn scaling_does_not_depend_on_the_machine() {
    let source = reference();
    let mut resizer = Resizer::new();
    let mut found = Vec::new();
    for filter in [Filter::Area, Filter::Linear] {
        for size in [(16, 16), (31, 20), (53, 37), (5, 30)] {
            let mut image = Image::empty();
            resizer.resize(&source.view().unwrap(), size, filter, &mut image).unwrap();
            found.push(hash(image.data()));
        }
    }
    assert_eq!(found, SCALED);
}

const SCALED: [u64; 8] = [
    1_802_327_978_234_417_355,
    10_360_308_254_423_335_841,
    6_942_557_516_114_812_078,
    1_795_223_782_528_874_564,
    17_550_745_132_166_848_625,
    6_554_835_606_756_133_792,
    6_942_557_516_114_812_078,
    18_351_154_965_225_185_228,
];

#[test]
fn damaged_pngs_are_errors_and_huge_ones_take_no_memory() {
    let source = reference();
    let bytes = png::encode(&source.view().unwrap()).unwrap();
    let mut image = Image::empty();
    for end in 0..bytes.len() - 12 {
        assert!(png::decode(&bytes[..end], 1 << 20, &mut image).is_err(), "cut at {end}");
    }
    assert!(matches!(png::decode(&bytes, 53 * 37 - 1, &mut image), Err(png::PngError::TooManyPixels { .. })));
    let mut huge = bytes.to_vec();
    huge[16..24].copy_from_slice(&[0x7F, 0xFF, 0xFF, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF]);
    assert!(png::decode(&huge, 1 << 26, &mut image).is_err());
    assert!(ImageView::packed(&[], 0, 0, PixelFormat::Bgr8).is_err());
    assert_eq!(probe(&jpeg(40, 30, 1)).unwrap().pixels(), 1200);
}

/// JPEGs are decoded at a half, a quarter or an eighth if that is enough. These sides are not multiples
/// of any of these. Objects must keep their place nevertheless, otherwise boxes would be shifted.
#[test]
fn a_picture_with_odd_sides_keeps_its_place_at_every_size() {
    let (size, across, down) = ((513, 395), 100..400, 60..360);
    let white =
        |at: u32| if across.contains(&(at % size.0)) && down.contains(&(at / size.0)) { 255 } else { 0 };
    let pixels = (0..size.0 * size.1).map(white).collect();
    let image = Image::from_packed(pixels, size.0, size.1, PixelFormat::Gray8).unwrap();
    let published = Encoder::new(98, Sampling::Yuv420).unwrap().encode(&image.view().unwrap()).unwrap();
    for rung in ["jpeg/w64/q98/420", "jpeg/w128/q98/gray", "jpeg/w129/q98/420", "jpeg/w256/q98/420"] {
        let setting: Setting = rung.parse().unwrap();
        let request = Request {
            sequence: Sequence(0),
            captured: Instant::ZERO,
            setting: &setting,
            bytes_max: None,
            reference: Reference::Independent,
        };
        let mut encoder = StreamEncoder::new(1 << 20).unwrap();
        let Outcome::Frame(made) = encoder.encode(&Source::Jpeg(&published), &request).unwrap() else {
            panic!("{rung} makes no frame");
        };
        let mut shown = Image::empty();
        Decoder::default().decode(&made.payload, PixelFormat::Gray8, &mut shown).unwrap();
        let (width, height) = (made.width as usize, made.height as usize);
        let row: Vec<u8> = shown.data()[height / 2 * width..][..width].to_vec();
        let column: Vec<u8> = shown.data().iter().skip(width / 2).step_by(width).copied().collect();
        for (line, side, there) in [(row, size.0, &across), (column, size.1, &down)] {
            let scale = f64::from(side) / line.len() as f64;
            let sum = line.iter().map(|white| f64::from(*white)).sum::<f64>();
            let moment = line.iter().enumerate().map(|(at, white)| (at as f64 + 0.5) * f64::from(*white));
            let (extent, middle) = (sum / 255.0 * scale, moment.sum::<f64>() / sum * scale);
            // Rounded sides would shift the square by at least 1.5 pixels.
            assert!((extent - f64::from(there.end - there.start)).abs() < 1.0, "{rung}: {extent} pixels");
            assert!((middle - f64::from(there.start + there.end) / 2.0).abs() < 0.7, "{rung}: at {middle}");
        }
    }
}
