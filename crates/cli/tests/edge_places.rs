//! Commands find an edge's keys, state and socket at the places in its settings file.

mod process_support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use self::process_support::{MEZ, Running, started, text};

/// The command, run by a user with this home folder.
fn command(args: &[&str], home: &Path) -> Command {
    let mut command = Command::new(MEZ);
    command.args(args).current_dir(home).env_clear().env("HOME", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn run(args: &[&str], home: &Path) -> Output {
    command(args, home).output().unwrap()
}

fn done(args: &[&str], home: &Path) -> String {
    let output = run(args, home);
    assert!(output.status.success(), "{args:?}: {}", text(&output));
    text(&output)
}

fn start(args: &[&str], home: &Path) -> Running {
    started(&mut command(args, home), args[0], home)
}

/// A settings file whose folders are all below `place`.
fn settings(place: &Path) -> String {
    let [keys, state, socket] =
        ["keys", "state", "e.sock"].map(|name| place.join(name).display().to_string());
    format!(
        "role = \"edge\"\nkeys = \"{keys}\"\nstate = \"{state}\"\nsocket = \"{socket}\"\nname = \"main\"\nlisten = \"127.0.0.1:0\"\n\
         grpc = \"off\"\nenrol = \"off\"\n"
    )
}

/// Repeats a command until a line of its output contains all words.
fn until_it_says(args: &[&str], words: &[&str], home: &Path) -> String {
    let mut said = String::new();
    for _ in 0..300 {
        said = text(&run(args, home));
        if said.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return said;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{args:?} never says {words:?}: {said}");
}

/// The file names all folders once. The edge, the commands and the audit log all use them.
#[test]
fn commands_act_on_the_edge_that_the_file_describes() {
    let home = tempfile::tempdir().unwrap();
    let (home, place) = (home.path(), home.path().join("place"));
    fs::create_dir_all(home.join(".config/mez")).unwrap();
    fs::write(home.join(".config/mez/edge.toml"), settings(&place)).unwrap();
    done(&["keys", "init", "--site", "test"], home);
    assert!(place.join("keys/authority.key").exists() && !home.join(".config/mez/keys").exists());
    let _edge = start(&["edge"], home);
    // Commands report to the log only while an edge keeps one.
    let audit = &["keys", "audit"];
    until_it_says(audit, &["started"], home);

    done(&["keys", "grant", "app/counter", "watch", "dock/*"], home);
    let rights = || fs::read_to_string(place.join("keys/rights.toml")).unwrap();
    assert!(rights().contains("app/counter"), "{}", rights());
    assert!(done(&["keys", "grants"], home).contains("dock/*"));
    let shown = done(&["keys", "rights"], home);
    assert!(shown.contains("place/keys/rights.toml: 1 grant."), "{shown}");
    let log = until_it_says(audit, &["rights granted dock/*", "user/"], home);
    assert!(log.lines().any(|line| line.contains("edge/main") || line.contains("started")), "{log}");

    // The edge's name is in the file too: it is not revoked without --own.
    let refused = text(&run(&["keys", "revoke", "edge/main"], home));
    assert!(refused.contains("is the edge of this host"), "{refused}");
    done(&["keys", "revoke", "app/counter", "--because", "sold"], home);
    assert!(done(&["keys", "revoked"], home).contains("sold"));
    until_it_says(audit, &["revoked app/counter", "sold"], home);
    done(&["keys", "unrevoke", "app/counter"], home);
    done(&["keys", "ungrant", "app/counter"], home);
    until_it_says(audit, &["rights taken back"], home);
    done(&["keys", "token", "app/other", "--watch", "yard/*"], home);
    assert!(rights().contains("yard/*") && done(&["keys", "list"], home).contains("app/other"));

    // The socket too, for the name of either file. A variable takes precedence over the file.
    let nobody = "no camera; start one";
    let edge_toml = ".config/mez/edge.toml";
    assert!(done(&["cameras"], home).contains(nobody));
    assert!(done(&["cameras", "--config", edge_toml], home).contains(nobody));
    for (variable, value) in [("MEZ_EDGE_SOCKET", "nowhere.sock"), ("MEZ_EDGE_CONFIG", "off")] {
        let elsewhere = command(&["cameras"], home).env(variable, value).output().unwrap();
        assert!(!elsewhere.status.success(), "{variable}: {}", text(&elsewhere));
    }
}

/// Two edges on one host are distinguished by their settings files. With `off`, the defaults count.
#[test]
fn config_names_the_edge_that_is_meant() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for edge in ["one", "two"] {
        fs::write(home.join(edge).with_extension("toml"), settings(&home.join(edge))).unwrap();
        done(&["keys", "init", "--site", edge, "--config", &format!("{edge}.toml")], home);
        done(
            &["keys", "--config", &format!("{edge}.toml"), "grant", &format!("app/{edge}"), "watch", "a"],
            home,
        );
    }
    let of_two = done(&["keys", "grants", "--config", "two.toml"], home);
    assert!(of_two.contains("app/two") && !of_two.contains("app/one"), "{of_two}");
    let by_variable = command(&["keys", "grants"], home).env("MEZ_EDGE_CONFIG", "one.toml").output().unwrap();
    assert!(text(&by_variable).contains("app/one"), "{}", text(&by_variable));
    // Flags and variables take precedence over the file.
    let folder = home.join("one/keys").display().to_string();
    assert!(done(&["keys", "grants", "--config", "two.toml", "--keys", &folder], home).contains("app/one"));
    let off = run(&["keys", "grants", "--config", "off"], home);
    assert!(!off.status.success() && text(&off).contains(".config/mez/keys"), "{}", text(&off));
    let state = home.join("two/state").display().to_string();
    let told = text(&run(&["keys", "audit", "--state", &state], home));
    assert!(told.contains("two/state") || told.contains("TIME"), "{told}");
}

/// With an invalid file, no other edge is changed or shown.
#[test]
fn a_broken_file_is_told_and_nothing_is_done() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    done(&["keys", "init", "--site", "test"], home);
    let rights = || fs::read_to_string(home.join(".config/mez/keys/rights.toml")).unwrap();
    let before = rights();
    fs::write(home.join(".config/mez/edge.toml"), "role = \"edge\"\nstaet = \"/var/lib/other\"\n").unwrap();
    for args in [
        &["keys", "grant", "app/counter", "watch", "dock/*"][..],
        &["keys", "grants"],
        &["keys", "rights", "--strict"],
        &["keys", "revoke", "app/counter"],
        &["keys", "token", "app/counter"],
        &["keys", "audit"],
        &["cameras"],
    ] {
        let refused = run(args, home);
        let said = text(&refused);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("edge.toml:2: staet: there is no such setting; did you mean state?"), "{said}");
    }
    assert_eq!(rights(), before);
    assert!(!home.join(".config/mez/keys/revoked.list").exists());
    done(&["keys", "grants", "--config", "off"], home);
    let missing = text(&run(&["keys", "grants", "--config", "nowhere.toml"], home));
    assert!(missing.contains("nowhere.toml: there is no such file"), "{missing}");
}

/// If a separate process has the authority's key, the edge's key folder is not that of the authority.
#[test]
fn an_edge_with_a_signer_leaves_the_authority_its_own_folder() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    done(&["keys", "init", "--site", "test"], home);
    let place = home.join("place");
    let signer = "signer = \"unix:///run/mez/signer.sock\"\n";
    fs::write(home.join(".config/mez/edge.toml"), settings(&place) + signer).unwrap();
    done(&["keys", "token", "edge/main"], home);
    done(&["keys", "revoke", "app/counter"], home);
    assert!(home.join(".config/mez/keys/revoked.list").exists());
    // The edge's own files are in its own folder.
    let grants = text(&run(&["keys", "grants"], home));
    assert!(grants.contains("place/keys (does not exist)"), "{grants}");
}

/// An unknown variable is reported once, with a similar name. Variables of tests and secrets are not.
#[test]
fn a_misspelt_variable_is_told() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let misspelt = ["MEZ_EDGE_", "MEMORYBYTES"].concat();
    let with = |args: &[&str]| {
        let mut command = command(args, home);
        text(
            &command.env(&misspelt, "4GiB").env("MEZ_SEEDS", "3").env("MEZ_STORE_KEY", "x").output().unwrap(),
        )
    };
    done(&["keys", "init", "--site", "test"], home);
    // The last command starts logging, and then finds no keys.
    for args in [&["keys", "grants"][..], &["config", "show", "edge"], &["edge", "--keys", "nowhere"]] {
        let said = with(args);
        let told: Vec<&str> = said.lines().filter(|line| line.contains(&misspelt)).collect();
        assert!(
            matches!(&told[..], [line] if line.contains("did you mean MEZ_EDGE_MEMORY_BYTES?")),
            "{said}"
        );
        assert_eq!(said.matches("has no effect, because no setting has this name").count(), 1, "{said}");
    }
    let found = with(&["doctor", "--as", "edge", "--json"]);
    let finding = found.lines().find(|line| line.contains("found") && line.contains(&misspelt));
    assert!(finding.is_some() && found.contains("did you mean MEZ_EDGE_MEMORY_BYTES?"), "{found}");
}

/// A warning and no fault, since the file may be for another host.
#[test]
fn a_folder_that_there_cannot_be_is_told_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    fs::write(home.join("file"), "").unwrap();
    fs::write(
        home.join("edge.toml"),
        "role = \"edge\"\nkeys = \"/proc/nope\"\nstate = \"file/state\"\nstore = \"new\"\n",
    )
    .unwrap();
    let said = done(&["config", "check", "edge.toml"], home);
    assert!(said.contains("edge.toml: good: 3 settings for mez edge"), "{said}");
    let told = |words: [&str; 2]| said.lines().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(told(["edge.toml:2: keys = \"/proc/nope\": warning: ", "name another folder"]), "{said}");
    assert!(told(["edge.toml:3: state = \"file/state\": warning: ", "file is not a folder"]), "{said}");
    assert!(!said.contains("edge.toml:4") && !home.join("new").exists(), "{said}");
    fs::write(home.join("app.toml"), "role = \"app\"\nedge = \"edge.local\"\n").unwrap();
    assert!(done(&["config", "check", "app.toml"], home).contains("good: 1 setting for applications"));
    assert!(done(&["config", "show", "app"], home).contains("# applications read no file"), "{said}");
}
