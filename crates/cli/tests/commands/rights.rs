//! Grants and revocations, as users see them.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use super::process_support::{Running, command, run, start, started, text, video};
use super::{edge, site, strict_site};

/// The arguments of the command that a refusal recommends.
fn remedy(refusal: &str) -> Vec<String> {
    let command = refusal.split('`').find(|part| part.starts_with("mez keys grant ")).expect(refusal);
    command.split_whitespace().skip(1).map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[test]
fn an_application_gets_what_it_was_granted_while_the_edge_runs() {
    let folder = strict_site();
    let folder = folder.path();
    let video = video(folder);
    let (_edge, link, grpc) = edge(folder);
    let _camera = start(&["camera", "dock/cam1", "--edge", &link, "--source", &video, "--loop"], folder);
    let watch = |seconds| run(&["subscribe", "dock/*", "--edge", &grpc, "--seconds", seconds], folder);

    let refused = watch("1s");
    assert!(
        !refused.status.success() && text(&refused).contains("may not watch dock/*"),
        "{}",
        text(&refused)
    );
    let command = remedy(&text(&refused));
    let granted = run(&command.iter().map(String::as_str).collect::<Vec<_>>(), folder);
    assert!(granted.status.success() && text(&granted).contains("Granted: app/"), "{}", text(&granted));
    // The edge checks the file once per second.
    let begun = (0..60).any(|_| {
        std::thread::sleep(Duration::from_millis(500));
        watch("500ms").status.success()
    });
    assert!(begun, "the grant did not take effect");

    // The edge's own user needs no grant. Removing a grant ends running streams.
    let socket = format!("unix://{}", folder.join("edge.sock").display());
    assert!(run(&["cameras", "--edge", &socket], folder).status.success());
    let ended = std::thread::scope(|threads| {
        let watching = threads.spawn(|| watch("60s"));
        std::thread::sleep(Duration::from_secs(2));
        let taken = run(&["keys", "ungrant", &command[2]], folder);
        assert!(text(&taken).contains("Taken back: app/"), "{}", text(&taken));
        watching.join().unwrap()
    });
    assert!(!ended.status.success() && text(&ended).contains("may not watch"), "{}", text(&ended));
    let listed = run(&["keys", "grants"], folder);
    assert!(text(&listed).contains("Nothing is granted."), "{}", text(&listed));
}

/// A site from before grants: its key folder has no rights file.
#[test]
fn a_site_that_is_older_than_grants_goes_on_and_is_closed_by_one_command() {
    let folder = strict_site();
    let folder = folder.path();
    let keys = PathBuf::from(
        String::from_utf8(run(&["keys", "rights"], folder).stdout).unwrap().split(':').next().unwrap(),
    );
    let lock = keys.with_file_name("rights.lock");
    fs::remove_file(&keys).unwrap();
    let socket = folder.join("gone.sock").display().to_string();
    let alone = ["edge", "--listen", "127.0.0.1:0", "--grpc", "off", "--enrol", "off", "--socket", &socket];
    let gone = run(&alone, folder);
    assert!(!gone.status.success() && text(&gone).contains("is missing"), "{}", text(&gone));
    fs::remove_file(lock).unwrap();

    let (_edge, _, grpc) = edge(folder);
    let seen = run(&["cameras", "--edge", &grpc], folder);
    assert!(seen.status.success(), "{}", text(&seen));
    let strict = run(&["keys", "rights", "--strict"], folder);
    assert!(strict.status.success() && text(&strict).contains("From now on"), "{}", text(&strict));
    let closed = (0..60).any(|_| {
        std::thread::sleep(Duration::from_millis(500));
        !run(&["cameras", "--edge", &grpc], folder).status.success()
    });
    assert!(closed, "the site did not become strict");
}

/// A stolen camera and a sold laptop lose everything within seconds. They are refused with
/// the reason, also after a restart of the edge, and a successor joins under the same name.
#[test]
fn whoever_is_revoked_loses_what_it_has_and_a_successor_joins() {
    let folder = site();
    let folder = folder.path();
    let video = video(folder);
    let start_edge = || {
        let socket = folder.join("edge.sock").display().to_string();
        let any = "127.0.0.1:0";
        start(&["edge", "--listen", any, "--grpc", any, "--enrol", any, "--socket", &socket], folder)
    };
    let edge = start_edge();
    let enrol = |edge: &Running, identity: &str, keys: &str| {
        let token = run(&["keys", "token", identity], folder);
        let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
        let there = folder.join(keys).display().to_string();
        let joined =
            run(&["keys", "enrol", &token, "--edge", &edge.field("enrol="), "--keys", &there], folder);
        assert!(joined.status.success(), "{}", text(&joined));
        there
    };
    let (stolen, sold) = (enrol(&edge, "camera/dock/cam1", "stolen"), enrol(&edge, "app/laptop", "sold"));
    let camera = |edge: &Running, keys: &str, name: &str, link: &str| {
        let state = folder.join(format!("{name}-state")).display().to_string();
        let args = ["camera", "dock/cam1", "--edge", &edge.field("link="), "--source", &video, "--loop"];
        let args = [&args[..], &["--keys", keys, "--state", &state, "--link", link]].concat();
        started(&mut command(&args, folder), name, folder)
    };
    let thief = camera(&edge, &stolen, "thief", "tcp");
    let watching =
        ["subscribe", "dock/*", "--edge", &edge.field("grpc="), "--keys", &sold, "--seconds", "60s"];
    let watching = command(&watching, folder).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));

    // An unused token must not let the thief in again.
    let waiting = run(&["keys", "token", "camera/dock/cam1"], folder);
    let waiting = String::from_utf8_lossy(&waiting.stdout).trim().to_owned();
    let because = ["keys", "revoke", "camera/dock/cam1", "app/laptop", "--because", "gone since Monday"];
    let revoked = run(&because, folder);
    assert!(revoked.status.success(), "{}", text(&revoked));
    assert!(text(&revoked).contains("void now: 1"), "{}", text(&revoked));
    let ended = watching.wait_with_output().unwrap();
    assert!(!ended.status.success());
    let said = text(&ended);
    assert!(said.contains("app/laptop") && said.contains("was revoked (gone since Monday)"), "{said}");
    let enrolled = run(&["keys", "enrol", &waiting, "--edge", &edge.field("enrol="), "--keys", "x"], folder);
    assert!(!enrolled.status.success(), "{}", text(&enrolled));

    let listed = text(&run(&["keys", "revoked"], folder));
    assert!(listed.contains("camera/dock/cam1") && listed.contains("gone since Monday"), "{listed}");
    assert!(listed.contains("Version 2 of the deny list of the site test"), "{listed}");
    let again = run(&["keys", "revoke", "user/1000"], folder);
    assert!(!again.status.success() && text(&again).contains("camera/"), "{}", text(&again));
    let elsewhere = run(&["keys", "revoke", "app/x", "--keys", &sold], folder);
    assert!(text(&elsewhere).contains("where the site was made"), "{}", text(&elsewhere));

    // Revocations survive a restart, and the successor has the name.
    drop(edge);
    drop(thief);
    let edge = start_edge();
    let anew = enrol(&edge, "camera/dock/cam1", "anew");
    let (grpc, seconds) = (edge.field("grpc="), ["--seconds", "3s"]);
    let refused = run(&["subscribe", "dock/*", "--edge", &grpc, "--keys", &sold], folder);
    assert!(!refused.status.success() && text(&refused).contains("it was revoked"), "{}", text(&refused));
    let _camera = camera(&edge, &anew, "anew", "auto");
    let seen =
        run(&[&["subscribe", "dock/*", "--edge", &grpc, "--save", "seen"][..], &seconds].concat(), folder);
    assert!(seen.status.success(), "{}", text(&seen));
    assert!(fs::read_dir(folder.join("seen/dock/cam1")).unwrap().count() > 3, "{}", text(&seen));
    let told = fs::read_to_string(folder.join("thief.log")).unwrap();
    assert!(told.contains("was revoked (gone since Monday)"), "{told}");

    let off = run(&["keys", "unrevoke", "app/laptop"], folder);
    assert!(off.status.success() && text(&off).contains("Accepted again: app/laptop"), "{}", text(&off));
    let off = run(&["keys", "unrevoke", "app/laptop"], folder);
    assert!(text(&off).contains("app/laptop is not on the deny list"), "{}", text(&off));
}
