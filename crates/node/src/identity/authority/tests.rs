use std::time::Duration;

use super::*;
use crate::identity::certificate::{is_signed_by, peer_identity};

fn harbour() -> SiteName {
    "harbour".parse().unwrap()
}

fn identity(short: &str) -> Identity {
    Identity::parse_within(&harbour(), short).unwrap()
}

#[test]
fn an_authority_is_written_privately_and_loads_again() {
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("new/keys");
    let made = SiteAuthority::create(&folder, &harbour()).unwrap();
    assert_eq!(files::mode(&folder).unwrap(), 0o700);
    assert_eq!(files::mode(&folder.join(AUTHORITY_KEY)).unwrap(), 0o600);
    let published = std::fs::read_to_string(folder.join(AUTHORITY_CERTIFICATE)).unwrap();
    assert!(published.contains("CERTIFICATE") && !published.contains("PRIVATE KEY"));
    let loaded = SiteAuthority::load(&folder).unwrap();
    assert_eq!(loaded.certificate(), made.certificate());
    assert_eq!(loaded.site(), &harbour());
    let years = loaded.validity().not_after.duration_since(SystemTime::now()).unwrap();
    assert!(years > Duration::from_secs(3650 * 24 * 3600), "{years:?}");
}

#[test]
fn nothing_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let made = SiteAuthority::create(folder.path(), &harbour()).unwrap();
    let again = SiteAuthority::create(folder.path(), &harbour());
    assert!(matches!(again, Err(AuthorityError::Exists { key: true, .. })), "{again:?}");
    assert_eq!(SiteAuthority::load(folder.path()).unwrap().certificate(), made.certificate());

    std::fs::remove_file(folder.path().join(AUTHORITY_KEY)).unwrap();
    let enrolled = SiteAuthority::create(folder.path(), &harbour());
    assert!(matches!(enrolled, Err(AuthorityError::Exists { key: false, .. })), "{enrolled:?}");
    let keyless = SiteAuthority::load(folder.path());
    assert!(matches!(keyless, Err(AuthorityError::NoKey { .. })), "{keyless:?}");

    let busy = tempfile::tempdir().unwrap();
    std::fs::write(busy.path().join("thesis.tex"), "x").unwrap();
    let refused = SiteAuthority::create(busy.path(), &harbour());
    assert!(matches!(refused, Err(AuthorityError::Folder(_))), "{refused:?}");
}

#[test]
fn a_creation_that_was_cut_short_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let made = SiteAuthority::create(folder.path(), &harbour()).unwrap();
    std::fs::remove_file(folder.path().join(AUTHORITY_CERTIFICATE)).unwrap();
    let other = SiteAuthority::create(folder.path(), &"airport".parse().unwrap());
    assert!(matches!(other, Err(AuthorityError::Exists { .. })), "{other:?}");
    SiteAuthority::create(folder.path(), &harbour()).unwrap();
    assert_eq!(SiteAuthority::load(folder.path()).unwrap().certificate(), made.certificate());
}

#[test]
fn of_two_that_create_at_once_one_wins() {
    let folder = tempfile::tempdir().unwrap();
    let made: Vec<_> = std::thread::scope(|scope| {
        let run = || SiteAuthority::create(folder.path(), &harbour());
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let loaded = SiteAuthority::load(folder.path()).unwrap();
    assert_eq!(made.iter().filter(|result| result.is_ok()).count(), 1);
    for authority in made.into_iter().flatten() {
        assert_eq!(authority.certificate(), loaded.certificate());
    }
}

#[test]
fn an_exposed_or_damaged_authority_is_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    SiteAuthority::create(folder.path(), &harbour()).unwrap();
    let key = folder.path().join(AUTHORITY_KEY);
    let set_mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    set_mode(0o640);
    let error = SiteAuthority::load(folder.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("chmod 600 {}", key.display())), "{error}");
    set_mode(0o600);

    // The key of one authority beside the certificate of another.
    let elsewhere = tempfile::tempdir().unwrap();
    SiteAuthority::create(elsewhere.path(), &harbour()).unwrap();
    let public = AUTHORITY_CERTIFICATE;
    std::fs::copy(elsewhere.path().join(public), folder.path().join(public)).unwrap();
    let mixed = SiteAuthority::load(folder.path());
    assert!(matches!(mixed, Err(AuthorityError::Damaged { .. })), "{mixed:?}");
    std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    let garbage = SiteAuthority::load(folder.path());
    assert!(matches!(garbage, Err(AuthorityError::Damaged { .. })), "{garbage:?}");
}

#[test]
fn a_certificate_says_who_and_only_an_edge_has_hosts() {
    let now = SystemTime::now();
    let authority = SiteAuthority::generate(&harbour(), now).unwrap();
    let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
    let validity = Validity::from(now, Validity::MEMBER);
    for short in ["camera/dock/cam1", "app/counter"] {
        let chain = authority.issue(&identity(short), &key, &[], validity).unwrap();
        assert_eq!(peer_identity(&chain, &harbour()).unwrap(), identity(short));
        assert!(is_signed_by(&chain[0], authority.certificate()));
        let facts = CertificateFacts::read(&chain[0]).unwrap();
        assert_eq!((facts.hosts, facts.is_authority), (vec![], false));
        assert!(facts.validity.holds_at(now - Duration::from_secs(3500)), "not backdated");
        assert!(!facts.validity.holds_at(now + Duration::from_secs(91 * 24 * 3600)));
        let refused = authority.issue(&identity(short), &key, &["host".into()], validity);
        assert!(matches!(refused, Err(IssueError::HostsOfNonEdge { .. })), "{refused:?}");
    }
    let hosts = ["edge.lan".to_owned(), "10.0.0.7".into(), "localhost".into()];
    let chain = authority.issue(&identity("edge/main"), &key, &hosts, validity).unwrap();
    let facts = CertificateFacts::read(&chain[0]).unwrap();
    assert_eq!(facts.hosts, ["mez-edge", "localhost", "127.0.0.1", "::1", "edge.lan", "10.0.0.7"]);
    let odd = authority.issue(&identity("edge/main"), &key, &["a b".into()], validity);
    assert!(matches!(odd, Err(IssueError::Host { .. })), "{odd:?}");
    let many = vec!["x".to_owned(); EDGE_HOSTS_MAX + 1];
    let many = authority.issue(&identity("edge/main"), &key, &many, validity);
    assert!(matches!(many, Err(IssueError::TooManyHosts { .. })), "{many:?}");
}

#[test]
fn no_certificate_outlasts_the_authority_and_serials_differ() {
    let authority = SiteAuthority::generate(&harbour(), SystemTime::now()).unwrap();
    let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
    let long = Validity::from(SystemTime::now(), 10 * Validity::AUTHORITY);
    let issue = || authority.issue(&identity("app/x"), &key, &[], long).unwrap().remove(0);
    let (one, two) = (CertificateFacts::read(&issue()).unwrap(), CertificateFacts::read(&issue()).unwrap());
    assert!(one.validity.not_after <= authority.validity().not_after);
    assert_ne!(one.serial, two.serial);
}

#[test]
fn only_a_request_signed_with_its_own_p256_key_is_taken() {
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap();
    let good = request.der().to_vec();
    assert_eq!(PublicKey::from_request(&good), Ok(PublicKey::of(&key).unwrap()));

    let mut forged = good.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(PublicKey::from_request(&forged).is_err());
    let mut longer = good.clone();
    longer.push(0);
    assert!(matches!(PublicKey::from_request(&longer), Err(RequestError::Unreadable { .. })));
    assert!(matches!(PublicKey::from_request(b"hello"), Err(RequestError::Unreadable { .. })));
    for other in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(other).unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        assert_eq!(PublicKey::from_request(request.der()), Err(RequestError::Algorithm));
    }
}

#[test]
fn pem_reads_back_at_every_length() {
    for length in 0..200 {
        let der: Vec<u8> = (0..length).collect();
        let text = pem("CERTIFICATE", &der);
        assert!(text.lines().all(|line| line.len() <= 64), "{text}");
        assert_eq!(CertificateDer::from_pem_slice(text.as_bytes()).unwrap().as_ref(), der);
    }
}

#[test]
fn another_sites_identity_is_not_issued() {
    let authority = SiteAuthority::generate(&harbour(), SystemTime::now()).unwrap();
    let key = PublicKey::of(&KeyPair::generate().unwrap()).unwrap();
    let foreign = "spiffe://airport/app/x".parse().unwrap();
    let validity = Validity::from(SystemTime::now(), Validity::MEMBER);
    assert!(matches!(authority.issue(&foreign, &key, &[], validity), Err(IssueError::Site(_))));
}
