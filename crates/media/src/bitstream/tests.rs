//! Streams of x264 (`tests/streams/README.md`), and streams written bit by bit by these tests.

use proptest::prelude::*;

use super::*;
use crate::h264::H264Decoder;
use crate::h264::bits::{BitWriter, escape, units};

const BASELINE: &[u8] = include_bytes!("../../tests/streams/baseline.h264");
const SLICES: &[u8] = include_bytes!("../../tests/streams/slices.h264");
const B_FRAMES: &[u8] = include_bytes!("../../tests/streams/b_frames.h264");
const REFRESH: &[u8] = include_bytes!("../../tests/streams/refresh.h264");
const OPEN_GOP: &[u8] = include_bytes!("../../tests/streams/open_gop.h264");
const INTERLACED: &[u8] = include_bytes!("../../tests/streams/interlaced.h264");
const DEEP: &[u8] = include_bytes!("../../tests/streams/deep.h264");

type Results = Vec<Result<AccessUnit, BitstreamError>>;

/// The pictures of a byte stream that is pushed in pieces of `piece` bytes.
fn parse(parser: &mut AccessUnits, stream: &[u8], piece: usize) -> Results {
    let mut splitter = UnitSplitter::new(1 << 20);
    let mut pictures = Vec::new();
    for bytes in stream.chunks(piece) {
        splitter.push(bytes);
        while let Some(unit) = splitter.next_unit() {
            pictures.extend(parser.unit(unit).transpose());
        }
    }
    splitter.finish();
    while let Some(unit) = splitter.next_unit() {
        pictures.extend(parser.unit(unit).transpose());
    }
    pictures.extend(parser.finish().transpose());
    pictures
}

fn pictures(stream: &[u8]) -> Vec<AccessUnit> {
    let mut parser = AccessUnits::default();
    parse(&mut parser, stream, 100).into_iter().map(Result::unwrap).collect()
}

fn units_of(stream: &[u8]) -> Vec<Vec<u8>> {
    units(stream).map(<[u8]>::to_vec).collect()
}

/// A stream is cut into the pictures that its encoder coded. No unit is changed.
#[test]
fn a_stream_becomes_its_pictures() {
    for (stream, length, keys) in
        [(BASELINE, 10, &[0, 4, 8][..]), (SLICES, 10, &[0]), (REFRESH, 12, &[0]), (OPEN_GOP, 10, &[0])]
    {
        let found = pictures(stream);
        assert_eq!(found.len(), length);
        let entries = (0..length).filter(|&at| found[at].entry == Some(Entry::Key));
        assert_eq!(entries.collect::<Vec<_>>(), keys);
        assert!(found.iter().all(|unit| (unit.width, unit.height) == (64, 48)));
        assert!(found.iter().all(|unit| unit.is_needed && unit.is_unbroken && unit.missing == 0));
        let mut whole: Vec<Vec<u8>> = Vec::new();
        found.iter().for_each(|unit| whole.extend(units_of(&unit.payload)));
        // At a recovery point the sets come first.
        let is_set = |unit: &Vec<u8>| matches!(unit[0] & 0x1F, 7 | 8);
        let without_sets =
            |units: Vec<Vec<u8>>| units.into_iter().filter(|unit| !is_set(unit)).collect::<Vec<_>>();
        assert_eq!(without_sets(whole), without_sets(units_of(stream)));
        // The result is the same for pieces of any size, and picture by picture.
        for piece in [1, 3, 17, 5000] {
            let mut parser = AccessUnits::default();
            let again: Vec<_> = parse(&mut parser, stream, piece).into_iter().map(Result::unwrap).collect();
            assert_eq!(again, found);
        }
        let mut parser = AccessUnits::default();
        let again = found.iter().map(|unit| parser.packet(&unit.payload).unwrap().unwrap());
        assert_eq!(again.collect::<Vec<_>>(), found);
    }
    let slices = pictures(SLICES);
    assert!(slices.iter().all(|unit| unit.slices == 3));
    assert!(slices[0].is_intra && slices[1..].iter().all(|unit| !unit.is_intra && !unit.has_two_lists));
    let orders: Vec<i64> = pictures(BASELINE).iter().map(|unit| unit.order).collect();
    assert!(orders[..4].is_sorted() && orders[4] == 0, "{orders:?}");
}

#[test]
fn the_stream_says_what_it_is() {
    let mut parser = AccessUnits::default();
    assert_eq!(parser.info(), None);
    parse(&mut parser, SLICES, 100);
    let info = parser.info().unwrap();
    assert_eq!((info.profile[0], info.width, info.height, info.reordered_max), (100, 64, 48, Some(0)));
    let mut parser = AccessUnits::default();
    parse(&mut parser, B_FRAMES, 100);
    assert_eq!(parser.info().unwrap().reordered_max, Some(2));
}

/// Each chain can be decoded alone, to the same samples as by another decoder (ffmpeg 5.1).
#[test]
fn what_is_cut_out_is_decoded() {
    for (stream, expected) in [
        (BASELINE, 0xB924_E25D_5147_D28B_u64),
        (SLICES, 0x0FA0_610C_F4D0_C5AF),
        (REFRESH, 0x0CBE_D7C8_5A14_6F43),
        (OPEN_GOP, 0xB924_E25D_5147_D28B),
    ] {
        let found = pictures(stream);
        for start in (0..found.len()).filter(|&at| found[at].entry == Some(Entry::Key)) {
            let mut decoder = H264Decoder::new(1 << 16);
            // FNV-1a.
            let mut hash = 0xCBF2_9CE4_8422_2325_u64;
            for (at, unit) in found.iter().enumerate().skip(start) {
                let refers = if unit.entry == Some(Entry::Key) { None } else { Some(at as u64 - 1) };
                let planes = decoder.decode_as_coded(&unit.payload, at as u64, refers).unwrap();
                assert_eq!((planes.width(), planes.height()), (64, 48), "picture {at} from {start}");
                for sample in planes.data() {
                    hash = (hash ^ u64::from(*sample)).wrapping_mul(0x100_0000_01B3);
                }
            }
            assert!(start > 0 || hash == expected, "{hash:X}");
        }
    }
}

/// The same stream from a container: lengths instead of start codes, and parameter sets stored separately.
#[test]
fn a_container_gives_the_same_pictures() {
    let expected = pictures(BASELINE);
    let mut all = units_of(BASELINE);
    let set = |kind: u8| all.iter().find(|unit| unit[0] & 0x1F == kind).unwrap().clone();
    let (sequence, picture) = (set(7), set(8));
    all.retain(|unit| !matches!(unit[0] & 0x1F, 7 | 8));
    for length_bytes in [2usize, 4] {
        let mut record =
            vec![1, sequence[1], sequence[2], sequence[3], 0xFC | (length_bytes as u8 - 1), 0xE1];
        for (before, set) in [(None, &sequence), (Some(1), &picture)] {
            record.extend(before);
            record.extend((set.len() as u16).to_be_bytes());
            record.extend(set);
        }
        let mut parser = AccessUnits::default();
        parser.configure(&record).unwrap();
        assert_eq!(parser.framing(), Framing::Lengths(length_bytes));
        let mut found = Vec::new();
        // x264 writes a delimiter before each picture.
        for units in all.chunk_by(|_, next| next[0] & 0x1F != 9) {
            let mut packet = Vec::new();
            for unit in units {
                packet.extend(&(unit.len() as u32).to_be_bytes()[4 - length_bytes..]);
                packet.extend(unit);
            }
            found.push(parser.packet(&packet).unwrap().unwrap());
        }
        assert_eq!(found, expected);
    }
}

/// The camera states its parameter sets only once, before its stream.
#[test]
fn key_frames_carry_the_sets_that_decoding_needs() {
    let all = units_of(BASELINE);
    let is_set = |unit: &&Vec<u8>| matches!(unit[0] & 0x1F, 7 | 8);
    let mut ahead = Vec::new();
    all.iter().filter(is_set).for_each(|unit| assembly::append(&mut ahead, unit));
    let mut bare = Vec::new();
    all.iter().filter(|unit| !is_set(unit)).for_each(|unit| assembly::append(&mut bare, unit));
    let mut parser = AccessUnits::default();
    parser.configure(&ahead).unwrap();
    let found: Vec<_> = parse(&mut parser, &bare, 1000).into_iter().map(Result::unwrap).collect();
    assert_eq!(found, pictures(BASELINE));
    // Without the sets, all pictures are refused.
    let mut parser = AccessUnits::default();
    let found = parse(&mut parser, &bare, 1000);
    assert!(found.iter().all(|picture| matches!(picture, Err(BitstreamError::Damaged { .. }))));
}

#[test]
fn a_set_that_comes_by_itself_goes_with_the_next_picture() {
    let found = pictures(SLICES);
    let sets: Vec<_> = units_of(SLICES).into_iter().filter(|unit| unit[0] & 0x1F == 8).collect();
    let mut parser = AccessUnits::default();
    parser.packet(&found[0].payload).unwrap().unwrap();
    let mut alone = Vec::new();
    assembly::append(&mut alone, &sets[0]);
    assert_eq!(parser.packet(&alone).unwrap(), None);
    let next = parser.packet(&found[1].payload).unwrap().unwrap();
    assert_eq!(next.payload, [&alone[..], &found[1].payload].concat());
    assert!(next.is_needed);
    assert_eq!(parser.packet(&found[2].payload).unwrap().unwrap(), found[2]);
}

/// A writer may put the sets of the next picture at the end of a packet.
#[test]
fn a_set_behind_a_picture_is_for_the_next_one() {
    let found = pictures(SLICES);
    let sets: Vec<_> = units_of(SLICES).into_iter().filter(|unit| unit[0] & 0x1F == 8).collect();
    let mut parser = AccessUnits::default();
    parser.packet(&found[0].payload).unwrap().unwrap();
    let mut changed = sets[0].clone();
    changed.push(0x80);
    let mut with_set = found[1].payload.to_vec();
    assembly::append(&mut with_set, &changed);
    assert_eq!(parser.packet(&with_set).unwrap().unwrap(), found[1]);
    let next = parser.packet(&found[2].payload).unwrap().unwrap();
    assert!(next.payload.ends_with(&found[2].payload) && next.payload.len() > found[2].payload.len());
}

#[test]
fn streams_that_are_not_passed_on_are_refused_with_the_remedy() {
    let first = |stream: &[u8]| {
        let results = parse(&mut AccessUnits::default(), stream, 100);
        results.into_iter().find_map(Result::err)
    };
    assert_eq!(first(B_FRAMES), Some(Unfit::Reordered.into()));
    assert_eq!(first(INTERLACED), Some(Unfit::Interlaced.into()));
    assert_eq!(first(DEEP), Some(Unfit::Samples { bits: 10, chroma: 2 }.into()));
    let limits = AccessUnitLimits { pixels_max: 3000, ..AccessUnitLimits::default() };
    let large = AccessUnits::new(limits).packet(&pictures(BASELINE)[0].payload);
    assert_eq!(large, Err(Unfit::TooManyPixels { width: 64, height: 48, pixels_max: 3000 }.into()));
    for unfit in [Unfit::Reordered, Unfit::Interlaced, Unfit::Scattered, Unfit::Partitioned] {
        assert!(unfit.to_string().contains("; set "), "{unfit}");
    }
}

#[test]
fn a_picture_that_is_too_large_costs_itself_and_what_needs_it() {
    let found = pictures(BASELINE);
    let limits = AccessUnitLimits { bytes_max: 600, ..AccessUnitLimits::default() };
    let mut parser = AccessUnits::new(limits);
    let results: Vec<_> = found.iter().map(|unit| parser.packet(&unit.payload)).collect();
    assert_eq!(results[0], Err(BitstreamError::TooLarge { bytes_max: 600 }));
    // Decoding cannot begin before a key frame.
    assert!(results[1..4].iter().all(Result::is_err));
    assert!(results[4..].iter().all(|result| result.as_ref().unwrap().as_ref().unwrap().is_unbroken));
}

#[test]
fn a_lost_picture_is_noticed_and_the_next_key_frame_mends_it() {
    let mut found = pictures(BASELINE);
    found.remove(1);
    let mut parser = AccessUnits::default();
    let seen: Vec<_> = found.iter().map(|unit| parser.packet(&unit.payload).unwrap().unwrap()).collect();
    let told: Vec<_> = seen.iter().map(|unit| (unit.missing, unit.is_unbroken)).collect();
    assert_eq!(told[..5], [(0, true), (1, false), (0, false), (0, true), (0, true)]);
    // A damaged picture counts as lost.
    let mut parser = AccessUnits::default();
    parser.packet(&found[0].payload).unwrap().unwrap();
    let cut = &found[1].payload[..12];
    assert!(matches!(parser.packet(cut), Err(BitstreamError::Damaged { .. })));
    assert!(!parser.packet(&found[2].payload).unwrap().unwrap().is_unbroken);
    assert!(parser.packet(&found[3].payload).unwrap().unwrap().is_unbroken);
}

/// If the first slice of a picture is lost, its other slices are refused. So is a repeated slice.
#[test]
fn a_picture_lacks_no_slice_at_its_start() {
    let found = pictures(SLICES);
    let mut parser = AccessUnits::default();
    parser.packet(&found[0].payload).unwrap();
    let slices = units_of(&found[1].payload);
    let packet = |units: &[&Vec<u8>]| {
        let mut packet = Vec::new();
        units.iter().for_each(|unit| assembly::append(&mut packet, unit));
        packet
    };
    assert!(matches!(parser.packet(&packet(&[&slices[1], &slices[2]])), Err(BitstreamError::Damaged { .. })));
    let twice = parser.packet(&packet(&[&slices[0], &slices[1], &slices[1]]));
    assert_eq!(twice, Err(Unfit::Scattered.into()));
    let both = [&found[1].payload[..], &found[2].payload].concat();
    assert!(matches!(parser.packet(&both), Err(BitstreamError::Damaged { .. })));
}

#[test]
fn recovery_points_are_places_to_begin_by_the_word_of_the_encoder() {
    let refresh = pictures(REFRESH);
    let points = refresh.iter().filter_map(|unit| match unit.entry {
        Some(Entry::Recovery { frames }) => Some((frames, unit.is_intra)),
        _ => None,
    });
    let points: Vec<_> = points.collect();
    assert!(
        !points.is_empty() && points.iter().all(|&(frames, is_intra)| frames > 0 && !is_intra),
        "{points:?}"
    );
    let open = pictures(OPEN_GOP);
    assert_eq!(open[4].entry, Some(Entry::Recovery { frames: 0 }));
    // A parser that begins there gets a whole chain, with the parameter sets.
    let mut parser = AccessUnits::default();
    for unit in &open[4..] {
        assert!(parser.packet(&unit.payload).unwrap().unwrap().is_unbroken);
    }
    // Decoding cannot begin between gradually refreshed pictures, or at any other picture.
    for before in [&refresh[5..], &open[1..3]] {
        let mut parser = AccessUnits::default();
        let joined = before.iter().all(|unit| parser.packet(&unit.payload).is_err());
        assert!(joined, "a chain begins where there is no key frame");
    }
}

/// Writes streams with one macroblock per picture. They are never decoded.
#[derive(Debug, Clone, Copy)]
struct Script {
    /// `pic_order_cnt_type`.
    order: u32,
}

/// A picture of a [`Script`].
#[derive(Debug, Clone, Copy, Default)]
struct Scene {
    key: bool,
    spare: bool,
    frame_num: u32,
    order_bits: u32,
    forgets_all: bool,
}

impl Script {
    fn unit(header: u8, write: impl FnOnce(&mut BitWriter)) -> Vec<u8> {
        let mut writer = BitWriter::default();
        write(&mut writer);
        let mut unit = Vec::new();
        escape(header, &writer.rest(&[0x80], 0).unwrap(), &mut unit);
        unit
    }

    /// Profile main, 16 frame numbers, 16 orders, 16×16 pixels.
    fn sets(self) -> Vec<u8> {
        let sequence = Self::unit(0x67, |out| {
            out.bits(77 << 16 | 30, 24);
            out.unsigned(0);
            out.unsigned(0);
            out.unsigned(self.order);
            match self.order {
                0 => out.unsigned(0),
                1 => {
                    // No differences; non-reference +1, top to bottom 0; a cycle of one: +2.
                    out.bits(1, 1);
                    out.unsigned(1);
                    out.unsigned(0);
                    out.unsigned(1);
                    out.unsigned(3);
                }
                _ => {}
            }
            out.unsigned(1);
            out.bits(0, 1);
            out.unsigned(0);
            out.unsigned(0);
            // Frames only, 8×8 inference, no crop, no VUI.
            out.bits(0b1100, 4);
        });
        let picture = Self::unit(0x68, |out| {
            out.unsigned(0);
            out.unsigned(0);
            out.bits(0, 2);
            for _ in 0..3 {
                out.unsigned(0);
            }
            out.bits(0, 3);
            for _ in 0..3 {
                out.unsigned(0);
            }
            out.bits(0, 3);
        });
        [sequence, picture].concat()
    }

    fn picture(self, scene: Scene) -> Vec<u8> {
        let header = if scene.key { 0x65 } else { u8::from(!scene.spare) << 5 | 1 };
        let slice = Self::unit(header, |out| {
            out.unsigned(0);
            out.unsigned(if scene.key { 7 } else { 5 });
            out.unsigned(0);
            out.bits(scene.frame_num, 4);
            if scene.key {
                out.unsigned(0);
            }
            if self.order == 0 {
                out.bits(scene.order_bits, 4);
            }
            if !scene.key {
                // No override of the list's length, no change of the list.
                out.bits(0, 2);
            }
            if scene.key {
                out.bits(0, 2);
            } else if !scene.spare {
                out.bits(u32::from(scene.forgets_all), 1);
                if scene.forgets_all {
                    out.unsigned(5);
                    out.unsigned(0);
                }
            }
        });
        if scene.key { [self.sets(), slice].concat() } else { slice }
    }

    fn run(self, scenes: &[Scene]) -> Results {
        let mut parser = AccessUnits::default();
        scenes.iter().filter_map(|scene| parser.packet(&self.picture(*scene)).transpose()).collect()
    }
}

const KEY: Scene = Scene { key: true, spare: false, frame_num: 0, order_bits: 0, forgets_all: false };

/// Consecutive pictures with their frame numbers and orders. No other picture needs every third one.
fn row(length: u32) -> Vec<Scene> {
    let mut number = 0;
    let follow = |at| {
        let scene = Scene {
            spare: at % 3 == 0,
            frame_num: (number + 1) % 16,
            order_bits: at * 2 % 16,
            ..Scene::default()
        };
        number += u32::from(!scene.spare);
        scene
    };
    std::iter::once(KEY).chain((1..length).map(follow)).collect()
}

/// A parameter set that no picture names is ignored. A decoder that reads all sets of a picture would refuse it.
#[test]
fn sets_of_another_kind_that_no_picture_uses_do_not_go_along() {
    let interlaced = Script::unit(0x67, |out| {
        out.bits(77 << 16 | 30, 24);
        out.unsigned(1);
        for _ in 0..4 {
            out.unsigned(0);
        }
        out.bits(0, 1);
        out.unsigned(0);
        out.unsigned(0);
        out.bits(0b00100, 5);
    });
    let key = Script { order: 2 }.picture(KEY);
    let mut parser = AccessUnits::default();
    let picture = parser.packet(&[interlaced, key.clone()].concat()).unwrap().unwrap();
    assert_eq!(picture.payload, key);
    assert!(look(&picture.payload, 10_000).is_ok());
}

#[test]
fn orders_and_numbers_wrap_around_without_a_gap() {
    for order in 0..3 {
        let seen = Script { order }.run(&row(100));
        let mut newest = -1;
        for (at, picture) in seen.into_iter().enumerate() {
            let picture = picture.unwrap();
            assert!(picture.is_unbroken && picture.order > newest, "{order}, {at}: {picture:?}");
            assert_eq!(picture.is_needed, at % 3 != 0 || at == 0);
            newest = picture.order;
        }
    }
}

#[test]
fn pictures_that_none_needs_may_be_lost_and_the_others_are_counted() {
    let script = Script { order: 0 };
    let mut scenes = row(40);
    scenes.retain(|scene| !scene.spare);
    assert!(script.run(&scenes).into_iter().all(|picture| picture.unwrap().is_unbroken));
    let mut scenes = row(40);
    scenes.drain(4..9);
    let seen: Vec<_> = script.run(&scenes).into_iter().map(Result::unwrap).collect();
    assert_eq!(seen[4].missing, 4, "one of five was needed by none");
    assert!(!seen[4].is_unbroken && !seen.last().unwrap().is_unbroken);
}

/// A picture that forgets all references restarts the numbering at 0, but is not a key picture.
#[test]
fn counting_begins_anew_where_the_encoder_says_so() {
    let mut scenes = row(10);
    scenes[7] =
        Scene { forgets_all: true, frame_num: scenes[7].frame_num, order_bits: 14, ..Scene::default() };
    scenes.truncate(8);
    for at in 1..4 {
        scenes.push(Scene { frame_num: at, order_bits: at * 2, ..Scene::default() });
    }
    let seen = Script { order: 0 }.run(&scenes);
    assert!(seen.iter().all(|picture| picture.as_ref().unwrap().is_unbroken), "{seen:?}");
    assert_eq!(seen.last().unwrap().as_ref().unwrap().order, 6);
}

#[test]
fn a_picture_that_is_shown_earlier_is_refused() {
    let mut scenes = row(6);
    scenes[4].order_bits = 5;
    let seen = Script { order: 0 }.run(&scenes);
    assert_eq!(seen[4], Err(Unfit::Reordered.into()));
    // After a loss, the order says nothing: the picture may belong to a chain whose key frame was lost.
    scenes.remove(2);
    assert!(Script { order: 0 }.run(&scenes).into_iter().all(|picture| picture.is_ok()));
}

fn any_stream() -> impl Strategy<Value = Vec<u8>> {
    let known = [BASELINE, SLICES, B_FRAMES, REFRESH, OPEN_GOP, INTERLACED, DEEP];
    let known: Vec<Vec<u8>> = known
        .map(<[u8]>::to_vec)
        .into_iter()
        .chain(
            (0..3).map(|order| row(30).iter().flat_map(|scene| Script { order }.picture(*scene)).collect()),
        )
        .collect();
    (
        prop::sample::select(known),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0usize..4), 0..20),
    )
        .prop_map(|(mut stream, changes)| {
            for (at, value, kind) in changes {
                let at = at.index(stream.len().max(1)).min(stream.len().saturating_sub(1));
                match kind {
                    0 => stream[at] = value,
                    1 => stream[at] ^= 1 << (value % 8),
                    2 => stream.insert(at, value),
                    _ if stream.len() > 40 => {
                        drop(stream.drain(at.min(stream.len() - 1)..(at + 3).min(stream.len())))
                    }
                    _ => {}
                }
            }
            stream
        })
}

proptest! {
    /// Pictures have the promised properties, whatever is wrong with their stream.
    #[test]
    fn damage_is_told_and_breaks_nothing_else(stream in any_stream(), piece in 1usize..500) {
        let limits = AccessUnitLimits { bytes_max: 4000, pixels_max: 10_000 };
        let mut parser = AccessUnits::new(limits);
        let results = parse(&mut parser, &stream, piece);
        for result in &results {
            match result {
                Ok(picture) => {
                    prop_assert!(picture.payload.len() <= 4000);
                    prop_assert!(u64::from(picture.width) * u64::from(picture.height) <= 10_000);
                    prop_assert!(picture.slices > 0);
                    let seen = look(&picture.payload, 10_000).unwrap();
                    prop_assert_eq!(seen.is_key, picture.entry == Some(Entry::Key));
                    prop_assert!(!seen.is_key || picture.is_unbroken && picture.is_needed);
                    // A new parser accepts a key frame alone.
                    if seen.is_key {
                        let again = AccessUnits::new(limits).packet(&picture.payload).unwrap().unwrap();
                        prop_assert_eq!(again.payload.clone(), picture.payload.clone());
                    }
                }
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
        let mut whole = AccessUnits::new(limits);
        prop_assert_eq!(parse(&mut whole, &stream, stream.len().max(1)), results);
    }

    #[test]
    fn any_description_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut parser = AccessUnits::default();
        let _ = parser.configure(&bytes);
        let _ = parser.packet(&bytes);
    }
}
