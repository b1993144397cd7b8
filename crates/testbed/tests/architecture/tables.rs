//! Which module of a crate may use which: the tables.

/// Who may use whom inside a crate.
pub(super) struct Table {
    /// Where the files of the crate lie.
    pub(super) src: &'static str,
    /// A module, and those that it may use besides itself. What a row does not name is forbidden. A file belongs to the longest name that it lies
    /// below. Rows stand in the order of use: none names one that stands below it.
    pub(super) rows: &'static [(&'static str, &'static [&'static str])],
    /// The module whose parts may also use all of `below`. Their own rows say what each part uses of the others.
    pub(super) parted: &'static str,
    pub(super) below: &'static [&'static str],
}

pub(super) const CORE: Table =
    Table { src: "crates/core/src", rows: CORE_ROWS, parted: "broker", below: BELOW_BROKERS };

pub(super) const TESTBED: Table =
    Table { src: "crates/testbed/src", rows: TESTBED_ROWS, parted: "world", below: BELOW_WORLDS };

const CORE_ROWS: &[(&str, &[&str])] = &[
    // What everything is made of.
    ("sync", &[]),
    ("units", &[]),
    ("name", &[]),
    ("buffer", &[]),
    ("clock", &["units"]),
    ("frame", &["units"]),
    ("setting", &["frame"]),
    ("profile", &["frame", "setting"]),
    ("trace", &["units"]),
    ("unread", &["units"]),
    ("window", &["units"]),
    ("admission", &["units"]),
    ("contract", &["units", "profile"]),
    // Frames that are kept.
    ("log", &["buffer", "frame", "sync", "trace", "units", "unread"]),
    ("history", &["frame", "log", "name", "setting", "units"]),
    ("subscription", &["contract", "frame", "history", "log", "name", "units"]),
    // What is sent, and as what.
    ("controller", &["contract", "frame", "name", "profile", "setting", "units"]),
    ("wire", &["contract", "controller", "frame", "history", "name", "profile", "trace", "units"]),
    ("store", &["frame", "history", "log", "name", "units", "wire"]),
    // The brokers, from their smallest parts up. Their own rows say what each part uses of its broker; of the modules above, all.
    ("broker", &[]),
    ("broker::epochs", &["broker", "frame", "name"]),
    ("broker::intake", &["broker", "frame", "log", "units"]),
    ("broker::camera::types", &["broker"]),
    ("broker::camera::ledger", &[]),
    ("broker::camera::rate", &[]),
    ("broker::camera::status", &["broker::camera::types", "broker"]),
    ("broker::camera::connection", &["broker::camera::types", "broker", "broker::epochs"]),
    ("broker::camera::adapt", &["broker::camera::types", "broker"]),
    (
        "broker::camera::negotiation",
        &["broker::camera::adapt", "broker::camera::connection", "broker::camera::types", "broker"],
    ),
    (
        "broker::camera::live",
        &[
            "broker::camera::negotiation",
            "broker::camera::adapt",
            "broker::camera::connection",
            "broker::camera::ledger",
            "broker::camera::types",
            "broker",
        ],
    ),
    (
        "broker::camera::history",
        &["broker::camera::connection", "broker::camera::ledger", "broker::camera::types", "broker"],
    ),
    (
        "broker::camera",
        &[
            "broker::camera::live",
            "broker::camera::history",
            "broker::camera::negotiation",
            "broker::camera::adapt",
            "broker::camera::connection",
            "broker::camera::ledger",
            "broker::camera::rate",
            "broker::camera::status",
            "broker::camera::types",
            "broker",
        ],
    ),
    ("broker::edge::types", &["broker", "broker::intake"]),
    ("broker::edge::arrivals", &["broker", "broker::intake"]),
    ("broker::edge::profiles", &[]),
    ("broker::edge::subscriptions", &["broker::edge::types"]),
    ("broker::edge::report", &["broker::edge::types"]),
    ("broker::edge::shares", &["broker::edge::arrivals", "broker::edge::types", "broker"]),
    ("broker::edge::connection", &["broker::edge::arrivals", "broker::edge::types", "broker"]),
    (
        "broker::edge::replica",
        &["broker::edge::connection", "broker::edge::arrivals", "broker::edge::types", "broker"],
    ),
    (
        "broker::edge::camera",
        &[
            "broker::edge::replica",
            "broker::edge::report",
            "broker::edge::connection",
            "broker::edge::types",
            "broker",
        ],
    ),
    (
        "broker::edge::roster",
        &[
            "broker::edge::camera",
            "broker::edge::replica",
            "broker::edge::connection",
            "broker::edge::arrivals",
            "broker::edge::types",
            "broker",
        ],
    ),
    (
        "broker::edge::session",
        &["broker::edge::roster", "broker::edge::connection", "broker", "broker::epochs"],
    ),
    (
        "broker::edge::history",
        &["broker::edge::roster", "broker::edge::arrivals", "broker::edge::types", "broker"],
    ),
    (
        "broker::edge::view",
        &[
            "broker::edge::camera",
            "broker::edge::connection",
            "broker::edge::shares",
            "broker::edge::subscriptions",
            "broker::edge::types",
        ],
    ),
    (
        "broker::edge",
        &[
            "broker::edge::view",
            "broker::edge::history",
            "broker::edge::roster",
            "broker::edge::session",
            "broker::edge::camera",
            "broker::edge::replica",
            "broker::edge::report",
            "broker::edge::shares",
            "broker::edge::subscriptions",
            "broker::edge::connection",
            "broker::edge::arrivals",
            "broker::edge::profiles",
            "broker::edge::types",
            "broker",
            "broker::epochs",
            "broker::intake",
        ],
    ),
    // What an application gets: its contract on each camera, and its frames.
    (
        "contract::watch",
        &[
            "broker::edge",
            "broker::edge::types",
            "contract",
            "frame",
            "name",
            "profile",
            "subscription",
            "units",
            "wire",
        ],
    ),
    (
        "session",
        &[
            "contract::watch",
            "broker::edge",
            "broker::edge::types",
            "contract",
            "frame",
            "history",
            "log",
            "name",
            "profile",
            "subscription",
            "trace",
            "units",
        ],
    ),
];

/// Modules that every part of a broker may use.
const BELOW_BROKERS: &[&str] = &[
    "buffer",
    "clock",
    "contract",
    "controller",
    "frame",
    "history",
    "log",
    "name",
    "profile",
    "setting",
    "subscription",
    "trace",
    "units",
    "window",
    "wire",
];

const TESTBED_ROWS: &[(&str, &[&str])] = &[
    // What everything is made of.
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
    // What a world is made of, from its smallest parts up. No part knows the world.
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
    ("world::network", &[]),
    ("world::camera", &["world::storage"]),
    ("world::edge", &["world::storage"]),
    ("world::application", &["world::edge"]),
    ("world::visitors", &["world::edge"]),
    ("world::thieves", &["world::camera"]),
    (
        "world::watch",
        &["world::application", "world::camera", "world::edge", "world::network", "world::thieves"],
    ),
    (
        "world",
        &[
            "world::application",
            "world::camera",
            "world::edge",
            "world::network",
            "world::thieves",
            "world::visitors",
            "world::watch",
        ],
    ),
    // Worlds that are drawn at random, or written down.
    (
        "scenario",
        &["channel", "disk", "footage", "link", "random", "time", "world", "world::action", "world::spec"],
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
const BELOW_WORLDS: &[&str] = &[
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
