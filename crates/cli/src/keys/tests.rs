//! The output of `mez keys`, as users see it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::{Parser, Subcommand};
use mez_node::identity::{EnrolmentServer, KeyFolder, TemporarySite, Validity};

use super::show::state;
use super::{KeysArgs, Terminal, parse_duration, publishing};

#[derive(Debug, Parser)]
struct Mez {
    #[command(subcommand)]
    command: Top,
}

#[derive(Debug, Subcommand)]
enum Top {
    Keys(KeysArgs),
}

/// Runs `mez keys …`. Returns standard output, and notes.
fn mez_keys(folder: &Path, arguments: &[&str]) -> Result<(String, String), String> {
    let folder = folder.to_str().unwrap();
    let at = ["--keys", folder];
    let line = ["mez", "keys"].iter().chain(arguments).chain(&at);
    let Top::Keys(args) = Mez::try_parse_from(line).map_err(|error| error.to_string())?.command;
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let done = Terminal { out: &mut out, notes: &mut notes, log: None, edge_name: None }.run(args);
    done.map_err(|error| error.to_string())?;
    Ok((String::from_utf8(out).unwrap(), String::from_utf8(notes).unwrap()))
}

/// Folders for one test, removed with the returned value.
fn scratch() -> TemporarySite {
    TemporarySite::create(&"scratch".parse().unwrap()).unwrap()
}

#[test]
fn a_site_is_made_a_token_handed_over_and_a_camera_joins() {
    let scratch = scratch();
    let (here, there) = (scratch.keys().path().join("here"), scratch.keys().path().join("there"));
    let (made, _) = mez_keys(&here, &["init", "--site", "harbour"]).unwrap();
    assert!(made.contains("site harbour") && made.contains("authority.key"), "{made}");
    assert!(mez_keys(&here, &["init"]).unwrap_err().contains("nothing was changed"));

    let (token, notes) = mez_keys(&here, &["token", "camera/dock/cam1", "--valid", "30m"]).unwrap();
    assert_eq!(token.lines().count(), 1, "{token}");
    assert!(notes.contains("mez keys enrol TOKEN --edge") && !notes.contains(token.trim()), "{notes}");
    let (listed, _) = mez_keys(&here, &["list"]).unwrap();
    assert!(listed.contains("TOKEN FOR") && listed.contains("camera/dock/cam1"), "{listed}");

    let keys = KeyFolder::open(&here).unwrap();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = EnrolmentServer::new(&keys).unwrap().start(loopback).unwrap();
    let edge = server.address().to_string();
    let (joined, _) = mez_keys(&there, &["enrol", token.trim(), "--edge", &edge]).unwrap();
    assert!(joined.contains("camera/dock/cam1 of site harbour"), "{joined}");
    let again = mez_keys(&there, &["enrol", token.trim(), "--edge", &edge]).unwrap_err();
    assert!(again.contains("already used"), "{again}");

    let (listed, _) = mez_keys(&there, &["list"]).unwrap();
    let row = listed.lines().find(|line| line.starts_with("camera/dock/cam1 ")).expect(&listed);
    assert!(row.contains("UTC") && row.contains("29 days left"), "{row}");
    let (shown, _) = mez_keys(&there, &["show", "camera/dock/cam1"]).unwrap();
    assert!(shown.contains("spiffe://harbour/camera/dock/cam1") && shown.contains("serial"), "{shown}");
    let missing = mez_keys(&there, &["show", "app/counter"]).unwrap_err();
    assert!(missing.contains("holds camera/dock/cam1"), "{missing}");
    let fingerprint = |folder: &Path| {
        let (shown, _) = mez_keys(folder, &["show"]).unwrap();
        shown.lines().find(|line| line.starts_with("fingerprint")).unwrap().to_owned()
    };
    assert_eq!(fingerprint(&here), fingerprint(&there));
    let (listed, _) = mez_keys(&here, &["list"]).unwrap();
    assert!(!listed.contains("TOKEN FOR"), "{listed}");
}

#[test]
fn an_application_is_shown_what_a_foreign_client_needs() {
    let scratch = scratch();
    let here = scratch.keys().path();
    let there = here.join("there");
    let (token, _) = mez_keys(here, &["token", "app/counter"]).unwrap();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = EnrolmentServer::new(scratch.keys()).unwrap().start(loopback).unwrap();
    mez_keys(&there, &["enrol", token.trim(), "--edge", &server.address().to_string()]).unwrap();
    let (shown, _) = mez_keys(&there, &["show", "app/counter"]).unwrap();
    for part in ["authority.pem", "app+counter.pem", "mez-edge"] {
        assert!(shown.contains(part), "{part:?} is not in: {shown}");
    }
}

#[test]
fn grants_are_given_listed_and_taken_back() {
    let scratch = scratch();
    let site = scratch.keys().path();
    let (_, notes) = mez_keys(site, &["token", "app/counter"]).unwrap();
    assert!(notes.contains("It may do nothing yet"), "{notes}");
    let token = ["token", "app/counter", "--watch", "dock/*,yard/cam1", "--reply", "dock/*"];
    let (token, notes) = mez_keys(site, &token).unwrap();
    assert_eq!(token.lines().count(), 1, "{token}");
    assert!(notes.contains("Granted: app/counter reply 'dock/*'"), "{notes}");
    mez_keys(site, &["grant", "app/**", "observe,join", "**"]).unwrap();

    let (all, _) = mez_keys(site, &["grants"]).unwrap();
    assert_eq!(all.lines().count(), 6, "{all}");
    let (own, _) = mez_keys(site, &["grants", "app/counter"]).unwrap();
    assert!(own.contains("app/**") && own.contains("yard/cam1"), "{own}");
    let (other, _) = mez_keys(site, &["grants", "app/other"]).unwrap();
    assert!(other.contains("app/**") && !other.contains("yard/cam1"), "{other}");

    let (taken, _) = mez_keys(site, &["ungrant", "app/counter", "watch", "yard/cam1"]).unwrap();
    assert_eq!(taken.trim(), "Taken back: app/counter watch yard/cam1");
    mez_keys(site, &["ungrant", "app/counter"]).unwrap();
    mez_keys(site, &["ungrant", "app/**"]).unwrap();
    let (_, nothing) = mez_keys(site, &["grants"]).unwrap();
    assert!(nothing.contains("Nothing is granted."), "{nothing}");
    let (rights, notes) = mez_keys(site, &["rights"]).unwrap();
    assert!(
        rights.contains("rights.toml: 0 grants. What no grant allows is refused.") && notes.is_empty(),
        "{rights}{notes}"
    );
}

#[test]
fn what_cannot_be_done_is_said_with_the_remedy() {
    let scratch = scratch();
    let (site, nowhere) = (scratch.keys().path(), scratch.keys().path().join("nowhere"));
    for (folder, arguments, says) in [
        (nowhere.as_path(), &["list"][..], "mez keys init"),
        (&nowhere, &["token", "app/x"], "mez keys init"),
        (&nowhere, &["serve"], "mez keys init"),
        (&nowhere, &["enrol", "nonsense", "--edge", "edge.local"], "mez keys token"),
        (&nowhere, &["init", "--site", "Not A Site"], "lower-case"),
        (site, &["token", "dock/cam1"], "camera/, edge/ or app/"),
        (site, &["token", "app/x", "--dns", "a.example"], "leave out --dns"),
        (site, &["token", "app/x", "--valid", "soon"], "90s, 30m, 1h or 7d"),
        (site, &["token", "app/x", "--valid", "31d"], "30 days"),
        (site, &["token", "app/x", "--lifetime", "91d"], "1 second to 90 days"),
        (site, &["rotate", "--overlap", "2000d"], "one second to one year"),
        (&nowhere, &["rotate"], "mez keys init"),
        (site, &["token", "app/x", "--watch", "dock/cam*"], "one whole segment"),
        (site, &["token", "camera/dock", "--watch", "dock/*"], "mez keys token app/NAME"),
        (site, &["grant", "counter", "watch", "dock/*"], "write app/NAME"),
        (site, &["grant", "camera/dock", "watch", "dock/*"], "mez keys token app/NAME"),
        (site, &["grant", "user/alice", "watch", "dock/*"], "id -u"),
        (site, &["grant", "app/x", "wach", "dock/*"], "the verbs are watch"),
        (site, &["grant", "app/x", "watch"], "CAMERA"),
        (site, &["ungrant", "app/x"], "mez keys grants"),
    ] {
        let error = mez_keys(folder, arguments).unwrap_err();
        assert!(error.contains(says), "{arguments:?}: {says:?} is not in: {error}");
    }
    assert!(!nowhere.exists(), "a failed command left a folder behind");
}

#[test]
fn the_edge_that_has_the_authoritys_key_is_revoked_on_purpose_only() {
    let site = scratch();
    let keys = site.keys();
    let own = keys.edge_credentials(None, &[]).unwrap().identity().short();
    let refused = mez_keys(keys.path(), &["revoke", "app/sold", &own]).unwrap_err();
    assert!(refused.contains(&own) && refused.contains("--own") && refused.contains("stop it"), "{refused}");
    assert!(
        mez_keys(keys.path(), &["revoked"]).unwrap().1.contains("Nothing is revoked"),
        "half of it was done"
    );
    mez_keys(keys.path(), &["revoke", "app/sold", &own, "--own"]).unwrap();
    let (revoked, _) = mez_keys(keys.path(), &["revoked"]).unwrap();
    assert!(revoked.contains(&own) && revoked.contains("app/sold"), "{revoked}");
    let (_, notes) = mez_keys(keys.path(), &["revoke", "edge/other"]).unwrap();
    assert!(notes.contains("edges with `--signer`") && notes.contains("copy the file"), "{notes}");
}

/// Grants belong to a name. Revoking the name lists the grants that a successor would have, and how to take them.
#[test]
fn whoever_revokes_an_application_is_told_which_grants_stay() {
    let site = scratch();
    let keys = site.keys().path();
    mez_keys(keys, &["rights", "--strict"]).unwrap();
    mez_keys(keys, &["token", "app/counter", "--watch", "dock/*"]).unwrap();
    mez_keys(keys, &["grant", "app/other", "watch", "yard/*"]).unwrap();
    let (_, notes) = mez_keys(keys, &["revoke", "app/counter"]).unwrap();
    assert!(
        notes.contains("app/counter watch 'dock/*'. To remove them") && !notes.contains("yard"),
        "{notes}"
    );
    assert!(notes.contains("`mez keys ungrant app/counter`"), "{notes}");
    mez_keys(keys, &["ungrant", "app/counter"]).unwrap();
    let (_, notes) = mez_keys(keys, &["revoke", "app/counter"]).unwrap();
    assert!(!notes.contains("Grants that stay"), "{notes}");
}

#[test]
fn lengths_of_time_are_read_as_people_write_them() {
    for (text, seconds) in [("90s", 90), ("30m", 1800), ("1h", 3600), ("7d", 604_800)] {
        assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
    }
    for bad in ["", "1", "h", "-1h", "1.5h", "1 h", "1w", "99999999999999999999d", "213503982334602d", "5µ"]
    {
        assert!(parse_duration(bad).is_err(), "{bad:?} was read");
    }
}

#[test]
fn the_state_of_a_certificate_is_told_in_days() {
    let day = Duration::from_secs(24 * 3600);
    let now = SystemTime::now();
    let at = |after: SystemTime| state(validity(now, after), now);
    assert_eq!(at(now + 80 * day), "80 days left");
    let overdue = |lasted: u32, left: u32| {
        let validity = Validity { not_before: now - lasted * day, not_after: now + left * day };
        state(validity, now)
    };
    assert_eq!(overdue(15, 15), "15 days left");
    assert_eq!(overdue(27, 3), "3 days left: will be renewed when a program that uses it reaches an edge");
    assert!(at(now + day / 2).starts_with("less than a day left: will be renewed"));
    assert_eq!(at(now - day), "expired 1 day ago: enrol again");
    let early = state(Validity { not_before: now + day, not_after: now + 2 * day }, now);
    assert!(early.contains("check the clock"), "{early}");
}

fn validity(now: SystemTime, not_after: SystemTime) -> Validity {
    Validity { not_before: now - Duration::from_secs(30 * 24 * 3600), not_after }
}

/// An identity of one segment is a place. A camera of the same name would match no pattern of this place, and would stay forever.
#[test]
fn the_hint_after_enrolling_makes_no_ghost() {
    for (identity, camera, pattern) in [
        ("dock", "dock/cam1", "'dock/*'"),
        ("dock/cam7", "dock/cam7", "'dock/*'"),
        ("a/b/c", "a/b/c", "'a/b/*'"),
    ] {
        let hint = publishing(identity);
        assert!(hint.contains(&format!("mez camera {camera} ")), "{hint}");
        assert!(hint.contains(&format!("mez.publisher(\"{camera}\"")), "{hint}");
        assert!(hint.contains(&format!("mez subscribe {pattern}")), "{hint}");
        let pattern: mez_core::name::CameraPattern = pattern.trim_matches('\'').parse().unwrap();
        assert!(pattern.matches(&camera.parse().unwrap()), "{hint}");
    }
}

/// The authority is replaced once, and not again before all members have followed. Hosts can see this.
#[test]
fn an_authority_is_replaced_and_shown() {
    let scratch = scratch();
    let folder = scratch.keys().path();
    let (before, _) = mez_keys(folder, &["show"]).unwrap();
    mez_keys(folder, &["token", "app/x"]).unwrap();
    let (rotated, notes) = mez_keys(folder, &["rotate", "--overlap", "10d"]).unwrap();
    assert!(rotated.contains("has a new authority") && notes.contains("(1) are void"), "{rotated}{notes}");
    let (after, _) = mez_keys(folder, &["show"]).unwrap();
    let fingerprint =
        |text: &str| text.lines().find(|line| line.starts_with("fingerprint")).unwrap().to_owned();
    assert_ne!(fingerprint(&before), fingerprint(&after));
    assert!(rotated.contains(fingerprint(&after).split_whitespace().last().unwrap()), "{rotated}");
    assert!(after.contains("authority before") && !before.contains("authority before"), "{after}");
    let again = mez_keys(folder, &["rotate"]).unwrap_err();
    assert!(again.contains("--force"), "{again}");
    mez_keys(folder, &["rotate", "--force", "--overlap", "1d"]).unwrap();
}

/// A truncated serial number matches no certificate, so revoking it would have no effect.
#[test]
fn a_part_of_a_serial_number_is_not_revoked() {
    let scratch = scratch();
    let here = scratch.keys().path().join("here");
    mez_keys(&here, &["init", "--site", "harbour"]).unwrap();
    let refused = mez_keys(&here, &["revoke", "3f2a90c4d1e65b77"]).unwrap_err();
    assert!(refused.contains("32 hexadecimal digits"), "{refused}");
    let (revoked, _) = mez_keys(&here, &["revoke", "3f2a90c4d1e65b7788990a1b2c3d4e5f"]).unwrap();
    assert!(revoked.contains("the certificate with this serial number"), "{revoked}");
    let (_, notes) = mez_keys(&here, &["revoked"]).unwrap();
    assert!(notes.contains("Version 1 "), "{notes}");
}
