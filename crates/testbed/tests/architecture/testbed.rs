//! The table of which modules of the testbed may use which.

/// The allowed uses in the testbed. `modules.rs` explains the table.
pub(super) const ROWS: &[(&str, &[&str])] = &[
    // The basis of everything.
    ("random", &[]),
    ("time", &[]),
    ("chance", &["random"]),
    ("payload", &["random"]),
    ("trace", &["time"]),
    // Models.
    ("footage", &["chance", "random"]),
    ("link", &["random", "time"]),
    ("channel", &["chance", "random"]),
    ("disk", &["random"]),
    // The rules know nothing of the world.
    ("check", &["disk", "link", "payload", "time"]),
    ("disk::story", &["check", "disk", "random"]),
    // The parts of a world, from the smallest up. No part knows the world.
    ("world::bug", &[]),
    ("world::node", &["time"]),
    ("world::spec", &["channel", "footage", "link", "time"]),
    ("world::action", &["world::spec", "disk"]),
    ("world::events", &["world::action", "world::node", "world::spec", "time"]),
    (
        "world::stage",
        &["world::bug", "world::events", "world::node", "check", "disk", "random", "time", "trace"],
    ),
    ("world::storage", &[]),
    ("world::site", &[]),
    ("world::network", &[]),
    ("world::camera", &["world::site", "world::storage"]),
    ("world::edge", &["world::site", "world::storage"]),
    ("world::application", &["world::edge"]),
    ("world::group", &["world::application", "world::edge"]),
    ("world::visitors", &["world::edge"]),
    ("world::thieves", &["world::camera"]),
    (
        "world::watch",
        &[
            "world::application",
            "world::camera",
            "world::edge",
            "world::group",
            "world::network",
            "world::thieves",
        ],
    ),
    (
        "world",
        &[
            "world::application",
            "world::camera",
            "world::edge",
            "world::group",
            "world::network",
            "world::site",
            "world::thieves",
            "world::visitors",
            "world::watch",
        ],
    ),
    // Random worlds, and worlds from files.
    (
        "scenario",
        &[
            "channel",
            "disk",
            "footage",
            "link",
            "payload",
            "random",
            "time",
            "world",
            "world::action",
            "world::spec",
        ],
    ),
    (
        "scenario_file",
        &[
            "channel",
            "disk",
            "footage",
            "link",
            "payload",
            "random",
            "time",
            "world",
            "world::action",
            "world::application",
            "world::spec",
        ],
    ),
    // Policies without brokers.
    ("policies", &["chance", "channel", "random"]),
    ("awstream", &["channel", "policies"]),
];

/// Modules that every part of a world may use.
pub(super) const BELOW_WORLDS: &[&str] = &[
    "channel",
    "check",
    "disk",
    "footage",
    "link",
    "payload",
    "random",
    "time",
    "trace",
    "world::action",
    "world::bug",
    "world::events",
    "world::node",
    "world::spec",
    "world::stage",
];
