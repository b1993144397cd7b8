//! Tests which modules of core and of the testbed may use each other, and that no two of their files use each other mutually.

use std::collections::BTreeMap;

use super::assert_none;
use super::source::{SourceFile, crate_files, parse};
use super::testbed;

/// The allowed uses inside a crate.
struct Table {
    /// The folder of the crate's files.
    src: &'static str,
    /// A module, and the modules that it may use besides itself. All other uses are forbidden. A file belongs to the longest module name above it.
    /// Rows are in the order of use: a row names only rows above it.
    rows: &'static [(&'static str, &'static [&'static str])],
    /// The module whose parts may also use all of `below`. The rows of the parts say which other parts they use.
    parted: &'static str,
    below: &'static [&'static str],
}

const CORE: Table = Table { src: "crates/core/src", rows: MODULES, parted: "broker", below: BELOW_BROKERS };

const TESTBED: Table =
    Table { src: "crates/testbed/src", rows: testbed::ROWS, parted: "world", below: testbed::BELOW_WORLDS };

/// The allowed uses in core.
const MODULES: &[(&str, &[&str])] = &[
    // The basis of everything.
    ("sync", &[]),
    ("units", &[]),
    ("name", &[]),
    ("rights", &["name"]),
    ("audit", &["units"]),
    ("buffer", &[]),
    ("clock", &["units"]),
    ("frame", &["units"]),
    ("chain", &["frame", "units"]),
    ("setting", &["frame"]),
    ("profile", &["frame", "setting"]),
    ("trace", &["units"]),
    ("reader_memory", &["units"]),
    ("allowance", &["units"]),
    ("source", &["units"]),
    ("window", &["units"]),
    ("admission", &["units"]),
    ("renewal", &["units"]),
    ("contract", &["frame", "units", "profile"]),
    // Kept frames.
    ("log", &["buffer", "chain", "frame", "sync", "trace", "units", "reader_memory"]),
    // For tests of all modules.
    ("sample", &["frame", "log", "units"]),
    ("ancestors", &["frame", "log"]),
    ("history", &["frame", "log", "name", "setting", "units"]),
    ("stills", &["chain", "frame", "history", "log", "trace", "units"]),
    ("subscription", &["chain", "contract", "frame", "history", "log", "name", "rights", "stills", "units"]),
    ("group", &["contract", "frame", "name", "rights", "subscription", "units"]),
    // What is sent, and its encoding.
    ("controller", &["contract", "frame", "name", "profile", "setting", "units"]),
    ("wire", &["contract", "controller", "frame", "history", "name", "profile", "source", "trace", "units"]),
    ("store", &["chain", "frame", "history", "log", "name", "units", "wire"]),
    ("revocation", &["name", "units", "wire"]),
    ("answers", &["clock", "frame", "trace", "units", "wire"]),
    ("data", &["frame", "name", "units", "wire"]),
    ("join", &["data", "frame", "name", "units"]),
    // The brokers, from their smallest parts up. Each part may use all modules above. Its row says which parts of its broker it uses.
    ("broker", &[]),
    ("broker::epochs", &["broker", "frame", "name"]),
    ("broker::revocations", &["broker", "wire"]),
    ("broker::intake", &["broker", "data", "frame", "log", "units", "wire"]),
    ("broker::camera::types", &["broker"]),
    ("broker::camera::ledger", &[]),
    ("broker::camera::rate", &[]),
    ("broker::camera::published", &["broker::camera::rate"]),
    ("broker::camera::answers", &["broker::camera::types", "broker"]),
    ("broker::camera::source", &["broker::camera::types", "broker"]),
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
    ("broker::camera::surveys", &["broker::camera::types", "broker"]),
    (
        "broker::camera",
        &[
            "broker::camera::live",
            "broker::camera::history",
            "broker::camera::surveys",
            "broker::camera::negotiation",
            "broker::camera::adapt",
            "broker::camera::connection",
            "broker::camera::answers",
            "broker::camera::published",
            "broker::camera::source",
            "broker::camera::status",
            "broker::camera::types",
            "broker",
            "broker::revocations",
        ],
    ),
    ("broker::edge::types", &["broker", "broker::intake"]),
    ("broker::edge::arrivals", &["broker", "broker::intake"]),
    ("broker::edge::pace", &[]),
    ("broker::edge::profiles", &[]),
    ("broker::edge::subscriptions", &["broker::edge::types"]),
    ("broker::edge::report", &["broker::edge::types"]),
    ("broker::edge::traffic", &["broker::edge::types"]),
    ("broker::edge::connection", &["broker::edge::arrivals", "broker::edge::types", "broker"]),
    (
        "broker::edge::replica",
        &["broker::edge::connection", "broker::edge::arrivals", "broker::edge::types", "broker"],
    ),
    ("broker::edge::derived", &["broker::edge::replica", "broker::edge::types", "broker", "broker::intake"]),
    (
        "broker::edge::camera",
        &[
            "broker::edge::derived",
            "broker::edge::replica",
            "broker::edge::report",
            "broker::edge::pace",
            "broker::edge::traffic",
            "broker::edge::connection",
            "broker::edge::types",
            "broker",
        ],
    ),
    (
        "broker::edge::shares",
        &["broker::edge::camera", "broker::edge::arrivals", "broker::edge::types", "broker"],
    ),
    (
        "broker::edge::roster",
        &[
            "broker::edge::shares",
            "broker::edge::camera",
            "broker::edge::replica",
            "broker::edge::report",
            "broker::edge::connection",
            "broker::edge::arrivals",
            "broker::edge::types",
            "broker",
        ],
    ),
    (
        "broker::edge::history",
        &["broker::edge::roster", "broker::edge::arrivals", "broker::edge::types", "broker"],
    ),
    ("broker::edge::surveys", &["broker::edge::roster", "broker::edge::types", "broker"]),
    (
        "broker::edge::applications",
        &[
            "broker::edge::roster",
            "broker::edge::derived",
            "broker::edge::connection",
            "broker::edge::subscriptions",
            "broker::edge::profiles",
            "broker::edge::types",
        ],
    ),
    (
        "broker::edge::session",
        &[
            "broker::edge::applications",
            "broker::edge::roster",
            "broker::edge::camera",
            "broker::edge::connection",
            "broker::edge::types",
            "broker",
            "broker::epochs",
        ],
    ),
    (
        "broker::edge::publishing",
        &[
            "broker::edge::applications",
            "broker::edge::roster",
            "broker::edge::camera",
            "broker::edge::derived",
            "broker::edge::types",
            "broker",
            "broker::intake",
        ],
    ),
    (
        "broker::edge::view",
        &[
            "broker::edge::roster",
            "broker::edge::camera",
            "broker::edge::subscriptions",
            "broker::edge::types",
        ],
    ),
    (
        "broker::edge",
        &[
            "broker::edge::view",
            "broker::edge::publishing",
            "broker::edge::derived",
            "broker::edge::applications",
            "broker::edge::history",
            "broker::edge::surveys",
            "broker::edge::session",
            "broker::edge::roster",
            "broker::edge::replica",
            "broker::edge::connection",
            "broker::edge::arrivals",
            "broker::edge::types",
            "broker",
            "broker::intake",
            "broker::revocations",
        ],
    ),
    (
        "broker::edge::past",
        &["broker::edge", "broker::edge::roster", "broker::edge::history", "broker::edge::surveys", "broker"],
    ),
    (
        "broker::edge::answers",
        &[
            "broker::edge",
            "broker::edge::roster",
            "broker::edge::camera",
            "broker::edge::connection",
            "broker::edge::types",
            "broker",
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
            "source",
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
            "stills",
            "subscription",
            "trace",
            "units",
        ],
    ),
    // The same for several members.
    (
        "group::session",
        &[
            "session",
            "group",
            "contract::watch",
            "broker::edge",
            "broker::edge::types",
            "contract",
            "frame",
            "history",
            "log",
            "name",
            "profile",
            "stills",
            "subscription",
            "units",
        ],
    ),
];

/// Modules that every part of a broker may use.
const BELOW_BROKERS: &[&str] = &[
    "ancestors",
    "answers",
    "buffer",
    "chain",
    "clock",
    "contract",
    "controller",
    "frame",
    "history",
    "log",
    "name",
    "profile",
    "rights",
    "setting",
    "source",
    "stills",
    "subscription",
    "trace",
    "units",
    "window",
    "wire",
];

/// A file that uses another: the indices of both, and where the first names the second.
struct Use {
    from: usize,
    to: usize,
    line: usize,
    path: String,
}

/// Which files use which. A re-exported name leads to the file that it comes from.
fn uses(files: &[SourceFile]) -> Vec<Use> {
    let by_module: BTreeMap<&[String], usize> =
        files.iter().enumerate().map(|(place, file)| (&*file.module, place)).collect();
    let mut uses: Vec<Use> = Vec::new();
    for (from, file) in files.iter().enumerate() {
        for named in &file.named {
            let to = lead(files, &by_module, &named.path, 0);
            let is_new = |to: usize| !uses.iter().any(|known| (known.from, known.to) == (from, to));
            if let Some(to) = to.filter(|to| *to != from && is_new(*to)) {
                uses.push(Use { from, to, line: named.line, path: named.path.join("::") });
            }
        }
    }
    uses
}

/// The file that a path leads to.
fn lead(
    files: &[SourceFile],
    by_module: &BTreeMap<&[String], usize>,
    path: &[String],
    depth: usize,
) -> Option<usize> {
    let known = (0..=path.len()).rev().find(|length| by_module.contains_key(&path[..*length]))?;
    let file = by_module[&path[..known]];
    let handed_on = path.get(known).and_then(|name| files[file].aliases.get(name));
    match handed_on.filter(|target| depth < 8 && target[..] != path[..=known]) {
        Some(target) => {
            let path: Vec<String> = target.iter().chain(&path[known + 1..]).cloned().collect();
            lead(files, by_module, &path, depth + 1)
        }
        None => Some(file),
    }
}

/// The name of the row that a file belongs to.
fn row_of(table: &Table, file: &SourceFile) -> Option<&'static str> {
    let module = file.module.join("::");
    let is_below =
        |name: &&str| module == *name || module.strip_prefix(name).is_some_and(|rest| rest.starts_with("::"));
    table.rows.iter().map(|(name, _)| *name).filter(is_below).max_by_key(|name| name.len())
}

/// Every forbidden use, one sentence each.
fn forbidden(table: &Table, files: &[SourceFile]) -> Vec<String> {
    let row_of = |file: &SourceFile| row_of(table, file);
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.module.is_empty() && row_of(file).is_none()) {
        found.push(format!("{}: not in the table of its crate; say there what it may use", file.path));
    }
    for Use { from, to, line, path } in uses(files) {
        let Some((from_row, to_row)) = row_of(&files[from]).zip(row_of(&files[to])) else { continue };
        let allowed =
            table.rows.iter().find(|(name, _)| *name == from_row).map_or(&[][..], |(_, allowed)| *allowed);
        let is_part = from_row.starts_with(table.parted) && !table.below.contains(&from_row);
        let is_below_parts = is_part && table.below.contains(&to_row);
        if from_row != to_row && !allowed.contains(&to_row) && !is_below_parts {
            let file = &files[from].path;
            found.push(format!(
                "{file}:{line} names {path}: the table of its crate does not let {from_row} use {to_row}; put what \
                 both need into a module below them, or lend it as an argument"
            ));
        }
    }
    found
}

/// Every cycle of files, described from one of its files, one sentence each.
fn circles(files: &[SourceFile]) -> Vec<String> {
    let uses = uses(files);
    let mut found = Vec::new();
    for start in 0..files.len() {
        // The shortest way back over files that come later in the list, so each cycle is described by its first file.
        let mut ways: Vec<Vec<&Use>> =
            uses.iter().filter(|one| one.from == start).map(|one| vec![one]).collect();
        let mut seen = vec![false; files.len()];
        while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
            let at = way.last().map_or(start, |last| last.to);
            if at == start {
                let steps =
                    way.iter().map(|one| format!("{}:{} names {}", files[one.from].path, one.line, one.path));
                let steps: Vec<String> = steps.collect();
                found.push(format!("a circle of {} files: {}", way.len(), steps.join("; ")));
                break;
            }
            if at > start && !std::mem::replace(&mut seen[at], true) {
                let next = uses.iter().filter(|one| one.from == at);
                ways.extend(next.map(|one| way.iter().copied().chain([one]).collect()));
            }
        }
    }
    found
}

/// The errors of a table itself.
fn breaches_of_table(table: &Table, files: &[SourceFile]) -> Vec<String> {
    let place = |name: &str| table.rows.iter().position(|(row, _)| *row == name);
    let mut found = Vec::new();
    for (row, (name, allowed)) in table.rows.iter().enumerate() {
        if !files.iter().any(|file| row_of(table, file) == Some(name)) {
            found.push(format!("{}: there is no file of {name}; take its row out of the table", table.src));
        }
        for used in *allowed {
            match place(used) {
                None => {
                    found.push(format!("{}: the table lets {name} use {used}, which has no row", table.src))
                }
                Some(below) if below >= row => {
                    found.push(format!(
                        "{}: the table lets {name} use {used}, which stands below it",
                        table.src
                    ));
                }
                Some(_) => {}
            }
        }
    }
    found
}

fn assert_kept(table: &Table, files_min: usize) {
    let files = crate_files(table.src);
    assert!(files.len() > files_min, "only {} files were found in {}", files.len(), table.src);
    let mut found = breaches_of_table(table, &files);
    found.extend(forbidden(table, &files));
    assert_none(&found);
}

#[test]
fn modules_of_core_use_only_what_the_table_allows() {
    assert_kept(&CORE, 100);
}

#[test]
fn modules_of_the_testbed_use_only_what_the_table_allows() {
    assert_kept(&TESTBED, 80);
}

#[test]
fn no_two_files_of_core_use_each_other() {
    assert_none(&circles(&crate_files(CORE.src)));
}

#[test]
fn no_two_files_of_the_testbed_use_each_other() {
    assert_none(&circles(&crate_files(TESTBED.src)));
}

fn made_up(texts: &[(&str, &str)]) -> Vec<SourceFile> {
    made_up_in(&CORE, texts)
}

fn made_up_in(Table { src, .. }: &Table, texts: &[(&str, &str)]) -> Vec<SourceFile> {
    let texts: Vec<(String, String)> =
        texts.iter().map(|(path, text)| (format!("{src}/{path}"), (*text).to_owned())).collect();
    parse(src, &texts)
}

/// The rule detects a use however a file names another.
#[test]
fn a_use_that_is_not_allowed_is_found_however_it_is_written() {
    for text in [
        "use crate::broker::LinkId;",
        "use crate::{broker::LinkId, units::Instant};",
        "use crate::broker::{self, LinkId as Link};",
        "use super::broker::LinkId;",
        "fn f() -> crate::broker::LinkId { todo!() }",
        "/// A comment.\nfn f() {\n    let link = super::broker::LinkId(1);\n}",
        "use crate::units::handed_on::LinkId;",
    ] {
        let units = "pub(crate) mod handed_on { }\npub use crate::broker::LinkId;";
        let others = [("units.rs", ""), ("broker/mod.rs", "pub struct LinkId(pub u64);")];
        let log = [("log/mod.rs", text)];
        let found = forbidden(&CORE, &made_up(&[&log[..], &others].concat()));
        if text.contains("handed_on") {
            // A re-exported name is that of the file it comes from.
            let others = [("units/mod.rs", "pub mod handed_on;"), ("units/handed_on.rs", units), others[1]];
            let found = forbidden(&CORE, &made_up(&[&log[..], &others].concat()));
            assert!(
                found.iter().any(|one| one.contains("log/mod.rs:1 names units::handed_on::LinkId")),
                "{found:?}"
            );
            continue;
        }
        let line = if text.starts_with("///") { 3 } else { 1 };
        let expected = format!("{}/log/mod.rs:{line} names broker", CORE.src);
        assert!(matches!(&found[..], [one] if one.starts_with(&expected)), "{text}: {found:?}");
    }
}

#[test]
fn what_is_no_use_is_not_taken_for_one() {
    let text = r##"
//! [`crate::broker`] and `crate::broker::LinkId`
const TEXT: &str = "crate::broker::LinkId"; const RAW: &str = r#"use crate::broker;"#;
pub(in super::super) fn f<'a>(one: &'a str) -> char { '"' }
#[cfg(test)]
mod tests {
    use crate::broker::LinkId;
}
"##;
    let files = made_up(&[("log/mod.rs", "mod ring;"), ("log/ring.rs", text), ("broker/mod.rs", "")]);
    assert_eq!(forbidden(&CORE, &files), [""; 0]);
}

#[test]
fn a_part_of_a_broker_may_not_use_the_broker() {
    let broker =
        ("broker/edge/mod.rs", "mod history;\nuse self::history::History;\npub struct EdgeBroker(History);");
    let part = ("broker/edge/history.rs", "use super::EdgeBroker;\npub(super) struct History;");
    let files = made_up(&[broker, part]);
    let found = forbidden(&CORE, &files);
    assert!(
        matches!(&found[..], [one] if one.contains("history.rs:1 names broker::edge::EdgeBroker")),
        "{found:?}"
    );
    let found = circles(&files);
    assert!(matches!(&found[..], [one] if one.starts_with("a circle of 2 files")), "{found:?}");
}

#[test]
fn a_rule_may_not_use_the_world_and_no_part_of_the_world_may_use_it() {
    let files = made_up_in(
        &TESTBED,
        &[
            (
                "world/mod.rs",
                "mod spec;\nmod visitors;\nuse self::visitors::Visitors;\npub struct World(Visitors);",
            ),
            ("world/spec.rs", "pub struct EdgeId(pub usize);"),
            ("world/visitors.rs", "use super::World;\nuse super::spec::EdgeId;\npub(super) struct Visitors;"),
            ("check/mod.rs", "mod deliveries;"),
            ("check/deliveries.rs", "use crate::world::spec::EdgeId;"),
        ],
    );
    let found = forbidden(&TESTBED, &files);
    for (place, breach) in
        ["visitors.rs:1 names world::World", "deliveries.rs:1 names world::spec::EdgeId"].iter().enumerate()
    {
        assert!(found.get(place).is_some_and(|one| one.contains(breach)), "{breach}: {found:?}");
    }
    assert_eq!(found.len(), 2, "{found:?}");
    let found = circles(&files);
    assert!(matches!(&found[..], [one] if one.starts_with("a circle of 2 files")), "{found:?}");
}

#[test]
fn a_circle_over_several_files_is_found_once_and_a_file_that_hands_on_is_none() {
    let files = made_up(&[
        ("log/a.rs", "use super::b::B;\npub struct A;"),
        ("log/b.rs", "use crate::log::C;\npub struct B;"),
        ("log/c.rs", "use super::a::A;\npub struct C;"),
        ("log/mod.rs", "mod a;\nmod b;\nmod c;\npub use self::c::C;\npub struct Log;"),
        ("log/d.rs", "use super::Log;"),
    ]);
    let found = circles(&files);
    assert!(matches!(&found[..], [one] if one.starts_with("a circle of 3 files")), "{found:?}");
}

#[test]
fn a_file_without_a_row_is_found() {
    let found = forbidden(&CORE, &made_up(&[("surprise.rs", "")]));
    assert!(matches!(&found[..], [one] if one.contains("not in the table of its crate")), "{found:?}");
}
