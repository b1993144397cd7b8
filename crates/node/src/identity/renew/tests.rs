use std::time::{Duration, SystemTime};

use prost::Message;

use super::request::{Asked, RenewError};
use super::signer::decide;
use super::*;
use crate::api::pb::RenewalRefusal as Refusal;
use crate::identity::authority::SiteAuthority;
use crate::identity::certificate::{Validity, same_key};
use crate::identity::folder::TemporarySite;
use crate::identity::{Credentials, Identity, Role, SiteName};

const DAY: Duration = Duration::from_secs(24 * 3600);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

fn harbour() -> SiteName {
    "harbour".parse().unwrap()
}

fn site() -> TemporarySite {
    TemporarySite::create(&harbour()).unwrap()
}

fn member(authority: &SiteAuthority, short: &str, lasts: Duration) -> Credentials {
    let identity = Identity::parse_within(authority.site(), short).unwrap();
    let validity = Validity::from(SystemTime::now(), lasts);
    Credentials::issue(authority, &identity, &[], validity).unwrap()
}

fn refused(answer: &pb::RenewCertificateResponse) -> Refusal {
    answer.refusal()
}

async fn ask(signer: &Signer, request: &pb::RenewCertificateRequest) -> pb::RenewCertificateResponse {
    let answer = signer.answer(request.encode_to_vec().into()).await;
    pb::RenewCertificateResponse::decode(answer).unwrap()
}

/// The new certificate has the same identity and life, and another key; the old one is as good as before.
#[tokio::test]
async fn a_member_gets_a_certificate_for_a_new_key() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    for short in ["camera/dock/cam1", "app/counter", "edge/main"] {
        let credentials = member(&authority, short, 10 * DAY);
        let clone = credentials.clone();
        let old = credentials.chain();
        let asked = Asked::by(&credentials).unwrap();
        let answer = ask(&signer, &asked.request).await;
        assert_eq!(refused(&answer), Refusal::Unspecified, "{}", answer.message);
        let held = asked.accept(&credentials, answer, SystemTime::now()).unwrap();
        credentials.replace(held);
        assert_ne!(clone.chain(), old, "a clone kept the old one");
        assert!(!same_key(&clone.chain()[0], &old[0]));
        assert_eq!(clone.identity().short(), short);
        let lasts = clone.validity().lasts();
        assert!(10 * DAY - lasts < Duration::from_secs(2), "{lasts:?}");
        let edge = clone.identity().role == Role::Edge;
        assert_eq!(clone.facts().hosts.iter().any(|host| host == "mez-edge"), edge);
    }
}

/// Only the old key gets a new one: a request that was changed on the way, or made for somebody else, gets nothing.
#[tokio::test]
async fn a_request_without_the_old_key_gets_nothing() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let (camera, thief) = (member(&authority, "camera/dock", DAY), member(&authority, "app/thief", DAY));
    let (of_camera, of_thief) = (Asked::by(&camera).unwrap().request, Asked::by(&thief).unwrap().request);

    // An edge that passes it on puts its own key in.
    let swapped = pb::RenewCertificateRequest {
        signing_request: of_thief.signing_request.clone(),
        ..of_camera.clone()
    };
    // It asks for the camera with a key of its own.
    let claimed =
        pb::RenewCertificateRequest { certificate: of_camera.certificate.clone(), ..of_thief.clone() };
    let unsigned = pb::RenewCertificateRequest { signature: Bytes::new(), ..of_camera.clone() };
    for (what, request) in [("swapped", swapped), ("claimed", claimed), ("unsigned", unsigned)] {
        let answer = ask(&signer, &request).await;
        assert_eq!(refused(&answer), Refusal::BadRequest, "{what}: {}", answer.message);
        assert!(answer.chain.is_empty());
    }
    let stranger = SiteAuthority::generate(&harbour(), SystemTime::now()).unwrap();
    let request = Asked::by(&member(&stranger, "camera/dock", DAY)).unwrap().request;
    assert_eq!(refused(&ask(&signer, &request).await), Refusal::WrongIdentity);
    let garbage = pb::RenewCertificateRequest { certificate: vec![1, 2, 3].into(), ..of_camera };
    assert_eq!(refused(&ask(&signer, &garbage).await), Refusal::BadRequest);
    let answer = signer.answer(Bytes::from_static(&[0xff; 7])).await;
    assert_eq!(refused(&pb::RenewCertificateResponse::decode(answer).unwrap()), Refusal::BadRequest);
}

/// The key of a certificate is used once: the old key, signed by itself, gets nothing.
#[tokio::test]
async fn the_old_key_gets_no_second_certificate() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let camera = member(&authority, "camera/dock", DAY);
    let key = rcgen::KeyPair::from_pem(&camera.key_pem()).unwrap();
    let signing_request = rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    let signature = camera.held().sign(&[CONTEXT, &signing_request].concat()).unwrap();
    let request = pb::RenewCertificateRequest {
        certificate: camera.chain()[0].to_vec().into(),
        signing_request: signing_request.into(),
        signature: signature.into(),
        sent_utc_ns: 0,
    };
    let answer = ask(&signer, &request).await;
    assert_eq!(refused(&answer), Refusal::BadRequest);
    assert!(answer.message.contains("the old key"), "{}", answer.message);
}

/// Clocks that are wrong by a year: the sentence names what both say.
#[test]
fn a_clock_that_is_wrong_by_a_year_is_told_of_with_both_times() {
    let site = site();
    let authority = site.keys().load_authority().unwrap();
    let camera = member(&authority, "camera/dock/cam1", 30 * DAY);
    let asked = Asked::by(&camera).unwrap().request;
    let now = SystemTime::now();
    for (there, words) in [(now + YEAR, "expired at"), (now - YEAR, "not valid before")] {
        let (code, message) = decide(&authority, &asked, there).unwrap_err();
        assert_eq!(code, Refusal::NotValidNow);
        let clocks = [there, now].map(|at| crate::identity::Moment(at).to_string());
        assert!(message.contains(words) && clocks.iter().all(|clock| message.contains(clock)), "{message}");
    }
    // The remedy of one that has expired in earnest.
    let (_, message) = decide(&authority, &asked, now + 31 * DAY).unwrap_err();
    assert!(
        message.contains("`mez keys token camera/dock/cam1`") && message.contains("`mez keys enrol`"),
        "{message}"
    );
}

/// An answer that is for somebody else, or of an authority that nobody vouches for, changes nothing.
#[tokio::test]
async fn an_answer_that_does_not_fit_is_refused() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let (camera, app) = (member(&authority, "camera/dock", DAY), member(&authority, "app/x", DAY));
    let now = SystemTime::now();
    let of_app = ask(&signer, &Asked::by(&app).unwrap().request).await;
    let answered = Asked::by(&camera).unwrap().accept(&camera, of_app, now);
    assert!(matches!(answered, Err(RenewError::Mismatch(_))), "{:?}", answered.err());

    let other = SiteAuthority::generate(&harbour(), now).unwrap();
    let asked = Asked::by(&camera).unwrap();
    let mut answer = ask(&signer, &asked.request).await;
    answer.authorities = vec![other.certificate().to_vec().into()];
    let answered = asked.accept(&camera, answer, now);
    assert!(matches!(answered, Err(RenewError::Authority { .. })), "{:?}", answered.err());
}

/// The authority is replaced. Members follow when they renew; in the meantime old and new certificates are good on both sides.
#[tokio::test]
async fn members_follow_a_new_authority_when_they_renew() {
    let site = site();
    let old = site.keys().load_authority().unwrap();
    let signer = Signer::of(site.keys()).unwrap();
    let (camera, sleeper) = (member(&old, "camera/dock", DAY), member(&old, "camera/yard", DAY));
    let now = SystemTime::now();
    let new = SiteAuthority::rotate(site.keys().path(), 10 * DAY, now, false).unwrap();
    assert_ne!(new.certificate(), old.certificate());

    let asked = Asked::by(&camera).unwrap();
    let answer = ask(&signer, &asked.request).await;
    assert_eq!(refused(&answer), Refusal::Unspecified, "{}", answer.message);
    camera.replace(asked.accept(&camera, answer, now).unwrap());
    assert_eq!(camera.authority(), *new.certificate());
    assert_eq!(camera.chain().len(), 2, "what proves the new authority to those that know the old one alone");
    assert!(camera.trust().has_signed(&sleeper.chain()[0]), "the old one is trusted for a while");
    assert!(camera.trust().standing_at(now + 11 * DAY).count() == 1, "and dropped by itself");

    // An edge that knows the new authority vouches for the old one, which is not followed back.
    let back = vec![old.certificate().clone(), new.trust().certificates()[2].clone()];
    let refused = camera.trust().follow(back, now).unwrap_err();
    assert!(refused.contains("vouches"), "{refused}");
    // After the overlap the proof is no proof any more.
    let late = sleeper.trust().follow(new.trust().certificates().to_vec(), now + 11 * DAY);
    assert!(late.is_err());
}

/// A second rotation within the overlap would leave those behind that know the first authority alone.
#[test]
fn authorities_are_replaced_one_after_the_other() {
    let site = site();
    let (folder, now) = (site.keys().path(), SystemTime::now());
    SiteAuthority::rotate(folder, 10 * DAY, now, false).unwrap();
    let again = SiteAuthority::rotate(folder, 10 * DAY, now + DAY, false).unwrap_err();
    assert!(again.to_string().contains("--force"), "{again}");
    let third = SiteAuthority::rotate(folder, 10 * DAY, now + 11 * DAY, false).unwrap();
    assert_eq!(SiteAuthority::load(folder).unwrap().certificate(), third.certificate());
    for overlap in [Duration::ZERO, 2 * YEAR] {
        assert!(SiteAuthority::rotate(folder, overlap, now, true).is_err(), "{overlap:?}");
    }
    SiteAuthority::rotate(folder, DAY, now + 12 * DAY, true).unwrap();
}

/// A crash between the two files: the key's is complete, and the other one follows.
#[test]
fn a_rotation_that_was_cut_short_is_completed() {
    let site = site();
    let certificates = site.keys().path().join("authority.pem");
    let before = std::fs::read(&certificates).unwrap();
    let new = SiteAuthority::rotate(site.keys().path(), DAY, SystemTime::now(), false).unwrap();
    let after = std::fs::read(&certificates).unwrap();
    std::fs::write(&certificates, &before).unwrap();
    assert_eq!(SiteAuthority::load(site.keys().path()).unwrap().certificate(), new.certificate());
    assert_eq!(std::fs::read(&certificates).unwrap(), after);
}
