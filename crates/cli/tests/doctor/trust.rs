//! Revoked members, and audit logs that cannot be written or were changed.

use super::*;

/// Runs the doctor until it finds a fault, since an edge applies a list only within about a second.
fn once_at_fault(mut doctor: impl FnMut() -> Findings) -> Findings {
    for _ in 0..100 {
        let found = doctor();
        if !found.succeeded {
            return found;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("nothing was ever at fault");
}

/// An application is informed by the edge that refuses it.
#[test]
fn a_revoked_application() {
    let site = Site::new();
    let edge = site.edge();
    let host = site.host("app/counter", DAY);
    said(&site.run(&["keys", "revoke", "app/counter", "--because", "sold"]));
    once_at_fault(|| host.doctor(&["--edge", &edge.grpc])).fault(
        "revocation",
        "revoked",
        "mez keys token ROLE/NAME",
    );
}

/// A camera too, over QUIC and TCP. With the list, it knows it even without a network.
#[test]
fn a_revoked_camera() {
    let site = Site::new();
    let edge = site.edge();
    let (stolen, other) = (site.host("camera/dock/cam1", DAY), site.host("camera/yard/cam1", DAY));
    said(&site.run(&["keys", "revoke", "camera/dock/cam1", "--because", "stolen"]));
    let found = once_at_fault(|| stolen.doctor(&["--edge", &edge.link]));
    found.fault("revocation", "revoked", "mez keys token ROLE/NAME");
    other.doctor(&["--edge", &edge.link]).healthy();
    // The list that a connected camera broker has received.
    let state = stolen.path("state/cameras/dock/cam1");
    fs::create_dir_all(&state).unwrap();
    fs::copy(site.path("keys/revoked.list"), state.join("revoked.list")).unwrap();
    stolen.doctor(&["--camera", "dock/cam1"]).fault("revocation", "was revoked (stolen)", "mez keys revoked");
}

/// The edge itself is asked for its certificate, since the folder may have another one by now, or the authority's key.
#[test]
fn an_edge_that_runs_on_with_a_revoked_certificate() {
    let site = Site::new();
    let host = site.host("edge/main", DAY);
    let _edge = host.edge();
    host.doctor(&["--as", "edge"]).healthy();
    said(&site.run(&["keys", "revoke", "edge/main", "--because", "leaked"]));
    fs::copy(site.path("keys/revoked.list"), host.path("keys/revoked.list")).unwrap();
    let found = host.doctor(&["--as", "edge"]);
    let shown = found
        .faults
        .iter()
        .find(|(_, what, _)| what.contains("the running edge uses a revoked certificate of edge/main"));
    let (check, _, to_do) = shown.unwrap_or_else(|| panic!("{}", found.all));
    assert!(check == "revocation" && to_do.contains("mez keys unrevoke"), "{}", found.all);
}

/// The rights in force may be older ones, or those of another folder. A change that is applied a moment later is no fault.
#[test]
fn an_edge_that_runs_with_other_rights_than_the_file_says() {
    let site = Site::new();
    let _edge = site.edge();
    said(&site.run(&["keys", "grant", "app/counter", "watch", "dock/*"]));
    site.doctor(&["--as", "edge"]).healthy();
    let file = site.path("keys/rights.toml");
    let text = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    site.doctor(&["--as", "edge"]).fault("grant", "keeps its previous rights (1 grant)", "restore the file");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    site.doctor(&["--as", "edge"]).healthy();
    let other = Site::new();
    let socket = site.text("edge.sock");
    other.doctor(&["--as", "edge", "--socket", &socket]).fault(
        "grant",
        "has other rights (1 grant) than",
        "uses another folder of keys",
    );
}

/// An edge does not start with a truncated list.
#[test]
fn a_deny_list_that_is_cut() {
    let site = Site::new();
    said(&site.run(&["keys", "revoke", "app/counter"]));
    let list = site.path("keys/revoked.list");
    let whole = fs::read_to_string(&list).unwrap();
    assert!(site.doctor(&[]).all.contains("1 revoked"), "{}", site.doctor(&[]).all);
    fs::write(&list, &whole[..whole.len() - 40]).unwrap();
    site.doctor(&[]).fault("revocation", "cut or damaged", "copy revoked.list again");
}

#[test]
fn an_audit_log_that_cannot_be_written() {
    let site = Site::new();
    fs::create_dir(site.path("state")).unwrap();
    fs::write(site.path("state/audit"), "no folder").unwrap();
    site.doctor(&[]).fault("audit", "is not a folder", "move it away");
}

/// A read-only file system, and a full one. Skipped if this user may not mount.
#[test]
fn an_audit_log_on_a_disk_that_takes_nothing() {
    let mounts = [
        (
            "mount -t tmpfs -o size=128m none state && mkdir state/audit && mount -o remount,ro state",
            "ead-only",
            "for writing (`mount -o remount,rw`)",
        ),
        (
            "mount -t tmpfs -o size=128m none state && mkdir state/audit && mount -t tmpfs -o size=64k none state/audit",
            "is full",
            "--audit-bytes",
        ),
    ];
    for (mount, found, remedy) in mounts {
        let site = Site::new();
        fs::create_dir(site.path("state")).unwrap();
        let Some(output) = site.unshared(mount, &["doctor", "--json"]) else { return };
        let found_there = findings(&output);
        let audit: Vec<_> = found_there.faults.iter().filter(|(check, ..)| check == "audit").collect();
        assert!(
            matches!(&audit[..], [(_, what, to_do)] if what.contains(found) && to_do.contains(remedy)),
            "{}",
            found_there.all
        );
    }
}

/// A record was changed. The edge works on, so this is a warning.
#[test]
fn an_audit_log_that_somebody_changed() {
    let site = Site::new();
    let edge = site.edge();
    let file = site.path("state/audit/000000000001.jsonl");
    // Until the head names the record. A head that is behind may come from a power cut, and proves nothing about the last record.
    for _ in 0..600 {
        if fs::read_to_string(site.path("state/audit/head")).is_ok_and(|head| head.contains("\"last\":1,")) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    drop(edge);
    let found = site.doctor(&[]);
    found.healthy();
    assert!(found.all.contains("the hash chain is intact"), "{}", found.all);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("\"started\"", "\"stopped\"", 1)).unwrap();
    let found = site.doctor(&[]);
    found.healthy();
    assert!(
        found.all.contains("is not what the edge wrote") && found.all.contains("mez keys audit --verify"),
        "{}",
        found.all
    );
}
