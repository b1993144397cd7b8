//! Bytes from outside: any defect is an error that names it, never a panic.

mod common;

use common::{find_marker, jpeg, native_jpeg, picture, with_segment};
use mez_media::jpeg::{DecodeError, Decoder, JpegFrame, Splitter, check, probe};
use mez_media::{Encoding, Image, ImageViewMut, PixelFormat};
use proptest::prelude::*;

fn decode(bytes: &[u8]) -> Result<Image, DecodeError> {
    let mut image = Image::empty();
    Decoder::new(1 << 20).decode_bgr(bytes, &mut image)?;
    Ok(image)
}

#[test]
fn every_truncation_is_an_error() {
    let whole = jpeg(61, 43, 1);
    assert!(decode(&whole).is_ok());
    for len in 0..whole.len() {
        let cut = &whole[..len];
        match decode(cut).unwrap_err() {
            DecodeError::NotJpeg { len_bytes, .. } => assert!(len < 2 && len_bytes == len),
            DecodeError::Truncated { len_bytes } => assert_eq!(len_bytes, len),
            other => panic!("cut to {len} bytes: {other}"),
        }
        assert!(check(cut).is_err());
    }
}

/// The coded data are cut in the middle and closed with an end marker. Only the decoder can detect this.
#[test]
fn coded_data_that_end_early_are_an_error() {
    let whole = jpeg(128, 96, 1);
    let data = find_marker(&whole, 0xDA) + 14;
    for cut in [data + 1, (data + whole.len()) / 2, whole.len() - 40] {
        let mut bytes = whole[..cut].to_vec();
        while bytes.last() == Some(&0xFF) {
            bytes.pop();
        }
        bytes.extend([0xFF, 0xD9]);
        assert!(check(&bytes).is_ok(), "the markers are all there");
        assert!(
            matches!(decode(&bytes), Err(DecodeError::Corrupt { .. })),
            "cut at {cut} of {}",
            whole.len()
        );
    }
}

#[test]
fn any_damaged_byte_is_an_error_or_a_picture_of_a_permitted_size() {
    for whole in [
        jpeg(37, 29, 2),
        native_jpeg(37, 29, turbojpeg::PixelFormat::BGR, |compressor| {
            compressor.set_progressive(true).unwrap()
        }),
        native_jpeg(37, 29, turbojpeg::PixelFormat::GRAY, |compressor| {
            compressor.set_subsamp(turbojpeg::Subsamp::Gray).unwrap();
        }),
    ] {
        let mut refused = 0;
        for at in 0..whole.len() {
            for damage in [0x01, 0x10, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[at] ^= damage;
                match decode(&bytes) {
                    Ok(image) => assert!(u64::from(image.width()) * u64::from(image.height()) <= 1 << 20),
                    Err(_) => refused += 1,
                }
            }
        }
        // JPEG has no checksum: damage in the coded data often decodes to another picture.
        assert!(
            refused > whole.len() / 2,
            "an eighth at least must be seen: {refused} of {}",
            whole.len() * 4
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn noise_never_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..600), start in 0usize..4) {
        let starts: [&[u8]; 4] = [&[], &[0xFF, 0xD8], &[0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8], &[0xFF, 0xD8, 0xFF, 0xDA, 0, 2]];
        for (byte, &fixed) in bytes.iter_mut().zip(starts[start]) {
            *byte = fixed;
        }
        let _ = probe(&bytes);
        let _ = check(&bytes);
        let _ = decode(&bytes);
    }

    /// Parts of real images in any order: the hardest noise, because it gets far into the decoder.
    #[test]
    fn spliced_images_never_panic(parts in prop::collection::vec((0u32..4, 0usize..1200, 0usize..1200), 1..6)) {
        let mut bytes = vec![0xFF, 0xD8];
        for (which, from, len) in parts {
            let source = jpeg(20 + which * 13, 30 - which * 5, which);
            let from = from % source.len();
            bytes.extend_from_slice(&source[from..source.len().min(from + len)]);
        }
        let _ = decode(&bytes);
        bytes.extend([0xFF, 0xD9]);
        let _ = decode(&bytes);
        // A frame from the splitter is at least complete.
        let mut rest = &bytes[..];
        while let Some(JpegFrame { jpeg, info }) = Splitter::default().next_frame(&mut rest) {
            prop_assert_eq!(check(&jpeg).unwrap(), info);
        }
    }
}

/// A header of a few bytes cannot make the decoder take more memory than the caller allows.
#[test]
fn a_claimed_size_is_checked_before_memory_is_taken() {
    let mut huge = jpeg(16, 16, 1);
    let at = find_marker(&huge, 0xC0);
    huge[at + 5..at + 9].copy_from_slice(&[0xFF, 0xDC, 0xFF, 0xDC]);
    let mut image = Image::empty();
    let error = Decoder::default().decode_bgr(&huge, &mut image).unwrap_err();
    assert_eq!(error, DecodeError::TooManyPixels { width: 65_500, height: 65_500, pixels_max: 1 << 26 });
    assert_eq!(image, Image::empty(), "nothing was allocated");

    let exact = jpeg(16, 16, 1);
    assert!(Decoder::new(256).decode_bgr(&exact, &mut image).is_ok());
    assert!(matches!(
        Decoder::new(255).decode_bgr(&exact, &mut image),
        Err(DecodeError::TooManyPixels { pixels_max: 255, .. })
    ));
}

/// Thousands of empty scans in a few kilobytes would keep a decoder busy for minutes.
#[test]
fn a_progressive_image_of_endless_scans_is_refused() {
    let progressive = native_jpeg(64, 64, turbojpeg::PixelFormat::BGR, |compressor| {
        compressor.set_progressive(true).unwrap()
    });
    let scan = find_marker(&progressive, 0xDA);
    let scan_end =
        scan + 2 + progressive[scan + 2..].windows(2).position(|p| p[0] == 0xFF && p[1] != 0).unwrap();
    let mut bytes = progressive[..scan_end].to_vec();
    for _ in 0..5_000 {
        bytes.extend_from_slice(&progressive[scan..scan_end]);
    }
    bytes.extend_from_slice(&progressive[scan_end..]);
    assert!(matches!(decode(&bytes), Err(DecodeError::Corrupt { .. })));
}

#[test]
fn the_wrong_kind_of_image_is_named() {
    let cmyk = native_jpeg(16, 16, turbojpeg::PixelFormat::CMYK, |_| {});
    let lossless =
        native_jpeg(16, 16, turbojpeg::PixelFormat::BGR, |compressor| compressor.set_lossless(true).unwrap());
    let mut twelve_bits = jpeg(16, 16, 1);
    let at = find_marker(&twelve_bits, 0xC0);
    twelve_bits[at + 4] = 12;
    for (bytes, word) in [(cmyk, "CMYK"), (lossless, "lossless"), (twelve_bits, "8 bits")] {
        let error = decode(&bytes).unwrap_err();
        assert!(
            matches!(error, DecodeError::Unsupported { .. }) && error.to_string().contains(word),
            "{error}"
        );
    }

    let png = decode(b"\x89PNG\r\n\x1a\n0000").unwrap_err();
    assert!(matches!(png, DecodeError::NotJpeg { found: Some(Encoding::Png), .. }));
    assert_eq!(
        png.to_string(),
        "not a JPEG: it looks like PNG; encode the image as JPEG, or pass raw pixels"
    );
    assert!(decode(b"").unwrap_err().to_string().contains("no bytes at all"));
    assert!(decode(b"hello").unwrap_err().to_string().contains("68 65 6C 6C"));
}

#[test]
fn a_buffer_of_another_size_is_refused() {
    let bytes = jpeg(16, 8, 1);
    let mut buffer = vec![0; 16 * 9 * 3];
    let mut view = ImageViewMut::packed(&mut buffer, 16, 9, PixelFormat::Bgr8).unwrap();
    let error = Decoder::default().decode_into(&bytes, &mut view).unwrap_err();
    assert_eq!(error, DecodeError::BufferSize { width: 16, height: 8, buffer_width: 16, buffer_height: 9 });
    assert!(buffer.iter().all(|&byte| byte == 0));
}

/// Cameras leave a few extra bytes before the end marker. The picture is whole, so it is accepted.
#[test]
fn a_little_padding_is_no_damage() {
    let whole = jpeg(40, 40, 3);
    let padded = |count: usize| {
        let mut bytes = whole[..whole.len() - 2].to_vec();
        bytes.extend(vec![0; count]);
        bytes.extend([0xFF, 0xD9]);
        bytes
    };
    let expected = decode(&whole).unwrap();
    assert_eq!(decode(&padded(3)).unwrap(), expected);
    assert!(matches!(decode(&padded(400)), Err(DecodeError::Corrupt { .. })));
    let mut after = whole.clone();
    after.extend([0; 512]);
    assert_eq!(decode(&after).unwrap(), expected, "after the end marker any padding is harmless");
}

/// A thumbnail is a JPEG inside a JPEG. Its size and its end are not those of the image.
#[test]
fn a_thumbnail_is_not_the_image() {
    let bytes = with_segment(&jpeg(48, 40, 1), 0xE1, &jpeg(8, 8, 2));
    let info = probe(&bytes).unwrap();
    assert_eq!((info.width, info.height), (48, 40));
    assert_eq!(decode(&bytes).unwrap(), decode(&jpeg(48, 40, 1)).unwrap());
}

#[test]
fn grey_images_decode_to_colour() {
    let grey = native_jpeg(30, 20, turbojpeg::PixelFormat::GRAY, |compressor| {
        compressor.set_subsamp(turbojpeg::Subsamp::Gray).unwrap();
    });
    let image = decode(&grey).unwrap();
    let expected = picture(30, 20, PixelFormat::Gray8, 5);
    for (pixel, &grey) in image.data().chunks_exact(3).zip(&expected) {
        assert!(pixel[0] == pixel[1] && pixel[1] == pixel[2] && pixel[0].abs_diff(grey) < 60);
    }
}
