//! Checks that `docs/admission.md` agrees with the code.

use mez_core::admission::{
    HANDSHAKE_TIME_MAX, PREFACE_TIME_MAX, PREFACES_MAX, PREFACES_OF_ADDRESS_MAX, SILENCE_TIME_MAX,
    STRANGERS_MAX, STRANGERS_OF_ADDRESS_MAX,
};

const PAGE: &str = include_str!("../../../docs/admission.md");

#[test]
fn the_limits_in_the_table_are_those_of_the_code() {
    let seconds = |duration: std::time::Duration| format!("{} s", duration.as_secs());
    for (name, value) in [
        ("STRANGERS_MAX", STRANGERS_MAX.to_string()),
        ("STRANGERS_OF_ADDRESS_MAX", STRANGERS_OF_ADDRESS_MAX.to_string()),
        ("PREFACES_MAX", PREFACES_MAX.to_string()),
        ("PREFACES_OF_ADDRESS_MAX", PREFACES_OF_ADDRESS_MAX.to_string()),
        ("SILENCE_TIME_MAX", seconds(SILENCE_TIME_MAX)),
        ("HANDSHAKE_TIME_MAX", seconds(HANDSHAKE_TIME_MAX)),
        ("PREFACE_TIME_MAX", seconds(PREFACE_TIME_MAX)),
    ] {
        assert!(PAGE.contains(&format!("| `{name}` | {value} |")), "{name} is {value}");
    }
}
