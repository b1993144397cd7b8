//! Holds the scenarios that come with Mez, so that they can be run by name without a checkout.

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// The name and the text of each scenario.
        pub const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*];
    };
}

shipped![
    "another_light",
    "cancelled_frames",
    "cut",
    "elevator",
    "falling_queue",
    "far_edge",
    "first_wait",
    "five_cameras",
    "interference",
    "interference_step",
    "looker",
    "originals",
    "outage",
    "priority",
    "priority_kept",
    "ramp",
    "shared_queue",
    "shared_wifi",
    "slow_return",
    "square_wave",
    "walking_away",
    "wifi_hidden",
];
