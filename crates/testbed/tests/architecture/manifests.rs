//! Tests which crates may import which: the tables, and the check of every manifest.
//!
//! Rules are about direct dependencies of every kind (normal, development, build): a test that needs two layers lives in the upper one.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};

use Allowed::{Always, Behind};

use super::assert_none;
use super::source::{read, root};

/// One cell of a table: a crate, and whether the dependency is always allowed or only as an option.
#[derive(Clone, Copy)]
enum Allowed {
    Always(&'static str),
    /// Only as an optional dependency that the second name, a feature, turns on, and that no default feature turns on.
    Behind(&'static str, &'static str),
}

/// The allowed imports inside the workspace. All others are forbidden, and so is a crate without a row.
const INSIDE: &[(&str, &[Allowed])] = &[
    ("mez-core", &[]),
    ("mez-media", &[Always("mez-core")]),
    ("mez-node", &[Always("mez-core"), Always("mez-media")]),
    ("mez-testbed", &[Always("mez-core"), Always("mez-media"), Behind("mez-node", "sockets")]),
    // The part of emulated links that a product may contain.
    ("mez-emulator", &[Always("mez-core"), Always("mez-testbed")]),
    // Experiments: they may use everything but the command that contains them.
    (
        "mez-measure",
        &[
            Always("mez-core"),
            Always("mez-media"),
            Always("mez-node"),
            Always("mez-testbed"),
            Always("mez-emulator"),
        ],
    ),
    // The files of the page: bytes, which the command passes to the edge's web server.
    ("mez-page", &[]),
    (
        "mez-cli",
        &[
            Always("mez-core"),
            Always("mez-media"),
            Always("mez-node"),
            Always("mez-page"),
            Behind("mez-emulator", "emulator"),
            Behind("mez-measure", "bench"),
        ],
    ),
    ("mez-python", &[Always("mez-core"), Always("mez-media"), Always("mez-node"), Always("mez-cli")]),
    // Fuzz targets: no part of the product.
    ("mez-fuzz", &[Always("mez-core"), Always("mez-media"), Always("mez-node")]),
];

/// External crates that are restricted: patterns (`*` at one end stands for anything), the crates that may import them, and the reason. Other
/// external crates may be used by every crate but core.
const OUTSIDE: &[(&[&str], &[Allowed], &str)] = &[
    (
        &["tokio", "tokio-*", "futures*", "async-*", "mio", "socket2", "quinn", "quinn-*"],
        &[Always("mez-node"), Behind("mez-testbed", "sockets")],
        "sockets and the asynchronous runtime belong to node; other crates call its blocking interface",
    ),
    (
        &[
            "tonic", "tonic-*", "prost", "prost-*", "protox", "h2", "http", "hyper", "hyper-*", "tower",
            "tower-*",
        ],
        &[Always("mez-node"), Behind("mez-testbed", "sockets"), Always("mez-fuzz")],
        "gRPC is one way into node; but for fuzzing no other crate knows protobuf messages",
    ),
    (
        &["rustls", "rustls-*", "rcgen", "x509-*"],
        &[Always("mez-node"), Behind("mez-testbed", "sockets")],
        "keys and certificates are handled in one place",
    ),
    (
        &["pyo3", "pyo3-*", "numpy"],
        &[Always("mez-python")],
        "the other crates work without a Python interpreter",
    ),
    (
        &["libfuzzer-*", "arbitrary"],
        &[Always("mez-fuzz")],
        "what only fuzzing needs comes into no other crate",
    ),
    (
        &["*-sys", "turbojpeg", "openh264", "openh264-*", "x264*", "cc", "cmake", "bindgen", "nasm-rs"],
        &[Always("mez-media"), Always("mez-fuzz")],
        "native code is contained in media, where it runs under a deadline and a crash costs one frame; libFuzzer is no part of the product",
    ),
    (
        &["clap", "clap_*"],
        &[Always("mez-cli"), Always("mez-measure")],
        "only the command and the experiments' part of it have a command line",
    ),
];

/// All external crates that core may use, because it only computes. `loom` replaces atomics in its model tests. Of `ring`, core uses ciphers and
/// digests, and gets keys and random bytes as arguments.
const CORE_MAY_USE: &[&str] =
    &["bytes", "crc32c", "crossbeam-queue", "loom", "proptest", "ring", "serde_json", "thiserror"];

/// A crate of the workspace as `cargo metadata` describes it.
struct Member {
    name: String,
    dependencies: Vec<Dependency>,
    /// Feature → what it turns on, in Cargo's notation (`dep:x`, `x`, `x/y`, `x?/y`).
    features: BTreeMap<String, Vec<String>>,
}

struct Dependency {
    name: String,
    /// The name in features. It differs from `name` after a rename in the manifest.
    alias: String,
    optional: bool,
}

fn members(metadata: &Value) -> Vec<Member> {
    let text = |value: &Value| value.as_str().expect("cargo writes a string here").to_owned();
    let list = |value: &Value| value.as_array().expect("cargo writes a list here").clone();
    let dependency = |value: &Value| Dependency {
        name: text(&value["name"]),
        alias: text(if value["rename"].is_null() { &value["name"] } else { &value["rename"] }),
        optional: value["optional"] == true,
    };
    let features = |value: &Value| {
        let table = value.as_object().expect("cargo writes a table here");
        table.iter().map(|(name, on)| (name.clone(), list(on).iter().map(text).collect())).collect()
    };
    list(&metadata["packages"])
        .iter()
        .map(|package| Member {
            name: text(&package["name"]),
            dependencies: list(&package["dependencies"]).iter().map(dependency).collect(),
            features: features(&package["features"]),
        })
        .collect()
}

impl Member {
    /// Whether turning on `feature` brings in the optional dependency `alias`, directly or through other features.
    fn turns_on(&self, feature: &str, alias: &str) -> bool {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![feature];
        while let Some(name) = waiting.pop() {
            if !seen.insert(name) {
                continue;
            }
            for item in self.features.get(name).into_iter().flatten() {
                // `x?/y` does not turn x on, and never equals an alias.
                match item.strip_prefix("dep:").or_else(|| Some(item.split_once('/')?.0)) {
                    Some(dependency) if dependency == alias => return true,
                    Some(_) => {}
                    None => waiting.push(item),
                }
            }
        }
        false
    }

    /// How `dependency` breaks a rule that allows it, if it does.
    fn breach(&self, dependency: &Dependency, rule: Allowed) -> Option<String> {
        let Behind(_, feature) = rule else { return None };
        let edge = format!("{} → {}", self.name, dependency.name);
        if !dependency.optional {
            Some(format!("{edge}: allowed only as an optional dependency behind the feature `{feature}`"))
        } else if !self.turns_on(feature, &dependency.alias) {
            Some(format!("{edge}: the feature `{feature}` has to turn this dependency on, and does not"))
        } else if self.turns_on("default", &dependency.alias) {
            Some(format!("{edge}: on by default; only the explicit feature `{feature}` may turn it on"))
        } else {
            None
        }
    }
}

fn find(cells: &[Allowed], crate_name: &str) -> Option<Allowed> {
    cells.iter().copied().find(|cell| match cell {
        Always(name) | Behind(name, _) => *name == crate_name,
    })
}

fn matches(pattern: &str, name: &str) -> bool {
    if let Some(start) = pattern.strip_suffix('*') {
        name.starts_with(start)
    } else if let Some(end) = pattern.strip_prefix('*') {
        name.ends_with(end)
    } else {
        name == pattern
    }
}

/// Every breach of the tables, one sentence each.
fn breaches(metadata: &Value) -> Vec<String> {
    let members = members(metadata);
    let inside: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let mut found = Vec::new();
    for member in &members {
        let Some((_, may_import)) = INSIDE.iter().find(|(name, _)| *name == member.name) else {
            found.push(format!("{}: not in the table INSIDE; say there what it may import", member.name));
            continue;
        };
        for dependency in &member.dependencies {
            let name = dependency.name.as_str();
            let edge = format!("{} → {name}", member.name);
            if inside.contains(name) {
                match find(may_import, name) {
                    Some(rule) => found.extend(member.breach(dependency, rule)),
                    None => found.push(format!("{edge}: not allowed by the table INSIDE")),
                }
                continue;
            }
            if member.name == "mez-core" && !CORE_MAY_USE.contains(&name) {
                found.push(format!(
                    "{edge}: not in CORE_MAY_USE; core takes time, keys and bytes as arguments"
                ));
            }
            for (_, homes, reason) in OUTSIDE.iter().filter(|row| row.0.iter().any(|p| matches(p, name))) {
                match find(homes, &member.name) {
                    Some(rule) => found.extend(member.breach(dependency, rule)),
                    None => found.push(format!("{edge}: not allowed, because {reason}")),
                }
            }
        }
    }
    found
}

fn workspace_metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root())
        .output()
        .expect("the cargo that built this test starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

#[test]
fn workspace_keeps_the_rules_of_dependence() {
    let metadata = workspace_metadata();
    let names: BTreeSet<String> = members(&metadata).into_iter().map(|member| member.name).collect();
    let table: BTreeSet<String> = INSIDE.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names, table, "the workspace and the table INSIDE name different crates");
    assert_none(&breaches(&metadata));
}

/// Names in the first column of the tables of `docs/dependencies.md`.
fn explained() -> BTreeSet<String> {
    let page = read("docs/dependencies.md");
    let names = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    names.map(|(name, _)| name.to_owned()).collect()
}

/// The chosen packages of `requirements/dev.txt`, without those that are only brought along.
fn chosen_python_packages() -> BTreeSet<String> {
    let requirements = read("requirements/dev.txt");
    let chosen = requirements.lines().take_while(|line| *line != "# Brought along");
    chosen.filter_map(|line| line.split_once("==")).map(|(name, _)| name.to_owned()).collect()
}

/// The packages that the page names, in `web/package.json`.
fn page_packages() -> Vec<String> {
    let package: Value = serde_json::from_str(&read("web/package.json")).expect("it is JSON");
    let of =
        |kind: &str| package[kind].as_object().expect("npm writes a table here").keys().cloned().collect();
    let kinds: [Vec<String>; 2] = [of("dependencies"), of("devDependencies")];
    kinds.concat()
}

/// Every dependency needs a stated reason, so that the reason can be discussed.
#[test]
fn every_direct_dependency_is_explained() {
    let metadata = workspace_metadata();
    let members = members(&metadata);
    let mut used = chosen_python_packages();
    assert!(used.contains("pytest"), "requirements/dev.txt no longer reads as this test expects");
    used.extend(
        members.iter().flat_map(|member| &member.dependencies).map(|dependency| dependency.name.clone()),
    );
    for member in &members {
        used.remove(&member.name);
    }
    used.extend(page_packages());
    let missing: Vec<_> = used
        .difference(&explained())
        .map(|name| format!("{name}: has no row in docs/dependencies.md; say there why it is needed"))
        .collect();
    assert_none(&missing);
}

/// What cargo would print for a workspace in which `crate_name` has this one dependency and these features.
fn made_up(crate_name: &str, dependency: Value, features: Value) -> Value {
    let mut packages =
        vec![json!({ "name": crate_name, "dependencies": [dependency], "features": features })];
    for (name, _) in INSIDE.iter().filter(|(name, _)| *name != crate_name) {
        packages.push(json!({ "name": name, "dependencies": [], "features": {} }));
    }
    json!({ "packages": packages })
}

fn required(name: &str) -> Value {
    json!({ "name": name, "rename": null, "optional": false })
}

fn optional(name: &str) -> Value {
    json!({ "name": name, "rename": null, "optional": true })
}

#[test]
fn checker_refuses_forbidden_edges() {
    for (crate_name, dependency) in [
        ("mez-core", "mez-media"),
        ("mez-media", "mez-node"),
        ("mez-node", "mez-testbed"),
        ("mez-node", "mez-cli"),
        ("mez-testbed", "mez-cli"),
        ("mez-testbed", "mez-emulator"),
        ("mez-emulator", "mez-node"),
        ("mez-emulator", "mez-measure"),
        ("mez-measure", "mez-cli"),
        ("mez-cli", "mez-testbed"),
        ("mez-node", "mez-page"),
        ("mez-python", "mez-testbed"),
        ("mez-core", "serde"),
        ("mez-core", "tokio"),
        ("mez-cli", "tokio"),
        ("mez-cli", "tonic-health"),
        ("mez-media", "quinn-proto"),
        ("mez-cli", "rcgen"),
        ("mez-node", "pyo3"),
        ("mez-node", "libz-sys"),
        ("mez-python", "turbojpeg"),
        ("mez-node", "clap"),
        ("mez-node", "mez-fuzz"),
        ("mez-media", "libfuzzer-sys"),
        ("mez-fuzz", "mez-testbed"),
        ("mez-extra", "bytes"),
    ] {
        let found = breaches(&made_up(crate_name, required(dependency), json!({})));
        assert!(!found.is_empty(), "{crate_name} → {dependency} went unnoticed");
        assert!(found.iter().all(|breach| breach.starts_with(crate_name)), "wrong crate blamed: {found:?}");
    }
}

#[test]
fn checker_accepts_what_the_tables_allow() {
    for (crate_name, dependency) in [
        ("mez-core", "bytes"),
        ("mez-media", "mez-core"),
        ("mez-media", "turbojpeg"),
        ("mez-node", "tokio"),
        ("mez-cli", "mez-node"),
        ("mez-cli", "clap"),
        ("mez-python", "mez-cli"),
        ("mez-python", "pyo3"),
    ] {
        assert_none(&breaches(&made_up(crate_name, required(dependency), json!({}))));
    }
}

#[test]
fn checker_wants_conditional_edges_behind_their_feature_only() {
    for (crate_name, dependency, feature) in [
        ("mez-testbed", "mez-node", "sockets"),
        ("mez-testbed", "tokio", "sockets"),
        ("mez-cli", "mez-emulator", "emulator"),
        ("mez-cli", "mez-measure", "bench"),
    ] {
        let on = [format!("dep:{dependency}")];
        let found = |dependency, features| breaches(&made_up(crate_name, dependency, features));
        assert_none(&found(optional(dependency), json!({ feature: on })));
        assert_none(&found(optional(dependency), json!({ feature: ["more"], "more": on })));
        let renamed = json!({ "name": dependency, "rename": "other", "optional": true });
        assert_none(&found(renamed, json!({ feature: ["dep:other"] })));

        for (mistake, dependency, features) in [
            ("not optional", required(dependency), json!({ feature: on })),
            ("behind another feature", optional(dependency), json!({ "other": on })),
            ("on by default", optional(dependency), json!({ feature: on, "default": [feature] })),
            ("only passed on", optional(dependency), json!({ feature: [format!("{dependency}?/x")] })),
        ] {
            assert_eq!(found(dependency, features).len(), 1, "{crate_name}: {mistake}");
        }
    }
}
