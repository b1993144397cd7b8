use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mez_core::renewal::{Now, Renewal, Step};
use mez_core::revocation::{Entry, Revocations};
use mez_core::units::{Instant, Timestamp};
use prost::Message;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::request::{Asked, RenewError};
use super::signer::{Pace, decide};
use super::*;
use crate::api::pb::RenewalRefusal as Refusal;
use crate::identity::authority::SiteAuthority;
use crate::identity::certificate::{BACKDATED, Validity, same_key};
use crate::identity::folder::TemporarySite;
use crate::identity::trust::Trust;
use crate::identity::{Credentials, Identity, Role, SiteName};
use crate::revocation::{RevokedFile, seconds};

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

fn nobody() -> Revocations {
    Revocations::none("harbour")
}

fn refused(answer: &pb::RenewCertificateResponse) -> Refusal {
    answer.refusal()
}

async fn ask(signer: &Signer, request: &pb::RenewCertificateRequest) -> pb::RenewCertificateResponse {
    let answer = signer.answer(request.encode_to_vec().into()).await;
    pb::RenewCertificateResponse::decode(answer).unwrap()
}

/// The new certificate has the same identity and lifetime, and another key. The old certificate stays valid.
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

/// Only the holder of the old key gets a new certificate. A request that was changed on the way, or made for another member, gets nothing.
#[tokio::test]
async fn a_request_without_the_old_key_gets_nothing() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let (camera, thief) = (member(&authority, "camera/dock", DAY), member(&authority, "app/thief", DAY));
    let (of_camera, of_thief) = (Asked::by(&camera).unwrap().request, Asked::by(&thief).unwrap().request);

    // A forwarding edge inserts its own key.
    let swapped = pb::RenewCertificateRequest {
        signing_request: of_thief.signing_request.clone(),
        ..of_camera.clone()
    };
    // A thief asks for the camera's certificate with a key of its own.
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

/// The holder of a stolen key cannot request certificate after certificate. Others are not delayed.
#[tokio::test]
async fn a_member_gets_one_certificate_after_the_other_with_a_pause() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let (camera, other) = (member(&authority, "camera/dock", DAY), member(&authority, "camera/yard", DAY));
    let ask_for = async |credentials| ask(&signer, &Asked::by(credentials).unwrap().request).await;
    assert_eq!(refused(&ask_for(&camera).await), Refusal::Unspecified);
    let again = ask_for(&camera).await;
    assert_eq!(refused(&again), Refusal::TooSoon);
    assert!(again.chain.is_empty() && again.message.contains("camera/dock"), "{}", again.message);
    assert_eq!(refused(&ask_for(&other).await), Refusal::Unspecified);
}

/// Each key has one certificate: the old key, signed by itself, gets nothing.
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

/// A revoked member gets no certificate that would count as issued after the revocation. A member that enrolled again does.
#[tokio::test]
async fn a_revoked_member_gets_no_certificate() {
    let site = site();
    let (authority, signer) = (site.keys().load_authority().unwrap(), Signer::of(site.keys()).unwrap());
    let (stolen, other) = (member(&authority, "camera/dock", DAY), member(&authority, "camera/yard", DAY));
    let file = RevokedFile::of(site.keys().path(), site.keys().trust());
    let revoke = |member: &str| {
        file.edit(&authority, |list| {
            let now = seconds(SystemTime::now());
            let entry = Entry { since: now, until: Timestamp::MAX, because: "stolen".into() };
            Ok(list.with(now, member.parse().unwrap(), entry)?)
        })
    };
    revoke("camera/dock").unwrap();
    let answer = ask(&signer, &Asked::by(&stolen).unwrap().request).await;
    assert_eq!(refused(&answer), Refusal::Revoked);
    assert!(answer.message.contains("was revoked (stolen)") && answer.chain.is_empty(), "{}", answer.message);
    assert_eq!(refused(&ask(&signer, &Asked::by(&other).unwrap().request).await), Refusal::Unspecified);

    // If the deny list is unknown, nobody gets a certificate, and the message to the member contains no paths.
    let list = std::fs::read(file.path()).unwrap();
    for broken in [Some(&list[..list.len() / 2]), None] {
        match broken {
            Some(bytes) => std::fs::write(file.path(), bytes).unwrap(),
            None => std::fs::remove_file(file.path()).unwrap(),
        }
        let answer = ask(&signer, &Asked::by(&other).unwrap().request).await;
        assert_eq!(refused(&answer), Refusal::Internal);
        let message = &answer.message;
        assert!(message.contains("deny list") && !message.contains("revoked.list"), "{message}");
    }
}

/// A revocation and renewals at the same moment: certificates issued before it are denied, and none is issued after it.
#[test]
fn nobody_renews_past_a_revocation() {
    let site = site();
    let authority = site.keys().load_authority().unwrap();
    let camera = member(&authority, "camera/dock", DAY);
    let file = RevokedFile::of(site.keys().path(), site.keys().trust());
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            let signer = Signer::at_pace(site.keys(), Pace::of(Duration::ZERO)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut last = None;
            loop {
                let asked = Asked::by(&camera).unwrap();
                let answer = runtime.block_on(ask(&signer, &asked.request));
                match refused(&answer) {
                    Refusal::Unspecified => last = answer.chain.first().cloned(),
                    Refusal::Revoked => return last.expect("some were issued before"),
                    other => panic!("{other:?}: {}", answer.message),
                }
            }
        });
        std::thread::sleep(Duration::from_millis(100));
        let held = file.edit(&authority, |list| {
            let now = seconds(SystemTime::now());
            let entry = Entry { since: now, until: Timestamp::MAX, because: String::new() };
            Ok(list.with(now, "camera/dock".parse().unwrap(), entry)?)
        });
        let last = CertificateDer::from(renewing.join().unwrap().to_vec());
        let shown = crate::revocation::shown(&last, camera.identity()).unwrap();
        assert!(held.unwrap().list.denies(&shown).is_some(), "{shown:?} outlived the revocation");
    });
}

/// With clocks that differ by a year, the message names the time of both.
#[test]
fn a_clock_that_is_wrong_by_a_year_is_told_of_with_both_times() {
    let site = site();
    let authority = site.keys().load_authority().unwrap();
    let camera = member(&authority, "camera/dock/cam1", 30 * DAY);
    let asked = Asked::by(&camera).unwrap().request;
    let now = SystemTime::now();
    for (there, words) in [(now + YEAR, "expired at"), (now - YEAR, "not valid before")] {
        let (code, message) = decide(&authority, &nobody(), &asked, there).unwrap_err();
        assert_eq!(code, Refusal::NotValidNow);
        let clocks = [there, now].map(|at| crate::identity::Moment(at).to_string());
        assert!(message.contains(words) && clocks.iter().all(|clock| message.contains(clock)), "{message}");
    }
    // The remedy for a certificate that has really expired.
    let (_, message) = decide(&authority, &nobody(), &asked, now + 31 * DAY).unwrap_err();
    assert!(
        message.contains("`mez keys token camera/dock/cam1`") && message.contains("`mez keys enrol`"),
        "{message}"
    );
}

/// An answer for another member, or from an authority that nobody vouches for, changes nothing.
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

/// The authority is replaced. Members follow when they renew. Until then, old and new certificates are valid on both sides.
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

    // An edge names the old authority again, which is not followed back.
    let refused = camera.trust().follow(vec![old.certificate().clone()], now).unwrap_err();
    assert!(refused.contains("has signed it"), "{refused}");
    // The new authority's link to the old key does not prove the old authority.
    let back = vec![old.certificate().clone(), new.trust().certificates()[2].clone()];
    assert!(camera.trust().follow(back, now).is_err());
    // An edge's own authority beside the genuine one is not trusted.
    let own = SiteAuthority::generate(&harbour(), now).unwrap();
    let beside = vec![new.certificate().clone(), own.certificate().clone()];
    let refused = camera.trust().follow(beside, now).unwrap_err();
    assert!(refused.contains("nothing links"), "{refused}");
    // After the overlap, the successor certificate proves nothing.
    let late = sleeper.trust().follow(new.trust().certificates().to_vec(), now + 11 * DAY);
    assert!(late.is_err());
}

/// A member that asks without a certificate gets only the authorities that the site trusts.
#[tokio::test]
async fn whoever_listens_hears_of_the_authorities_alone() {
    let site = site();
    let old = site.keys().load_authority().unwrap();
    let signer = Signer::of(site.keys()).unwrap();
    let listen = pb::RenewCertificateRequest::default();
    let answer = ask(&signer, &listen).await;
    assert_eq!(
        (refused(&answer), answer.chain.len(), answer.authorities.len()),
        (Refusal::Unspecified, 0, 1)
    );
    let new = SiteAuthority::rotate(site.keys().path(), DAY, SystemTime::now(), false).unwrap();
    let answer = ask(&signer, &listen).await;
    assert_eq!((answer.chain.len(), answer.authorities.len()), (0, 3));
    let heard = super::request::certificates(answer.authorities);
    let followed = old.trust().follow(heard, SystemTime::now()).unwrap().unwrap();
    assert_eq!(followed.root(), new.certificate());
}

/// The deny list stays valid after the old authority is forgotten. Its version increases by one, so that everybody fetches it.
#[test]
fn the_deny_list_is_signed_anew_with_the_authority() {
    let site = site();
    let (folder, now) = (site.keys().path(), SystemTime::now());
    let old = site.keys().load_authority().unwrap();
    let file = RevokedFile::of(folder, old.trust());
    let entry = Entry { since: Timestamp::MIN, until: Timestamp::MAX, because: "stolen".into() };
    let before =
        file.edit(&old, |list| Ok(list.with(Timestamp::MIN, "app/x".parse().unwrap(), entry)?)).unwrap();
    let damaged = std::fs::read(file.path()).unwrap();
    std::fs::write(file.path(), &damaged[..40]).unwrap();
    let refused = SiteAuthority::rotate(folder, DAY, now, false).unwrap_err().to_string();
    assert!(refused.contains("revoked.list"), "{refused}");
    std::fs::write(file.path(), &damaged).unwrap();

    let new = SiteAuthority::rotate(folder, DAY, now, false).unwrap();
    let alone = Trust::of(vec![new.certificate().clone()]).unwrap();
    let after = RevokedFile::of(folder, &alone).read().unwrap();
    assert_eq!(after.list.version(), before.list.version() + 1);
    assert!(after.list.entries().eq(before.list.entries()));
    // Members that know only the old authority take it too.
    assert_eq!(file.read().unwrap(), after);
}

/// A year of a member whose certificates are valid for a day and a half, so that one is renewed each day, with virtual clocks and real
/// certificates. At every moment an edge accepts the certificate in use. In summer the authority is replaced, with an overlap of a week.
#[test]
fn a_year_of_daily_renewals_is_accepted_every_day() {
    let site = site();
    let begin = SystemTime::now();
    let mut authority = site.keys().load_authority().unwrap();
    let issued = |authority: &SiteAuthority, short: &str, at, lasts| {
        let identity = Identity::parse_within(&harbour(), short).unwrap();
        Credentials::issue(authority, &identity, &[], Validity::from(at, lasts)).unwrap()
    };
    let camera = issued(&authority, "camera/dock", begin, DAY * 3 / 2);
    // A verifier that never renews, as at an edge that follows the authority at once.
    let mut edge = authority.trust().clone();
    let clock = |at: SystemTime| Now {
        monotonic: Instant::ZERO + at.duration_since(begin).unwrap(),
        wall: Timestamp::from_nanos(at.duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64),
    };
    let unix = |at: SystemTime| UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap());
    let accepted = |edge: &Trust, at| {
        let chain = camera.chain();
        let accepted = edge.clients().verify_client_cert(&chain[0], &edge.with_links(&chain[1..]), unix(at));
        assert!(accepted.is_ok(), "{:?} after {:?}", accepted, clock(at).monotonic);
    };
    let schedule = |at| Renewal::of_issued(camera.validity().life(), BACKDATED, clock(at), 0.5);
    let (mut at, mut renewal) = (begin, schedule(begin));
    let (mut renewals, mut rotated) = (0, None);
    while at < begin + YEAR {
        if rotated.is_none() && at > begin + 180 * DAY {
            authority = SiteAuthority::rotate(site.keys().path(), 7 * DAY, at, false).unwrap();
            edge = authority.trust().clone();
            rotated = Some(at);
        }
        match renewal.poll(clock(at)) {
            Step::Wait(wait) => at += wait,
            Step::Listen => renewal.handle_heard(false, clock(at), 0.5),
            Step::Ask => {
                // The oldest certificate that the edge sees.
                accepted(&edge, at);
                let asked = Asked::by(&camera).unwrap();
                let decided = decide(&authority, &nobody(), &asked.request, at);
                let (_, chain) =
                    decided.unwrap_or_else(|(_, why)| panic!("after {renewals} renewals: {why}"));
                let answer = pb::RenewCertificateResponse {
                    chain: chain.iter().map(|der| der.to_vec().into()).collect(),
                    authorities: authority.trust().standing_at(at).map(|der| der.to_vec().into()).collect(),
                    ..Default::default()
                };
                camera.replace(asked.accept(&camera, answer, at).unwrap());
                (renewals, renewal) = (renewals + 1, schedule(at));
                accepted(&edge, at);
            }
        }
    }
    assert!((360..=400).contains(&renewals), "{renewals} renewals");
    assert_eq!(camera.authority(), *authority.certificate());
    assert_eq!(camera.chain().len(), 1, "what proved the new authority is not needed any more");

    assert!(rotated.is_some());
}

/// An edge that has not renewed yet shows a certificate of the old authority. Members that
/// follow the new one accept it until the date on which the overlap ends, without any message.
#[test]
fn the_old_authority_is_dropped_by_date() {
    let site = site();
    let now = SystemTime::now();
    let old = site.keys().load_authority().unwrap();
    let edge = member(&old, "edge/main", 30 * DAY);
    let new = SiteAuthority::rotate(site.keys().path(), 7 * DAY, now, false).unwrap();
    let name = ServerName::try_from("mez-edge").unwrap();
    let accepted = |trust: &Trust, edge: &Credentials, at: SystemTime| {
        let at = UnixTime::since_unix_epoch(at.duration_since(UNIX_EPOCH).unwrap());
        let chain = edge.chain();
        trust.servers().verify_server_cert(&chain[0], &trust.with_links(&chain[1..]), &name, &[], at).is_ok()
    };
    assert!(accepted(new.trust(), &edge, now + 6 * DAY));
    assert!(!accepted(new.trust(), &edge, now + 8 * DAY));
    // The other direction: a member that knows only the old authority, and an edge that has renewed.
    let renewed = member(&new, "edge/main", 30 * DAY);
    assert!(accepted(old.trust(), &renewed, now + 6 * DAY));
    assert!(!accepted(old.trust(), &renewed, now + 8 * DAY), "it had a week to follow");
    // A thief of the old key makes an authority, which nobody trusts.
    let thief = SiteAuthority::generate(&harbour(), now).unwrap();
    assert!(!accepted(new.trust(), &member(&thief, "edge/main", DAY), now));
}

/// A second rotation within the overlap would lose the members that know only the first authority.
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

/// A crash between the two files: the key's file is complete, and the other file is written later.
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
