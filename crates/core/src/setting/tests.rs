use proptest::prelude::*;

use super::*;
use crate::frame::RUNG_BYTES_MAX;

fn width() -> impl Strategy<Value = Option<Width>> {
    prop::option::of((16u32..=16_384).prop_map(Width::clamped))
}

fn jpeg() -> impl Strategy<Value = Jpeg> {
    (width(), 1u8..=100, prop::sample::select(&Sampling::ALL[..]))
        .prop_map(|(width, quality, sampling)| Jpeg { width, quality: Quality::clamped(quality), sampling })
}

fn knobs() -> impl Strategy<Value = Knobs> {
    (
        prop::sample::select(&Scale::ALL[..]),
        prop::sample::select(&ColourSpace::ALL[..]),
        prop::option::of(prop::sample::select(&BoxBlur::ALL[..])),
        prop::sample::select(&Artefacts::ALL[..]),
        prop::option::of((0u8..=100).prop_map(Percent::clamped)),
        prop::option::of((1u8..=100).prop_map(Quality::clamped)),
    )
        .prop_map(|(scale, colour, blur, artefacts, difference, quality)| Knobs {
            scale,
            colour,
            blur,
            artefacts,
            difference,
            coding: quality.map_or(StillCoding::Png, StillCoding::Jpeg),
        })
}

/// Up to three knobs fit into a rung whatever their values are, if their names are short.
fn data() -> impl Strategy<Value = DataKnobs> {
    let value = prop_oneof![
        (-999_999i64..1_000_000).prop_map(|whole| whole as f64),
        (-99_999i64..100_000).prop_map(|millionths| millionths as f64 / 1e6),
    ];
    let knob = ("[a-z][a-z0-9_]{0,2}", value);
    prop::collection::vec(knob, 1..4).prop_filter_map("a name twice", |knobs| {
        let values = knobs
            .iter()
            .map(|(name, value)| (name.as_str(), KnobValue::from_f64(*value).expect("six decimals at most")));
        DataKnobs::new(values)
    })
}

fn setting() -> impl Strategy<Value = Setting> {
    let form = prop_oneof![
        data().prop_map(Form::Data),
        Just(Form::Original),
        jpeg().prop_map(Form::Jpeg),
        jpeg().prop_map(Form::Tiles),
        (width(), 10u8..=51)
            .prop_map(|(width, q)| { Form::H264(H264 { width, quantiser: Quantiser::clamped(q) }) }),
        knobs().prop_map(Form::Knobs),
    ];
    (form, any::<u8>()).prop_map(|(form, skip)| Setting { form, skip })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_setting_has_a_name_that_means_it(setting in setting()) {
        let rung = setting.rung();
        prop_assert!(rung.as_str().len() <= RUNG_BYTES_MAX);
        prop_assert_eq!(rung.setting(), Ok(setting));
    }

    /// Every text that parses is canonical.
    #[test]
    fn a_name_that_parses_is_the_one_that_is_printed(
        parts in prop::collection::vec(
            prop::sample::select(&[
                "original", "jpeg", "tiles", "h264", "knobs", "w640", "w0640", "w8", "q20", "q+20", "q0", "q101", "420",
                "data", "top=30", "top=030", "t=0.1", "t=-0", "t=.5", "T=1", "skip=1",
                "gray", "s33", "hsv", "blur5", "blur6", "moving", "diff0", "diff101", "png", "skip0", "skip2", "skip999", "",
            ][..]),
            1..6,
        ),
    ) {
        let text = parts.join("/");
        match text.parse::<Setting>() {
            Ok(setting) => prop_assert_eq!(setting.to_string(), text),
            Err(error) => {
                let (said, quoted) = (error.to_string(), format!("{text:?}"));
                prop_assert!(said.contains(&quoted));
            }
        }
    }

    #[test]
    fn no_frame_is_enlarged_or_vanishes(setting in setting(), width in 1u32..5000, height in 1u32..5000) {
        let (w, h) = setting.size((width, height));
        prop_assert!(w >= 1 && h >= 1);
        // H.264 cannot have a side of one pixel.
        prop_assert!(w <= width.max(2) && h <= height.max(2), "{} makes {}x{}", setting, w, h);
    }
}

#[test]
fn names_are_those_that_people_write() {
    for name in [
        "original",
        "original/skip2",
        "jpeg/w1920/q80/420",
        "jpeg/q80/gray",
        "tiles/w1280/q70/444",
        "h264/w768/q32",
        "h264/q24/skip4",
        "knobs/png",
        "knobs/s33/gray/blur5/moving/diff18/q95",
        "knobs/luv/contours/diff0/png",
        "data/top=30/threshold=0.1",
        "data/threshold=0.1/top=30",
        "data/voxel=0.000001/skip2",
        "data/a=-999999999.999999",
        "data/a=1/b=1/c=1/d=1/e=1/f=1/g=1/h=1/skip255",
    ] {
        let setting: Setting = name.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(setting.rung().as_str(), name);
    }
    let error = |name: &str| name.parse::<Setting>().unwrap_err();
    assert_eq!(error("h265/q3"), SettingError::Family { text: "h265/q3".into() });
    assert!(matches!(error("h264/w768"), SettingError::Missing { missing: "the quantiser", .. }));
    assert!(matches!(error("h264/q9"), SettingError::Part { .. }));
    assert!(matches!(error("jpeg/q80/420/w640"), SettingError::Part { .. }));
    assert_eq!(
        error("jpeg/w0640/q80/420").to_string(),
        "the rung \"jpeg/w0640/q80/420\" is not in canonical form; write \"jpeg/w640/q80/420\""
    );
    assert!(matches!(error("data"), SettingError::Missing { missing: "a knob", .. }));
    for name in [
        "data/top",
        "data/top=",
        "data/top=1e3",
        "data/top=+1",
        "data/top=1000000000",
        "data/top=0.1234567",
        "data/Top=1",
        "data/skip=1",
        "data/1top=1",
        "data/top=1/top=2",
        "data/top=1/top=1",
        "data/seventeen_letters=1",
        "data/a=1/b=1/c=1/d=1/e=1/f=1/g=1/h=1/i=1",
        "data/skip1/top=1",
        "data/top=1/w640",
    ] {
        let refused = error(name);
        let of_knobs = matches!(refused, SettingError::Part { .. } | SettingError::Missing { .. });
        assert!(of_knobs, "{name}: {refused}");
    }
    for name in ["data/top=010", "data/top=1.0", "data/top=-0", "data/top=1/skip0"] {
        assert!(matches!(error(name), SettingError::NotCanonical { .. }), "{name}");
    }
    assert!(matches!(error("h264/q30/skip0"), SettingError::NotCanonical { .. }));
}

/// The sizes of the paper at 1080p, and their ratios elsewhere.
#[test]
fn resolutions_are_the_published_ones() {
    let sizes = |source| Scale::ALL.map(|scale| scale.size(source));
    assert_eq!(sizes((1920, 1080)), [(1920, 1080), (1312, 736), (960, 528), (640, 352), (480, 256)]);
    assert_eq!(sizes((768, 576)), [(768, 576), (512, 384), (384, 288), (256, 192), (192, 144)]);
    assert_eq!(sizes((20, 3)), [(20, 3), (13, 2), (10, 1), (6, 1), (5, 1)]);
}

#[test]
fn a_width_keeps_the_shape() {
    let size = |name: &str, source| name.parse::<Setting>().unwrap().size(source);
    assert_eq!(size("jpeg/w640/q80/420", (1920, 1080)), (640, 360));
    assert_eq!(size("jpeg/w641/q80/420", (1920, 1080)), (641, 361));
    assert_eq!(size("h264/w641/q30", (1920, 1080)), (640, 360));
    assert_eq!(size("h264/q30", (123, 77)), (122, 76));
    assert_eq!(size("tiles/w4000/q80/420", (1920, 1080)), (1920, 1080));
}

#[test]
fn the_default_ladder_goes_down() {
    for source in [(1920, 1080), (768, 576), (640, 480), (100, 80)] {
        for chains in [Chains::NONE, Chains::TILES, Chains::ALL] {
            let ladder = default_ladder(source, chains);
            assert!(
                ladder[1..].iter().all(|rung| rung.is_chained() == (chains != Chains::NONE)),
                "{ladder:?}"
            );
            assert_eq!(ladder[0], Setting::ORIGINAL);
            let areas: Vec<u32> = ladder.iter().map(|rung| rung.size(source)).map(|(w, h)| w * h).collect();
            assert!(areas.is_sorted_by(|a, b| a >= b), "{areas:?}");
            let names: std::collections::BTreeSet<String> = ladder.iter().map(Setting::to_string).collect();
            assert_eq!(names.len(), ladder.len());
        }
    }
}

fn declared(knobs: &[(&str, &[f64])], skips: &[u8]) -> Result<DeclaredKnobs, DeclareError> {
    let value = |number: &f64| KnobValue::from_f64(*number).expect("a value");
    let knobs =
        knobs.iter().map(|(name, values)| ((*name).to_owned(), values.iter().map(value).collect())).collect();
    DeclaredKnobs::new(knobs, skips.to_vec())
}

#[test]
fn a_stream_has_the_rungs_of_its_knobs_in_its_order() {
    let stream = declared(&[("top", &[10.0, 30.0]), ("threshold", &[0.0, 0.1])], &[2]).unwrap();
    let all: Vec<String> = stream.all().iter().map(|knobs| knobs.as_str().to_owned()).collect();
    let expected =
        ["top=10/threshold=0", "top=10/threshold=0.1", "top=30/threshold=0", "top=30/threshold=0.1"];
    assert_eq!(all, expected);
    assert!(stream.all().iter().all(|knobs| stream.has(knobs)));
    let of = |rung: &str| match rung.parse::<Setting>().unwrap().form {
        Form::Data(knobs) => stream.has(&knobs),
        _ => panic!("{rung}"),
    };
    for other in
        ["data/top=10", "data/threshold=0/top=10", "data/top=20/threshold=0", "data/top=10/threshold=0/x=1"]
    {
        assert!(!of(other), "{other}");
    }
    assert!(stream.skips(0) && stream.skips(2) && !stream.skips(1));
    let only_skip = declared(&[], &[1]).unwrap();
    assert!(only_skip.all().is_empty() && only_skip.skips(1));
}

#[test]
fn what_cannot_be_declared_is_refused_by_name() {
    let many: Vec<f64> = (0..33).map(f64::from).collect();
    let nine: Vec<(&str, &[f64])> =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| (name, &[1.0][..])).to_vec();
    let thirty_two = &many[..32];
    for (knobs, names) in [
        (vec![("skip", &[1.0][..])], "skip"),
        (vec![("Top", &[1.0][..])], "Top"),
        (vec![("top", &[1.0][..]), ("top", &[2.0][..])], "top is declared twice"),
        (vec![("top", &[][..])], "top has 0 values"),
        (vec![("top", &many[..])], "top has 33 values"),
        (vec![("top", &[1.0, 1.0][..])], "top has the value 1 twice"),
        (nine, "9 knobs"),
        (vec![("a", thirty_two), ("b", thirty_two), ("c", thirty_two)], "32768 combinations"),
        (
            vec![("one_long_name", &[-0.000_001][..]), ("another_name", &[1.0]), ("the_third_one", &[1.0])],
            "longer than",
        ),
    ] {
        let error = declared(&knobs, &[]).unwrap_err().to_string();
        assert!(error.contains(names), "{error}");
    }
    for absurd in [f64::NAN, f64::INFINITY, 1e9, -1e9, 1e300, 0.000_000_1, 0.123_456_7] {
        assert_eq!(KnobValue::from_f64(absurd), None, "{absurd}");
    }
    assert_eq!(KnobValue::from_f64(-0.0).unwrap().to_string(), "0");
    assert_eq!(KnobValue::from_f64(0.1).unwrap().get().to_bits(), 0.1f64.to_bits());
}
