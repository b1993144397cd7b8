//! Settings in files, in the environment and as flags: broken files, values in force, and brokers that read their settings again.

mod process_support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use self::process_support::{MEZ, Running, started, text, video};

const ROLES: [&str; 3] = ["edge", "camera", "app"];

/// The command in a clean environment.
fn command(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(MEZ);
    command.args(args).current_dir(folder).env_clear().env("HOME", folder);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

fn run(args: &[&str], folder: &Path) -> Output {
    command(args, folder).output().unwrap()
}

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

// ---- invalid files ----------------------------------------------------------------------------------------

/// A file, the line of its fault (0: the whole file), and parts of the message: setting, value, remedy.
type Broken = (&'static str, usize, &'static [&'static str]);

const BROKEN: &[Broken] = &[
    // The role.
    ("", 1, &["role", "begin it with role = \"edge\""]),
    ("listen = \"0.0.0.0:7650\"\n", 1, &["role", "begin it with"]),
    ("role = \"egde\"\n", 1, &["role = \"egde\"", "did you mean \"edge\"?"]),
    ("role = \"server\"\n", 1, &["role = \"server\"", "write \"edge\", \"camera\" or \"app\""]),
    ("role = 3\n", 1, &["role = 3", "in quotes"]),
    ("role = \"edge\"\nrole = \"edge\"\n", 2, &["twice", "keep one"]),
    // Not TOML.
    ("role = \"edge\"\nlisten = \"0.0.0.0:76", 2, &["not TOML", "in quotes"]),
    ("role = \"edge\"\ngrpc = off\n", 2, &["not TOML", "text in quotes"]),
    ("role = \"edge\"\nlisten 0.0.0.0:7650\n", 2, &["not TOML", "name = value"]),
    ("role = \"edge\"\nchannel = [\"hall=dock/*\",\n", 2, &["not TOML"]),
    ("role = \"edge\"\nmemory_bytes = \"1GiB\"\n\nmemory_bytes = \"2GiB\"\n", 4, &["twice", "keep one"]),
    // Names.
    ("role = \"edge\"\nmemory_byte = \"1GiB\"\n", 2, &["memory_byte", "did you mean memory_bytes?"]),
    ("role = \"edge\"\n# ours\nlisetn = \"0.0.0.0:7650\"\n", 3, &["lisetn", "did you mean listen?"]),
    ("role = \"edge\"\nmemory-bytes = \"1GiB\"\n", 2, &["memory-bytes", "write memory_bytes"]),
    (
        "role = \"edge\"\nsource = \"/dev/video0\"\n",
        2,
        &["source", "setting of mez camera", "leave this setting out"],
    ),
    (
        "role = \"edge\"\n[store]\nbytes = \"1GiB\"\n",
        2,
        &["store", "a table is not the right type", "store = \"…\""],
    ),
    ("role = \"edge\"\n[ports]\ngrpc = \"off\"\n", 2, &["ports", "without [headings]"]),
    ("role = \"edge\"\nfrobnicate = true\n", 2, &["frobnicate", "mez config show edge"]),
    ("role = \"edge\"\nconfig = \"other.toml\"\n", 2, &["config", "leave this setting out"]),
    // Types.
    ("role = \"edge\"\ncameras_max = \"64\"\n", 2, &["cameras_max = \"64\"", "without quotes"]),
    ("role = \"edge\"\ngrpc = false\n", 2, &["grpc = false", "write a text in quotes"]),
    ("role = \"edge\"\nno_notes = \"yes\"\n", 2, &["no_notes = \"yes\"", "no_notes = true"]),
    ("role = \"edge\"\nforget_after = 7\n", 2, &["forget_after = 7", "with its unit"]),
    ("role = \"edge\"\nchannel = [\"hall=dock/*\", 3]\n", 2, &["channel", "write a list of texts"]),
    // Values.
    ("role = \"edge\"\nmemory_bytes = \"1 parsec\"\n", 2, &["memory_bytes = \"1 parsec\"", "512MiB"]),
    ("role = \"edge\"\nmemory_bytes = -5\n", 2, &["memory_bytes = -5", "512MiB"]),
    ("role = \"edge\"\nframe_bytes_max = \"1GiB\"\n", 2, &["frame_bytes_max = \"1GiB\"", "256 MiB"]),
    ("role = \"edge\"\ncameras_max = 0\n", 2, &["cameras_max = 0", "1 to 1000000"]),
    (
        "role = \"edge\"\ncameras_max = 99999999999999999999999999999999999999999\n",
        2,
        &["cameras_max", "too large"],
    ),
    ("role = \"edge\"\nlisten = \"edge.local\"\n", 2, &["listen = \"edge.local\"", "ADDRESS:PORT"]),
    ("role = \"edge\"\ngrpc = \"0.0.0.0\"\n", 2, &["grpc = \"0.0.0.0\"", "such as 0.0.0.0:7651, or off"]),
    ("role = \"edge\"\nkeys = \"\"\n", 2, &["keys = \"\"", "leave this setting out"]),
    (
        "role = \"edge\"\ndurability = \"forever\"\nstore = \"s\"\n",
        2,
        &["durability = \"forever\"", "async, group, sync"],
    ),
    ("role = \"edge\"\nlog = \"a=b=c\"\n", 2, &["log = \"a=b=c\"", "try info"]),
    ("role = \"edge\"\nlog = \"wran\"\n", 2, &["log = \"wran\"", "off, error, warn, info, debug, trace"]),
    ("role = \"edge\"\nmemory_bytes = \"1B\"\n", 2, &["memory_bytes = \"1B\"", "1MiB or more"]),
    ("role = \"edge\"\naudit_bytes = \"1B\"\n", 2, &["audit_bytes = \"1B\"", "1MiB or more"]),
    ("role = \"edge\"\naudit_age = \"0s\"\n", 2, &["audit_age = \"0s\"", "1s or more"]),
    ("role = \"edge\"\nforget_after = \"0s\"\n", 2, &["forget_after = \"0s\"", "1s or more"]),
    ("role = \"edge\"\nunread_patience = \"0s\"\n", 2, &["unread_patience = \"0s\"", "1s or more"]),
    (
        "role = \"edge\"\nchannel = [\n  \"hall=dock/*\",\n  \"hall\",\n]\n",
        4,
        &["channel = \"hall\"", "hall=dock/*"],
    ),
    // Values that are valid, but not together.
    (
        "role = \"edge\"\nchannel = [\"hall=a\", \"hall=b\"]\n",
        2,
        &["channel", "declared twice", "declare it once"],
    ),
    (
        "role = \"edge\"\ngrpc = \"[::]:7650\"\n",
        2,
        &["grpc = \"[::]:7650\"", "listen has the same", "another port"],
    ),
    ("role = \"edge\"\nstore_age = \"72h\"\n", 2, &["store_age = \"72h\"", "name a folder with store"]),
    ("role = \"edge\"\nno_notes = true\n", 2, &["no_notes", "name a folder with store"]),
    (
        "role = \"edge\"\nsubscriptions_max = 5\nsubscriptions_per_principal_max = 6\n",
        3,
        &["subscriptions_per_principal_max = 6", "write a smaller value"],
    ),
    (
        "role = \"edge\"\nmemory_bytes = \"1MiB\"\nframe_bytes_max = \"2MiB\"\n",
        3,
        &["frame_bytes_max", "reduce frame_bytes_max"],
    ),
    ("role = \"camera\"\nedge = \"edge.local\"\n", 0, &["camera", "camera = \"dock/cam1\""]),
    (
        "role = \"edge\"\nlisten = \"127.0.0.1:7650\"\nannounce = true\n",
        3,
        &["announce = true", "only on loopback", "another address"],
    ),
    (
        "role = \"edge\"\nweb = \"on\"\nweb_proxy_header = \"X-Remote-User\"\n",
        3,
        &["web_proxy_header", "name the sender with web_proxy_from"],
    ),
    (
        "role = \"edge\"\nweb = \"on\"\nweb_proxy_from = [\"loopback\"]\n",
        3,
        &["web_proxy_from", "name it with web_proxy_header"],
    ),
    (
        "role = \"edge\"\nweb_proxy_header = \"X-Remote-User\"\nweb_proxy_from = [\"loopback\"]\n",
        2,
        &["web_proxy_header", "web, which is off"],
    ),
    (
        "role = \"edge\"\nevent_lag_records = 50\n",
        2,
        &["event_lag_records = 50", "port of web, which is off", "turn web on"],
    ),
    (
        "role = \"edge\"\nweb_proxy_header = \"Cookie\"\n",
        2,
        &["web_proxy_header = \"Cookie\"", "X-Remote-User"],
    ),
    ("role = \"edge\"\nweb_proxy_from = [\"10.0.0.9\"]\n", 2, &["web_proxy_from", "such as app/gateway"]),
    ("role = \"app\"\nedge = []\n", 2, &["edge = []", "no edge to connect to", "leave this setting out"]),
    ("role = \"camera\"\ncamera = \"dock/cam1\"\nedge = []\n", 3, &["edge = []", "edge = [\"HOST\"]"]),
    ("role = \"camera\"\ncamera = \"dock/*\"\nedge = \"edge\"\n", 2, &["camera = \"dock/*\""]),
    ("role = \"camera\"\ncamera = \"a\"\nedge = [\"e\", \"e\"]\n", 3, &["edge", "twice"]),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nfps = 10\n",
        4,
        &["fps = 10", "name a source with source"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nfps = nan\nsource = \"x\"\n",
        4,
        &["fps = nan", "frames per second"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nhistory_share = 2\n",
        4,
        &["history_share = 2", "between 0.01 and 1"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nlink = \"udp\"\n",
        4,
        &["link = \"udp\"", "auto, quic, tcp"],
    ),
    ("role = \"app\"\nedge = [\"http://edge\"]\n", 2, &["edge = \"http://edge\"", "HOST:PORT"]),
    // Secrets.
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nsource = \"rtsp://bob:hunter2@cam/x\"\n",
        4,
        &["source", "do not belong", "source_credentials", "mez-source-credentials"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nsource = \"rtsp://cam/x?token=hunter2\"\n",
        4,
        &["source", "do not belong", "MEZ_SOURCE"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nsource = \"rtsp://cam/x\"\nsource_credentials = \"bob:hunter2\"\n",
        5,
        &["source_credentials", "do not belong", "mode 0600"],
    ),
    (
        "role = \"camera\"\ncamera = \"a\"\nedge = \"e\"\nsource = \"rtsp://cam/x\"\nsource_onvif = \"http://bob:hunter2@cam/\"\n",
        5,
        &["source_onvif", "do not belong", "mode 0600"],
    ),
    (
        "role = \"camera\"\nsource_password = \"hunter2\"\n",
        2,
        &["source_password", "do not belong", "mode 0600"],
    ),
    (
        "role = \"edge\"\nstore = \"s\"\nstore_key = \"hunter2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"\n",
        3,
        &["store_key", "do not belong", "mez store key"],
    ),
    ("role = \"edge\"\nsigner = \"mez1.hunter2\"\n", 2, &["signer", "do not belong", "mez keys enrol"]),
    ("role = \"edge\"\nname = \"mez1.hunter2\"\n", 2, &["name", "do not belong", "mez keys enrol"]),
    ("role = \"edge\"\nstate = \"/x/mez1.hunter2\"\n", 2, &["state", "do not belong", "mez keys enrol"]),
    ("role = \"edge\"\nenrol_token = \"hunter2\"\n", 2, &["enrol_token", "do not belong", "mez keys enrol"]),
    (
        "role = \"edge\"\nkeys = \"-----BEGIN PRIVATE KEY-----\\nhunter2\"\n",
        2,
        &["keys", "do not belong", "folder"],
    ),
];

/// Each file is refused with line and remedy, and no secret is shown. No broker starts with it.
#[test]
fn broken_files_are_refused_with_line_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("settings.toml");
    for (content, line, says) in BROKEN {
        fs::write(&path, content).unwrap();
        let checked = run(&["config", "check", "settings.toml"], folder.path());
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(1), "{content}: {said}");
        let place = if *line == 0 { "settings.toml: ".into() } else { format!("settings.toml:{line}: ") };
        let told = said.lines().filter(|told| told.starts_with(&place));
        let is_told = told.clone().any(|told| says.iter().all(|part| told.contains(part)));
        assert!(is_told, "{content}\nshould say {says:?} at {place}, and says\n{said}");
        assert!(!said.contains("hunter2"), "a secret is shown: {said}");
        let role =
            ROLES.iter().find(|role| content.contains(&format!("role = \"{role}\""))).unwrap_or(&"edge");
        if *role != "app" {
            let started = run(&[role, "--config", "settings.toml"], folder.path());
            assert_eq!(started.status.code(), Some(2), "{content}: {}", text(&started));
        }
    }
    println!("{} broken files: none accepted", BROKEN.len());
}

/// Paths that are not a file, or not a readable one.
#[test]
fn what_is_no_readable_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = folder.join("settings.toml");
    let check = || {
        let checked = run(&["config", "check", "settings.toml"], folder);
        assert_eq!(checked.status.code(), Some(1));
        text(&checked)
    };
    assert!(check().contains("settings.toml: there is no such file"), "{}", check());
    fs::create_dir(&path).unwrap();
    assert!(check().contains("this is a folder; name a file in it"), "{}", check());
    fs::remove_dir(&path).unwrap();
    fs::write(&path, b"role = \"edge\"\n# caf\xe9\n").unwrap();
    assert!(check().contains("settings.toml:2: the file is not UTF-8"), "{}", check());
    fs::write(&path, "role = \"edge\"\n".repeat(100_000)).unwrap();
    assert!(check().contains("check that it is the right file"), "{}", check());
    fs::write(&path, "role = \"edge\"\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(check().contains("chmod o-w settings.toml"), "{}", check());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o200)).unwrap();
    // Root can read every file.
    if fs::File::open(&path).is_err() {
        assert!(check().contains("this user may not read the file"), "{}", check());
    }
}

/// A truncated file is never taken for a complete one with other settings.
#[test]
fn a_file_that_is_cut_says_nothing_new() {
    let folder = tempfile::tempdir().unwrap();
    let whole = "role = \"edge\"\nlisten = \"127.0.0.1:7650\"\ngrpc = \"off\"\nchannel = [\"hall=dock/*\"]\n";
    for cut in 0..whole.len() {
        fs::write(folder.path().join("settings.toml"), &whole[..cut]).unwrap();
        let checked = run(&["config", "check", "settings.toml"], folder.path());
        let is_whole_lines = whole[cut..].starts_with('\n') || whole[..cut].ends_with('\n');
        assert!(!checked.status.success() || is_whole_lines, "{}: {}", &whole[..cut], text(&checked));
    }
}

#[test]
fn all_faults_are_told_in_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let content = "role = \"edge\"\nlisetn = 3\nmemory_bytes = \"x\"\ngrpc = off\nstore_age = \"72h\"\nmemory_bytes = \"1GiB\"\n";
    fs::write(folder.path().join("settings.toml"), content).unwrap();
    let said = text(&run(&["config", "check", "settings.toml"], folder.path()));
    for line in [2, 4, 5, 6] {
        assert!(said.contains(&format!("settings.toml:{line}: ")), "line {line}: {said}");
    }
}

// ---- values in force --------------------------------------------------------------------------------------

/// The line of `mez config show` for a setting.
fn shown(said: &str, key: &str) -> String {
    let line = said
        .lines()
        .find(|line| line.starts_with(&format!("{key} =")) || line.starts_with(&format!("# {key}:")));
    line.unwrap_or_else(|| panic!("{key} is not in\n{said}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn flags_go_before_the_environment_and_that_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content =
        "role = \"edge\"\ngrpc = \"127.0.0.1:1\"\nenrol = \"127.0.0.1:2\"\nlisten = \"127.0.0.1:3\"\n";
    fs::write(folder.join("edge.toml"), content).unwrap();
    let show = |args: &[&str]| {
        let shown = command(&[&["config", "show", "edge"], args].concat(), folder)
            .env("MEZ_EDGE_GRPC", "off")
            .env("MEZ_EDGE_ENROL", "127.0.0.1:20")
            // An empty variable counts as unset.
            .env("MEZ_EDGE_LISTEN", "")
            .output()
            .unwrap();
        assert!(shown.status.success(), "{}", text(&shown));
        text(&shown)
    };
    let said = show(&["--config", "edge.toml", "--grpc", "127.0.0.1:10"]);
    assert_eq!(shown(&said, "grpc"), "grpc = \"127.0.0.1:10\" # --grpc");
    assert_eq!(shown(&said, "enrol"), "enrol = \"127.0.0.1:20\" # variable MEZ_EDGE_ENROL");
    assert_eq!(shown(&said, "listen"), "listen = \"127.0.0.1:3\" # edge.toml:4");
    assert_eq!(shown(&said, "cameras_max"), "cameras_max = 64 # default");
    assert!(shown(&said, "keys").ends_with(".config/mez/keys\" # default"), "{said}");
    assert_eq!(shown(&said, "store"), "# store: frames are only in memory");

    // The file at the default place is found. The output is itself a valid file.
    assert_eq!(shown(&show(&[]), "listen"), "listen = \"[::]:7650\" # default");
    fs::create_dir_all(folder.join(".config/mez")).unwrap();
    fs::write(folder.join(".config/mez/edge.toml"), content).unwrap();
    let found = show(&[]);
    assert!(shown(&found, "listen").ends_with(".config/mez/edge.toml:4"), "{found}");
    assert_eq!(shown(&show(&["--config", "off"]), "listen"), "listen = \"[::]:7650\" # default");
    fs::write(folder.join("again.toml"), found).unwrap();
    let again = run(&["config", "check", "again.toml"], folder);
    assert!(again.status.success(), "{}", text(&again));
}

#[test]
fn a_wrong_variable_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let said = command(&["edge"], folder.path()).env("MEZ_EDGE_GRPC", "nowhere").output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said).contains("MEZ_EDGE_GRPC=nowhere: write ADDRESS:PORT"), "{}", text(&said));
}

#[test]
fn no_secret_of_the_environment_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let said = command(&["config", "show", "camera", "a", "--edge", "e"], folder.path())
        .env("MEZ_SOURCE", "rtsp://bob:hunter2@cam/x?key=hunter2")
        .env("MEZ_SOURCE_CREDENTIALS", "bob:hunter2")
        .output()
        .unwrap();
    assert!(said.status.success() && !text(&said).contains("hunter2"), "{}", text(&said));
    assert_eq!(shown(&text(&said), "source"), "source = \"rtsp://cam/x?…\" # variable MEZ_SOURCE");
}

/// Names, flags and variables of settings follow from one another.
#[test]
fn names_flags_and_variables_follow_from_one_another() {
    let folder = tempfile::tempdir().unwrap();
    for role in ROLES {
        let table = text(&run(&["config", "table", role], folder.path()));
        for row in table.lines().skip(2) {
            let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
            let (key, flag, variable) = (cells[0], cells[1], cells[2]);
            let upper = key.to_ascii_uppercase();
            let expected = [
                format!("MEZ_{upper}"),
                format!("MEZ_{}_{upper}", role.to_ascii_uppercase()),
                // Without this suffix, the variable contains the secret itself.
                format!("MEZ_{upper}_FILE"),
            ];
            assert!(expected.iter().any(|expected| expected == variable), "{row}");
            let word = flag.split(' ').next().unwrap();
            assert!(word == "NAME" || word.trim_start_matches('-').replace('-', "_") == key, "{row}");
            assert!(cells[5].len() > 10, "it says nothing: {row}");
        }
    }
}

// ---- generated files --------------------------------------------------------------------------------------

/// Compares a file of this repository with its expected content, or writes it if `MEZ_WRITE` is set.
fn same(path: &str, expected: &str) {
    let path = checkout(path);
    if std::env::var_os("MEZ_WRITE").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let content = fs::read_to_string(&path).unwrap_or_default();
    let remedy = "is out of date; write it with MEZ_WRITE=1 cargo test -p mez-cli --test config";
    assert!(content == expected, "{} {remedy}", path.display());
}

#[test]
fn schemas_and_page_say_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let page_path = "docs/configuration.md";
    let mut page = fs::read_to_string(checkout(page_path)).unwrap();
    for role in ROLES {
        let schema = run(&["config", "schema", role], folder.path());
        let schema = String::from_utf8(schema.stdout).unwrap();
        same(&format!("docs/schema/{role}.json"), &schema);
        let table = String::from_utf8(run(&["config", "table", role], folder.path()).stdout).unwrap();
        let (begin, end) = (format!("<!-- {role}: written by a test -->\n\n"), "\n<!-- end -->");
        let (before, rest) = page.split_once(&begin).expect("the page has a place for the table");
        let (_, after) = rest.split_once(end).expect("the table ends");
        page = format!("{before}{begin}{table}{end}{after}");
    }
    same(page_path, &page);
}

#[test]
fn help_says_where_the_file_is_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    for role in ["edge", "camera"] {
        let help =
            text(&run(&[role, "--help"], folder.path())).split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [format!("~/.config/mez/{role}.toml"), format!("/etc/mez/{role}.toml"), "SIGHUP".into()] {
            assert!(help.contains(&part), "{role}: {part} is not in {help}");
        }
    }
}

// ---- brokers ----------------------------------------------------------------------------------------------

/// Waits until the broker's log contains `part`.
fn says(broker: &Running, part: &str) -> String {
    for _ in 0..600 {
        let said = broker.logged();
        if said.contains(part) {
            return said;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{part:?} is not in {}", broker.logged());
}

fn reload(broker: &Running) {
    let pid = broker.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
}

fn start(args: &[&str], folder: &Path, variables: &[(&str, &str)]) -> Running {
    let mut command = command(args, folder);
    command.env("MEZ_STATE", folder.join("state")).envs(variables.iter().copied());
    started(&mut command, args[0], folder)
}

/// A folder with a site's keys, and a video.
fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = run(&["keys", "init", "--site", "test"], folder.path());
    assert!(made.status.success(), "{}", text(&made));
    video(folder.path());
    folder
}

/// Settings change while frames flow: changeable ones take effect, others are
/// reported and stay, and a broken file changes nothing. The stream continues.
#[test]
fn a_broker_reads_its_settings_again_without_dropping_a_stream() {
    let folder = site();
    let folder = folder.path();
    let path = folder.join("edge.toml");
    let ports = "role = \"edge\"\nlisten = \"127.0.0.1:0\"\ngrpc = \"off\"\nenrol = \"off\"\nsocket = \"edge.sock\"\n";
    fs::write(&path, ports).unwrap();
    let edge = start(&["edge", "--config", "edge.toml"], folder, &[]);
    let (link, socket) = (edge.field("link="), format!("unix://{}", folder.join("edge.sock").display()));
    fs::write(folder.join("camera.toml"), format!("role = \"camera\"\ncamera = \"dock/cam1\"\nedge = [\"{link}\"]\nsource = \"video.avi\"\nloop = true\n")).unwrap();
    let camera = start(&["camera", "--config", "camera.toml"], folder, &[]);
    let watch = ["subscribe", "dock/*", "--edge", &socket, "--seconds", "600s"];
    let mut watching = command(&watch, folder).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();

    let changed = format!(
        "{ports}cameras_max = 3\nsubscriptions_per_principal_max = 1\nchannel = [\"hall=dock/*\"]\nlog = \"debug\"\n"
    );
    fs::write(&path, &changed).unwrap();
    reload(&edge);
    let said = says(&edge, "subscriptions_per_principal_max: edge.toml:7 says 1");
    assert!(said.contains("cameras_max needs a restart and stays 64, although edge.toml:6 says 3"), "{said}");
    assert!(said.contains("channel: edge.toml:8 says [\"hall=dock/*\"]"), "{said}");
    // The limit takes effect at once, and the running stream continues.
    let refused = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        text(&run(&["subscribe", "dock/*", "--edge", &socket, "--seconds", "200ms"], folder))
            .contains("the limit for one principal")
    });
    assert!(refused, "the limit was not taken in");
    let listed = text(&run(&["cameras", "--edge", &socket, "--json"], folder));
    assert!(listed.contains("hall"), "the channel was not taken in: {listed}");

    fs::write(&path, changed.replace("_max = 1", "_max = \"one\"")).unwrap();
    reload(&edge);
    let said = says(&edge, "the settings were not changed");
    assert!(said.contains("edge.toml:7: subscriptions_per_principal_max = \"one\""), "{said}");

    fs::write(
        folder.join("camera.toml"),
        fs::read_to_string(folder.join("camera.toml")).unwrap() + "history_share = 0.5\nfps = 5\n",
    )
    .unwrap();
    reload(&camera);
    let said = says(&camera, "history_share: camera.toml:6 says 0.5");
    assert!(said.contains("fps needs a restart"), "{said}");
    assert!(watching.try_wait().unwrap().is_none(), "the stream ended");
    let listed = text(&run(&["cameras", "--edge", &socket], folder));
    assert!(listed.contains("connected"), "{listed}");
    watching.kill().unwrap();
    watching.wait().unwrap();
}

/// Each example is checked and run. Only its addresses and folders are replaced.
#[test]
fn the_examples_are_good_and_run() {
    let folder = site();
    let folder = folder.path();
    for entry in fs::read_dir(checkout("examples/config")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let checked = run(&["config", "check", path.to_str().unwrap()], folder);
            assert!(checked.status.success(), "{}", text(&checked));
        }
    }
    let example = |name: &str| checkout("examples/config").join(name).display().to_string();
    let made = run(&["store", "key"], folder);
    assert!(made.status.success(), "{}", text(&made));
    let socket = folder.join("edge.sock").display().to_string();
    let own = folder.join("store").display().to_string();
    let here = [
        ("MEZ_EDGE_LISTEN", "127.0.0.1:0"),
        ("MEZ_EDGE_GRPC", "127.0.0.1:0"),
        ("MEZ_EDGE_ENROL", "off"),
        ("MEZ_EDGE_SOCKET", socket.as_str()),
        ("MEZ_KEYS", ".config/mez/keys"),
        ("MEZ_STORE", own.as_str()),
        ("MEZ_SOURCE", "video.avi"),
        ("MEZ_CAMERA_LOOP", "true"),
    ];
    let edge = start(&["edge", "--config", &example("edge-shared-channels.toml")], folder, &here);
    let link = edge.field("link=");
    let with_edge = [&here[..], &[("MEZ_EDGE", link.as_str())]].concat();
    let camera = start(&["camera", "--config", &example("raspberry-pi-camera.toml")], folder, &with_edge);
    says(&camera, "connected to the edge");
    // The file of the notebook example, with the edge of this test.
    let notebook = fs::read_to_string(example("notebook.toml")).unwrap();
    let named = notebook.replace("edge.local", &edge.field("grpc="));
    assert_ne!(named, notebook);
    fs::write(folder.join("app.toml"), named).unwrap();
    let granted = run(&["keys", "grant", "app/**", "observe", "**"], folder);
    assert!(granted.status.success(), "{}", text(&granted));
    let seen = (0..60).any(|_| {
        std::thread::sleep(Duration::from_millis(500));
        let listed = command(&["cameras", "--config", "app.toml"], folder).output().unwrap();
        text(&listed).contains("dock/pi1") && text(&listed).contains("hall")
    });
    assert!(seen, "{}", text(&run(&["cameras", "--config", "app.toml"], folder)));
}
