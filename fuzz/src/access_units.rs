//! Fuzzes the parser of H.264 streams of other encoders, and the decoder of the pictures that it accepts.

use mez_media::bitstream::{
    AccessUnit, AccessUnitLimits, AccessUnits, Av1Pictures, BitstreamError, CodedPicture, Entry,
    H265Pictures, UnitSplitter,
};
use mez_media::h264::H264Decoder;

use crate::script::Reader;

/// Small limits, so that streams reach them.
const LIMITS: AccessUnitLimits = AccessUnitLimits { bytes_max: 16 << 10, pixels_max: 1 << 14 };
/// Maximum number of pictures of an input that are decoded. More take longer and find nothing more.
const DECODED_MAX: usize = 12;

type Results = Vec<Result<AccessUnit, BitstreamError>>;

/// If the input's first byte is even, the input is a byte stream, and its second byte gives the length of the pieces
/// in which it arrives. Otherwise the input is a container: its description, then packets, each after its length.
pub fn access_units(bytes: &[u8]) {
    taken(bytes);
}

/// Runs an input and returns how many pictures are decoded, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> usize {
    let results = match bytes {
        [kind, piece, stream @ ..] if kind % 2 == 0 => {
            let results = stream_of(stream, usize::from(*piece) + 1);
            assert!(results == stream_of(stream, stream.len().max(1)), "pieces change what is found");
            results
        }
        [_, rest @ ..] => container(rest),
        [] => return 0,
    };
    results.iter().for_each(check);
    decoded(&results)
}

fn stream_of(stream: &[u8], piece: usize) -> Results {
    let mut splitter = UnitSplitter::new(LIMITS.bytes_max);
    let mut parser = AccessUnits::new(LIMITS);
    let mut results = Results::new();
    for bytes in stream.chunks(piece) {
        splitter.push(bytes);
        while let Some(unit) = splitter.next_unit() {
            assert!(!unit.is_empty() && unit.len() <= LIMITS.bytes_max);
            results.extend(parser.unit(unit).transpose());
        }
    }
    splitter.finish();
    while let Some(unit) = splitter.next_unit() {
        results.extend(parser.unit(unit).transpose());
    }
    results.extend(parser.finish().transpose());
    results
}

fn container(bytes: &[u8]) -> Results {
    let mut reader = Reader::new(bytes);
    let mut parser = AccessUnits::new(LIMITS);
    let Some(ahead) = reader.block() else { return Results::new() };
    if parser.configure(ahead).is_err() {
        return Results::new();
    }
    let mut results = Results::new();
    let mut others = Others::default();
    while let Some(packet) = reader.block() {
        others.take(packet);
        results.extend(parser.packet(packet).transpose());
    }
    results
}

/// The parsers of other codecs.
struct Others(H265Pictures, Av1Pictures);

impl Default for Others {
    fn default() -> Self {
        Self(H265Pictures::new(LIMITS), Av1Pictures::new(LIMITS))
    }
}

impl Others {
    /// Parses the same bytes as packets of other codecs. A key picture must also be a key picture alone.
    fn take(&mut self, packet: &[u8]) {
        if let Ok(Some(picture)) = self.0.packet(packet) {
            let alone = picture.is_key.then(|| H265Pictures::new(LIMITS).packet(&picture.payload));
            others_hold(&picture, alone);
        }
        if let Ok(Some(picture)) = self.1.packet(packet) {
            let alone = picture.is_key.then(|| Av1Pictures::new(LIMITS).packet(&picture.payload));
            others_hold(&picture, alone);
        }
    }
}

fn others_hold(picture: &CodedPicture, alone: Option<Result<Option<CodedPicture>, BitstreamError>>) {
    assert!(picture.payload.len() <= LIMITS.bytes_max);
    let pixels = u64::from(picture.width) * u64::from(picture.height);
    assert!((1..=LIMITS.pixels_max).contains(&pixels));
    if let Some(alone) = alone {
        assert!(picture.is_unbroken);
        let alone = alone.expect("a key picture needs nothing else").expect("it is a picture");
        assert_eq!((alone.width, alone.height, alone.is_key), (picture.width, picture.height, true));
    }
}

fn check(result: &Result<AccessUnit, BitstreamError>) {
    match result {
        Ok(picture) => {
            assert!(picture.payload.len() <= LIMITS.bytes_max);
            let pixels = u64::from(picture.width) * u64::from(picture.height);
            assert!((1..=LIMITS.pixels_max).contains(&pixels));
            assert!(picture.slices > 0);
            if picture.entry == Some(Entry::Key) {
                assert!(picture.is_unbroken && picture.is_needed);
                let alone = AccessUnits::new(LIMITS).packet(&picture.payload);
                let alone = alone.expect("a key picture needs nothing else").expect("it is a picture");
                assert_eq!(alone.payload, picture.payload);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Decodes the pictures that count as unbroken. The codec may refuse them, because the parser reads only headers.
fn decoded(results: &Results) -> usize {
    let mut decoder = H264Decoder::new(LIMITS.pixels_max);
    let (mut needed, mut shown) = (None, 0);
    let pictures = results.iter().flatten().filter(|picture| picture.is_unbroken);
    for (number, picture) in pictures.take(DECODED_MAX).enumerate() {
        let number = number as u64;
        let refers = if picture.entry == Some(Entry::Key) { None } else { needed };
        match decoder.decode(&picture.payload, number, refers) {
            Ok(image) => {
                assert!(u64::from(image.width()) * u64::from(image.height()) <= LIMITS.pixels_max);
                shown += 1;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        needed = if picture.is_needed { Some(number) } else { needed };
    }
    shown
}

/// Streams of x264 (`crates/media/tests/streams/README.md`), in pieces, and one in a container.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let streams: [(&str, &[u8]); 6] = [
        ("baseline", include_bytes!("../../crates/media/tests/streams/baseline.h264")),
        ("slices", include_bytes!("../../crates/media/tests/streams/slices.h264")),
        ("b-frames", include_bytes!("../../crates/media/tests/streams/b_frames.h264")),
        ("refresh", include_bytes!("../../crates/media/tests/streams/refresh.h264")),
        ("interlaced", include_bytes!("../../crates/media/tests/streams/interlaced.h264")),
        ("deep", include_bytes!("../../crates/media/tests/streams/deep.h264")),
    ];
    let mut seeds: Vec<(&str, Vec<u8>)> =
        streams.iter().map(|(name, stream)| (*name, [&[0, 99], *stream].concat())).collect();
    let units = |stream: &[u8]| {
        let mut splitter = UnitSplitter::new(1 << 20);
        splitter.push(stream);
        splitter.finish();
        std::iter::from_fn(|| splitter.next_unit().map(<[u8]>::to_vec)).collect::<Vec<_>>()
    };
    let units = units(streams[0].1);
    let set = |kind: u8| units.iter().find(|unit| unit[0] & 0x1F == kind).expect("x264 writes one");
    let (sequence, picture) = (set(7), set(8));
    let mut ahead = vec![1, sequence[1], sequence[2], sequence[3], 0xFF, 0xE1];
    ahead.extend((sequence.len() as u16).to_be_bytes());
    ahead.extend(sequence);
    ahead.push(1);
    ahead.extend((picture.len() as u16).to_be_bytes());
    ahead.extend(picture);
    let mut container = vec![1];
    let mut block = |bytes: &[u8]| {
        container.extend((bytes.len() as u16).to_le_bytes());
        container.extend_from_slice(bytes);
    };
    block(&ahead);
    // x264 writes a delimiter before each picture.
    for picture in units.chunk_by(|_, next| next[0] & 0x1F != 9) {
        let units = picture.iter().filter(|unit| !matches!(unit[0] & 0x1F, 7 | 8));
        let packet = units.flat_map(|unit| (unit.len() as u32).to_be_bytes().into_iter().chain(unit.clone()));
        block(&packet.collect::<Vec<u8>>());
    }
    seeds.push(("container", container));
    seeds
}
