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

fn setting() -> impl Strategy<Value = Setting> {
    let form = prop_oneof![
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

    /// What parses is canonical, whatever is typed.
    #[test]
    fn a_name_that_parses_is_the_one_that_is_printed(
        parts in prop::collection::vec(
            prop::sample::select(&[
                "original", "jpeg", "tiles", "h264", "knobs", "w640", "w0640", "w8", "q20", "q+20", "q0", "q101", "420",
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
