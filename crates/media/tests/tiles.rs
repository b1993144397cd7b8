//! Changed tiles: a receiver decodes the picture that the encoder assumes, whatever was lost.

mod common;

use common::picture;
use mez_core::setting::{Form, Jpeg, Setting};
use mez_media::tiles::{Base, TileDecoder, TileEncoder, TileError, TileFrame};
use mez_media::{Image, PixelFormat};
use proptest::prelude::*;

fn setting(name: &str) -> Jpeg {
    match name.parse::<Setting>().unwrap().form {
        Form::Tiles(jpeg) => jpeg,
        other => panic!("{other:?}"),
    }
}

/// A static picture over which a bright square of 12 pixels moves.
fn scene(width: u32, height: u32, format: PixelFormat, at: u32) -> Image {
    let channels = format.bytes_per_pixel();
    let mut pixels = picture(width, height, format, 3);
    let (x0, y0) = (at * 5 % width, at * 3 % height);
    for y in y0..(y0 + 12).min(height) {
        for x in x0..(x0 + 12).min(width) {
            let place = (y * width + x) as usize * channels;
            pixels[place..place + channels].fill(if at.is_multiple_of(2) { 250 } else { 15 });
        }
    }
    Image::from_packed(pixels, width, height, format).unwrap()
}

fn encode(encoder: &mut TileEncoder, image: &Image, number: u64, base: Base) -> TileFrame {
    let view = image.view().unwrap();
    encoder.encode(&view, &setting("tiles/q80/420"), number, base, None).unwrap()
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Arrives,
    /// The sender learns of it before the next frame.
    IsReset,
    /// The sender learns of it two frames later.
    IsLost,
    /// The source has another size from here on.
    Resizes,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A receiver with losses has, after every frame that it can decode, exactly the same picture as one without losses.
    #[test]
    fn a_receiver_that_lost_frames_catches_up_exactly(
        width in 1u32..100,
        height in 1u32..100,
        grey in any::<bool>(),
        fates in prop::collection::vec(
            prop_oneof![
                8 => Just(Fate::Arrives), 2 => Just(Fate::IsReset), 2 => Just(Fate::IsLost), 1 => Just(Fate::Resizes)
            ],
            1..14,
        ),
    ) {
        let format = if grey { PixelFormat::Gray8 } else { PixelFormat::Bgr8 };
        let (mut width, mut height) = (width, height);
        let mut encoder = TileEncoder::new().unwrap();
        let (mut whole, mut lossy) = (TileDecoder::new(1 << 16), TileDecoder::new(1 << 16));
        // The frame that the sender knows to have arrived, and the base that it uses.
        let (mut acknowledged, mut base) = (None, Base::Nothing);
        let mut bad_news = 0;
        let mut decodes = false;
        for (number, fate) in (1u64..).zip(fates) {
            if matches!(fate, Fate::Resizes) {
                (width, height) = (height + 3, width);
            }
            let image = scene(width, height, format, number as u32);
            let independent = !encoder.continues(&image.view().unwrap()) || base == Base::Nothing;
            let frame = encode(&mut encoder, &image, number, base);
            prop_assert!(!independent || frame.tiles == frame.tiles_of);
            prop_assert!(frame.fits);
            let expected = whole.decode(&frame.payload).unwrap();
            // The decoded picture differs from the source by less than the threshold of a change.
            let off = expected.data().iter().zip(image.data()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
            // (In a tiny picture, half-resolution chroma dominates.)
            prop_assert!(width.min(height) < 16 || off as f64 / (image.data().len() as f64) < 14.0);
            let builds = !matches!(base, Base::Last) || decodes;
            match fate {
                Fate::Arrives | Fate::Resizes => {
                    if independent || builds {
                        prop_assert_eq!(lossy.decode(&frame.payload).unwrap(), expected);
                        decodes = true;
                    }
                    if independent {
                        bad_news = 0;
                    }
                    if bad_news == 0 {
                        acknowledged = Some(number);
                    }
                    base = Base::Last;
                }
                Fate::IsReset => {
                    decodes = false;
                    base = acknowledged.map_or(Base::Nothing, Base::Frame);
                }
                Fate::IsLost => {
                    decodes = false;
                    base = Base::Last;
                    bad_news = bad_news.max(1);
                }
            }
            if independent && !matches!(fate, Fate::Arrives | Fate::Resizes) {
                // No tile of the new picture has arrived yet.
                acknowledged = None;
                base = Base::Nothing;
                bad_news = 0;
            } else if bad_news > 0 {
                bad_news += 1;
                if bad_news > 3 {
                    (bad_news, base) = (0, acknowledged.map_or(Base::Nothing, Base::Frame));
                }
            }
        }
    }

    /// Damage is an error or a picture of the right size, never a panic. After an error the held picture is unchanged.
    #[test]
    fn damage_changes_nothing(
        at in 0usize..400,
        flip in 1u8..=255,
        cut in prop::option::of(0usize..400),
    ) {
        let mut encoder = TileEncoder::new().unwrap();
        let (first, second) = (scene(70, 40, PixelFormat::Bgr8, 1), scene(70, 40, PixelFormat::Bgr8, 2));
        let whole = encode(&mut encoder, &first, 1, Base::Nothing);
        let mut bytes = encode(&mut encoder, &second, 2, Base::Last).payload.to_vec();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let mut decoder = TileDecoder::new(1 << 16);
        let held = decoder.decode(&whole.payload).unwrap().clone();
        if decoder.decode(&bytes).is_err() {
            let nothing = [1, 0, 70, 0, 40, 0, 0];
            prop_assert_eq!(decoder.decode(&nothing).unwrap(), &held);
        }
    }
}

#[test]
fn only_what_changed_is_sent() {
    let mut encoder = TileEncoder::new().unwrap();
    let still = scene(320, 200, PixelFormat::Bgr8, 0);
    let first = encode(&mut encoder, &still, 1, Base::Nothing);
    assert_eq!((first.tiles, first.tiles_of), (70, 70));
    let second = encode(&mut encoder, &still, 2, Base::Last);
    assert_eq!((second.tiles, second.payload.len()), (0, 7));
    let third = encode(&mut encoder, &scene(320, 200, PixelFormat::Bgr8, 2), 3, Base::Last);
    assert!((1..=8).contains(&third.tiles), "{}", third.tiles);
    assert!(third.payload.len() * 4 < first.payload.len());
    // If the receiver is known to hold only frame 2, tiles sent after it are sent again.
    let again = encode(&mut encoder, &scene(320, 200, PixelFormat::Bgr8, 2), 4, Base::Frame(2));
    assert_eq!(again.tiles, third.tiles);
}

#[test]
fn a_budget_lowers_the_quality_and_says_so() {
    let image = scene(640, 480, PixelFormat::Bgr8, 1);
    let setting = setting("tiles/q90/420");
    let sent = |most: Option<usize>| {
        let mut encoder = TileEncoder::new().unwrap();
        encoder.encode(&image.view().unwrap(), &setting, 1, Base::Nothing, most).unwrap()
    };
    let free = sent(None);
    assert_eq!((free.quality.get(), free.fits), (90, true));
    for share in [90, 70, 50, 30] {
        let most = free.payload.len() * share / 100;
        let frame = sent(Some(most));
        assert!(frame.fits && frame.payload.len() <= most, "{share} %: {} of {most}", frame.payload.len());
        assert!(frame.payload.len() * 10 > most * 6, "{share} %: {} of {most}", frame.payload.len());
        assert!(frame.quality.get() < 90);
    }
    assert!(!sent(Some(500)).fits);
}

/// A frame with few bytes leaves coarse tiles. A few of them are sent again with every frame that has room.
#[test]
fn what_was_sent_coarse_is_sent_again_once_there_is_room() {
    let image = scene(640, 480, PixelFormat::Bgr8, 1);
    let setting = setting("tiles/q90/420");
    let mut encoder = TileEncoder::new().unwrap();
    let mut next =
        |number, base, most| encoder.encode(&image.view().unwrap(), &setting, number, base, most).unwrap();
    let whole = next(1, Base::Nothing, None);
    let first = next(2, Base::Nothing, Some(whole.payload.len() / 3));
    assert!(first.fits && first.quality.get() < 60 && first.quality_min == first.quality, "{first:?}");
    let none = next(3, Base::Last, Some(40));
    assert!(none.fits && none.tiles == 0 && none.quality_min == first.quality, "there is no room: {none:?}");
    for number in 4..20 {
        let frame = next(number, Base::Last, Some(whole.payload.len() / 3));
        assert!(frame.fits && frame.tiles <= frame.tiles_of.div_ceil(16), "{frame:?}");
        assert_eq!(frame.quality_min.get() == 90, number == 19, "frame {number}: {:?}", frame.quality_min);
    }
    assert_eq!(next(20, Base::Last, None).tiles, 0, "all is as it was asked for");
}

#[test]
fn a_frame_without_its_picture_is_refused() {
    let mut encoder = TileEncoder::new().unwrap();
    encode(&mut encoder, &scene(64, 64, PixelFormat::Bgr8, 1), 1, Base::Nothing);
    let second = encode(&mut encoder, &scene(64, 64, PixelFormat::Bgr8, 8), 2, Base::Last);
    assert!(second.tiles < second.tiles_of);
    let error = TileDecoder::new(1 << 16).decode(&second.payload).unwrap_err();
    assert_eq!(error, TileError::NothingHeld { tiles: second.tiles, tiles_of: 4 });
    // A frame with too many pixels is refused before memory is taken.
    let first = encode(&mut encoder, &scene(64, 64, PixelFormat::Bgr8, 1), 3, Base::Nothing);
    assert!(matches!(TileDecoder::new(4095).decode(&first.payload), Err(TileError::Grid(_))));
}

/// The examples in the document equal the output of the code.
#[test]
fn the_document_tells_the_truth() {
    let document = include_str!("../../../docs/tiles.md");
    let examples: Vec<Vec<u8>> = document
        .split("```hex\n")
        .skip(1)
        .map(|block| {
            let lines = block.split("```").next().unwrap().lines();
            let words = lines.flat_map(|line| line.split('#').next().unwrap().split_whitespace());
            words.map(|word| u8::from_str_radix(word, 16).unwrap()).collect()
        })
        .collect();
    assert_eq!(examples.len(), 2);

    let mut encoder = TileEncoder::new().unwrap();
    let still = scene(768, 576, PixelFormat::Bgr8, 0);
    encode(&mut encoder, &still, 1, Base::Nothing);
    assert_eq!(examples[0], *encode(&mut encoder, &still, 2, Base::Last).payload);

    let mut pixels = vec![100; 320 * 48];
    let mut encoder = TileEncoder::new().unwrap();
    let grey = |pixels: &[u8]| Image::from_packed(pixels.to_vec(), 320, 48, PixelFormat::Gray8).unwrap();
    encode(&mut encoder, &grey(&pixels), 1, Base::Nothing);
    for tile in [3, 4, 5, 19] {
        for y in 0..8 {
            let at = (tile / 10 * 32 + y) * 320 + tile % 10 * 32;
            pixels[at..at + 8].fill(200);
        }
    }
    let frame = encode(&mut encoder, &grey(&pixels), 2, Base::Last);
    assert_eq!(examples[1], frame.payload[..examples[1].len()]);
    let sheet = mez_media::jpeg::probe(&frame.payload[11..]).unwrap();
    assert_eq!((sheet.width, sheet.height), (128, 32));
}
