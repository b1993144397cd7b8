//! Settings files: the doctor uses the settings in force, and reports faults of the files.

use super::*;

impl Site {
    /// Writes a settings file at the default place.
    fn settings(&self, role: &str, text: &str) {
        let folder = self.path("config/mez");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{role}.toml")), format!("role = \"{role}\"\n{text}\n")).unwrap();
    }
}

/// Without flags, the doctor asks the edge named in the file, and checks the ports in the file.
#[test]
fn what_the_files_name_is_what_is_looked_at() {
    let site = Site::new();
    let edge = site.edge();
    site.settings("edge", &format!("listen = \"{}\"\ngrpc = \"{}\"\nenrol = \"off\"", edge.link, edge.grpc));
    let found = site.doctor(&[]);
    found.healthy();
    assert!(found.all.contains("config/mez/edge.toml") && found.all.contains(&edge.link), "{}", found.all);
    let camera = site.host("camera/dock/cam1", DAY);
    camera.settings("camera", &format!("camera = \"dock/cam1\"\nedge = [\"{}\"]", edge.link));
    let found = camera.doctor(&[]);
    found.healthy();
    assert!(found.all.contains(&format!("QUIC gets through to {}", edge.link)), "{}", found.all);
}

#[test]
fn a_file_with_a_fault() {
    let site = Site::new();
    site.settings("edge", "memory_bytes = \"1GX\"");
    site.doctor(&[]).fault("settings", "edge.toml:2: memory_bytes = \"1GX\"", "");
    // The same file by its path, and one without a role.
    let named = site.text("config/mez/edge.toml");
    site.doctor(&["--config", &named]).fault("settings", "edge.toml:2: memory_bytes", "");
    // With `off`, the file is ignored.
    assert!(!site.doctor(&["--config", "off"]).all.contains("memory_bytes"));
    fs::remove_file(site.path("config/mez/edge.toml")).unwrap();
    fs::write(site.path("nobodys.toml"), "listen = \"[::]:7650\"\n").unwrap();
    site.doctor(&["--config", "nobodys.toml"]).fault("settings", "nobodys.toml", "role = \"edge\"");
}

/// A setting that is given on a camera's command line may be missing in its file.
#[test]
fn a_camera_whose_file_leaves_its_name_to_the_command_line() {
    let site = Site::new();
    let edge = site.edge();
    let camera = site.host("camera/dock/cam1", DAY);
    camera.settings("camera", "history_share = 0.5");
    camera.doctor(&["--edge", &edge.link]).healthy();
    camera.settings("camera", "fps = 10.0");
    camera.doctor(&["--edge", &edge.link]).fault(
        "settings",
        "fps = 10.0: this setting has no effect without a source",
        "--source",
    );
}

#[test]
fn a_port_of_the_file_that_another_program_has() {
    let site = Site::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    site.settings("edge", &format!("listen = \"{address}\""));
    site.doctor(&[]).fault("ports", "in use by another program", "choose another port with --listen");
    // A flag takes precedence over the file.
    assert!(!site.doctor(&["--listen", "127.0.0.1:0"]).faults.iter().any(|(check, ..)| check == "ports"));
}

#[test]
fn a_store_of_the_file_that_cannot_be_written() {
    let site = Site::new();
    said(&site.run(&["store", "key"]));
    fs::write(site.path("file"), "").unwrap();
    site.settings("edge", &format!("store = \"{}\"", site.text("file/store")));
    site.doctor(&["--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off"]).fault(
        "disk",
        "cannot be written",
        "--store",
    );
}

#[test]
fn an_edge_of_the_file_that_does_not_run() {
    let host = Site::new().host("app/counter", DAY);
    let nowhere = closed_port().to_string();
    host.settings("app", &format!("edge = [\"{nowhere}\"]"));
    host.doctor(&[]).fault("reach", &nowhere, "check that `mez edge` is running there");
}

/// A bundle contains the settings files, but no secrets in them.
#[test]
fn a_bundle_holds_the_settings_without_secrets() {
    let site = Site::new();
    site.settings("edge", "# token = \"Tr0ub4dorTr0ub4dor\"\nmemory_bytes = \"64MiB\"");
    let bundle = site.text("report.tar.gz");
    site.run(&["doctor", "--bundle", &bundle]);
    let unpacked =
        Command::new("tar").args(["-xzOf", &bundle, "mez-doctor/configuration/edge.toml"]).output().unwrap();
    let text = String::from_utf8_lossy(&unpacked.stdout).into_owned();
    assert!(text.contains("memory_bytes = \"64MiB\"") && !text.contains("Tr0ub4dor"), "{text}{unpacked:?}");
}

/// An application with an unreadable identity file keeps its name in the advice to enrol again.
#[test]
fn an_identity_that_cannot_be_read() {
    let host = Site::new().host("app/none", DAY);
    fs::rename(host.path("keys/app.none.pem"), host.path("keys/app+none.pem")).unwrap();
    fs::write(host.path("keys/app+none.pem"), "").unwrap();
    let found = host.doctor(&["--as", "app", "--edge", &closed_port().to_string()]);
    let certificate = found.faults.iter().find(|(check, ..)| check == "certificate");
    let (_, what, to_do) = certificate.unwrap_or_else(|| panic!("{}", found.all));
    assert!(
        what.contains("app+none.pem (unreadable)") && to_do.contains("`mez keys token app/none`"),
        "{}",
        found.all
    );
}

/// Without a folder, no full disk is reported.
#[test]
fn a_store_where_no_folder_can_be() {
    let site = Site::new();
    said(&site.run(&["store", "key"]));
    let found = site.doctor(&["--as", "edge", "--store", "/proc/nope"]);
    found.fault("disk", "/proc belongs to the kernel", "--store");
    assert!(!found.all.contains("is full"), "{}", found.all);
}

/// Counts are in correct English.
#[test]
fn rights_are_told_in_words() {
    let site = Site::new();
    let told =
        |words: &str| assert!(site.doctor(&["--as", "edge"]).all.contains(words), "{}", site.doctor(&[]).all);
    told("rights.toml: nothing is granted, so applications may do nothing");
    said(&site.run(&["keys", "grant", "app/counter", "watch", "dock/*"]));
    told("rights.toml: 1 grant; everything else is refused");
    said(&site.run(&["keys", "grant", "app/counter", "read", "dock/*"]));
    told("rights.toml: 2 grants; everything else is refused");
}
