//! Runs every committed input through its target, with any compiler.

use std::fs;
use std::path::Path;

use mez_core::wire::{FrameHeader, MessageBuffer};
use mez_fuzz::{seeds, target};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/seeds");

#[test]
fn every_committed_input_runs() {
    let mut inputs = 0;
    for folder in fs::read_dir(SEEDS).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let target = target(&name).unwrap_or_else(|| panic!("there is no target {name}"));
        for file in fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            target(&fs::read(&path).unwrap());
            inputs += 1;
        }
    }
    assert!(inputs >= seeds::all().len());
}

#[test]
fn the_committed_inputs_are_those_that_the_generator_makes() {
    for seed in seeds::all() {
        let path = Path::new(SEEDS).join(seed.target).join(&seed.name);
        let remedy = "run `cargo run -p mez-fuzz --example seeds`";
        let committed =
            fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; {remedy}", path.display()));
        assert!(committed == seed.bytes, "{} is out of date; {remedy}", path.display());
    }
}

/// Any input of a fuzzer can be written as text.
#[test]
fn every_committed_script_is_the_same_after_it_was_printed() {
    for (target, language) in [
        ("edge_broker", mez_fuzz::edge_broker::LANGUAGE),
        ("camera_broker", mez_fuzz::camera_broker::LANGUAGE),
    ] {
        for seed in seeds::all().iter().filter(|seed| seed.target == target) {
            let text = language.print(&seed.bytes);
            assert_eq!(language.parse(&text).as_ref(), Ok(&seed.bytes), "{}", seed.name);
        }
    }
}

/// Seeds must get past the first check, or fuzzing would start from nothing.
#[test]
fn the_inputs_get_past_the_first_check() {
    // Inputs that once caused a failure need not get far.
    for seed in seeds::all().into_iter().filter(|seed| !seed.name.starts_with("broke-")) {
        match seed.target {
            "wire_message" => {
                let mut buffer = MessageBuffer::default();
                buffer.push(&seed.bytes[1..]);
                assert!(matches!(buffer.next(), Ok(Some(_))), "{}", seed.name);
            }
            "frame_header" => assert!(FrameHeader::decode(&seed.bytes).is_ok(), "{}", seed.name),
            "h264_access_units" => {
                let pictures = mez_fuzz::access_units::taken(&seed.bytes);
                // Streams of unsupported kinds are refused at their first picture.
                let is_refused = matches!(&*seed.name, "interlaced" | "deep");
                assert!(is_refused || pictures > 1, "{}: {pictures}", seed.name);
            }
            "nut" => assert!(mez_fuzz::nut::taken(&seed.bytes) > 5, "{}", seed.name),
            "jpeg" => assert!(mez_media::jpeg::probe(&seed.bytes[1..]).is_ok(), "{}", seed.name),
            "tiles" => assert_eq!(mez_fuzz::tiles::taken(&seed.bytes), 2, "{}", seed.name),
            "log_segments" => assert!(mez_fuzz::log_segments::play(&seed.bytes) > 0, "{}", seed.name),
            "stream" => assert!(mez_fuzz::stream::taken(&seed.bytes) > 2, "{}", seed.name),
            "camera_pattern" => {
                let text = String::from_utf8(seed.bytes).unwrap();
                let (pattern, name) = text.split_once('\n').unwrap();
                assert!(pattern.parse::<mez_core::name::CameraPattern>().is_ok(), "{pattern}");
                assert!(name.parse::<mez_core::name::CameraName>().is_ok(), "{name}");
            }
            "api_request" => assert!(mez_fuzz::api::taken(&seed.bytes) > 0, "{}", seed.name),
            "deny_list" => assert!(mez_fuzz::deny_list::taken(&seed.bytes), "{}", seed.name),
            "edge_broker" => assert!(mez_fuzz::edge_broker::play(&seed.bytes) > 1, "{}", seed.name),
            "camera_broker" => assert!(mez_fuzz::camera_broker::play(&seed.bytes) > 0, "{}", seed.name),
            other => panic!("{other} has inputs and no check here"),
        }
    }
}
