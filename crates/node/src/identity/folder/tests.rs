use super::*;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tempfile::TempDir;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn harbour() -> SiteName {
    "harbour".parse().unwrap()
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A site, and the folder of a host that was enrolled in it.
struct Host {
    site: TemporarySite,
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let host = Self { site: TemporarySite::create(&harbour()).unwrap(), folder: TempDir::new().unwrap() };
        host.close(0o700);
        let public = AUTHORITY_CERTIFICATE;
        std::fs::copy(host.site.keys().path().join(public), host.folder.path().join(public)).unwrap();
        host
    }

    fn close(&self, mode: u32) {
        std::fs::set_permissions(self.folder.path(), Permissions::from_mode(mode)).unwrap();
    }

    fn enrol(&self, short: &str, lasting: Duration) -> PathBuf {
        let identity = Identity::parse_within(&harbour(), short).unwrap();
        let authority = self.site.keys().load_authority().unwrap();
        let validity = Validity::from(SystemTime::now(), lasting);
        let made = Credentials::issue(&authority, &identity, &[], validity).unwrap();
        let path = self.folder.path().join(identity_file_name(&identity));
        self.put(&path, &format!("{}{}", made.key_pem(), made.chain_pem()));
        path
    }

    fn put(&self, path: &Path, content: &str) {
        files::write(path, content.as_bytes(), files::Readers::Owner, files::Present::Replace).unwrap();
    }

    fn keys(&self) -> KeyFolder {
        KeyFolder::open(self.folder.path()).unwrap()
    }

    fn credentials(&self, role: Role, of: &str) -> Result<Credentials, CredentialsError> {
        self.keys().credentials(role, Some(&name(of)))
    }
}

#[test]
fn the_first_place_that_is_given_counts() {
    let all = Environment {
        mez_keys: Some("/from/variable".into()),
        xdg_config_home: Some("/xdg".into()),
        home: Some("/home/ana".into()),
    };
    let chosen = |explicit: Option<&str>, around: &Environment| {
        Search::of(explicit.map(Path::new), around.clone()).chosen
    };
    assert_eq!(chosen(Some("/given"), &all), Some("/given".into()));
    assert_eq!(chosen(None, &all), Some("/from/variable".into()));
    let mut around = Environment { mez_keys: None, ..all };
    assert_eq!(chosen(None, &around), Some("/xdg/mez/keys".into()));
    around.xdg_config_home = Some("relative".into());
    assert_eq!(chosen(None, &around), Some("/home/ana/.config/mez/keys".into()));
    assert_eq!(chosen(None, &Environment::default()), None);
}

#[test]
fn where_there_are_no_keys_every_place_and_the_remedy_are_named() {
    let home = TempDir::new().unwrap();
    let around = Environment { home: Some(home.path().into()), ..Default::default() };
    let error = KeyFolder::find_among(&Search::of(None, around)).unwrap_err().to_string();
    let default = home.path().join(".config/mez/keys");
    for part in ["keys=", "MEZ_KEYS", &default.display().to_string(), "mez keys init", "mez keys enrol"] {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
    // A named folder without keys is an error. The next place is not tried.
    let site = TemporarySite::create(&harbour()).unwrap();
    let around = Environment { mez_keys: Some(site.keys().path().into()), ..Default::default() };
    let error = KeyFolder::find_among(&Search::of(Some(home.path()), around.clone())).unwrap_err();
    assert!(error.to_string().contains("holds no authority.pem"), "{error}");
    assert_eq!(KeyFolder::find_among(&Search::of(None, around)).unwrap().site(), &harbour());
}

#[test]
fn the_most_specific_identity_that_fits_is_taken() {
    let host = Host::new();
    host.enrol("camera/dock", 80 * DAY);
    host.enrol("camera/dock/cam1", 10 * DAY);
    host.enrol("app/counter", 10 * DAY);
    host.enrol("app/reader", 20 * DAY);
    let of = |role, camera| host.credentials(role, camera).map(|found| found.identity().short());
    assert_eq!(of(Role::Camera, "dock/cam1").unwrap(), "camera/dock/cam1");
    assert_eq!(of(Role::Camera, "dock/cam2").unwrap(), "camera/dock");
    assert_eq!(of(Role::App, "counter").unwrap(), "app/counter");
    let any = host.keys().credentials(Role::App, None).unwrap();
    assert_eq!(any.identity().short(), "app/reader", "not the one that lasts longest");

    for (role, wanted) in [(Role::Camera, "yard"), (Role::App, "dock"), (Role::Edge, "main")] {
        let error = host.credentials(role, wanted).unwrap_err().to_string();
        for part in ["camera/dock/cam1", "app/counter", &format!("mez keys token {role}/{wanted}")] {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn an_expired_identity_is_named_with_its_dates_unless_another_fits() {
    let host = Host::new();
    let expired = host.enrol("camera/dock/cam1", Duration::from_secs(0));
    let error = host.credentials(Role::Camera, "dock/cam1").unwrap_err();
    assert!(matches!(error, CredentialsError::NotNow { .. }), "{error}");
    let text = error.to_string();
    for part in [&expired.display().to_string(), "UTC", "mez keys token camera/dock/cam1"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    host.enrol("camera/dock", DAY);
    assert_eq!(host.credentials(Role::Camera, "dock/cam1").unwrap().identity().short(), "camera/dock");
    let far = SystemTime::now() + 11 * 366 * DAY;
    let error = host.keys().credentials_at(Role::Camera, Some(&name("dock")), &[], far).unwrap_err();
    assert!(matches!(error, CredentialsError::Authority { .. }), "{error}");
    let early = SystemTime::now() - DAY;
    let error = host.site.keys().credentials_at(Role::App, None, &[], early).unwrap_err();
    assert!(matches!(error, CredentialsError::Authority { .. }), "{error}");
}

#[test]
fn an_exposed_key_is_refused_with_the_command_that_hides_it() {
    let host = Host::new();
    let path = host.enrol("app/counter", DAY);
    for mode in [0o640, 0o604, 0o660] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let error = host.credentials(Role::App, "counter").unwrap_err().to_string();
        assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    host.credentials(Role::App, "counter").unwrap();
    host.close(0o770);
    let error = KeyFolder::open(host.folder.path()).unwrap_err().to_string();
    assert!(error.contains(&format!("chmod 700 {}", host.folder.path().display())), "{error}");
}

/// The message must contain the name that the application had, not the host's name.
#[test]
fn the_name_of_a_file_that_nobody_can_read_tells_which_token_is_to_be_made() {
    let host = Host::new();
    let path = host.enrol("app/line1/none", DAY);
    host.put(&path, "");
    let error = host.keys().credentials(Role::App, None).unwrap_err().to_string();
    assert!(error.contains("`mez keys token app/line1/none`"), "{error}");
    let error = host.credentials(Role::App, "counter").unwrap_err().to_string();
    assert!(error.contains("`mez keys token app/counter`"), "{error}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let host = Host::new();
    let counter = host.enrol("app/counter", DAY);
    let reader = host.enrol("app/reader", DAY);
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let split = |path: &Path| {
        let (key, certificate) = (text(path), text(path));
        let at = key.find("-----BEGIN CERTIFICATE").unwrap();
        (key[..at].to_owned(), certificate[at..].to_owned())
    };
    let ((key, certificate), (other_key, _)) = (split(&counter), split(&reader));
    let refused = |content: &str, why: &str| {
        host.put(&counter, content);
        let error = host.credentials(Role::App, "counter").unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&format!("{other_key}{certificate}"), "does not belong to its certificate");
    refused(&certificate, "no private key");
    // The owner of a key without a certificate is unknown, so the file fits no request, and is shown.
    refused(&key, "app+counter.pem (unreadable)");
    refused("", "app+counter.pem (unreadable)");

    let stranger = Host::new();
    let foreign = text(&stranger.enrol("app/counter", DAY));
    refused(&foreign, "not signed by the authority");
}

#[test]
fn the_authoritys_host_issues_in_memory_and_writes_nothing() {
    let site = TemporarySite::create(&harbour()).unwrap();
    let keys = site.keys();
    let before = files::names(keys.path()).unwrap();
    let camera = keys.credentials(Role::Camera, Some(&name("dock/cam1"))).unwrap();
    assert_eq!(camera.identity().to_string(), "spiffe://harbour/camera/dock/cam1");
    assert_eq!((camera.file(), &camera.authority()), (None, keys.authority()));
    let edge = keys.edge_credentials(None, &["edge.example".into()]).unwrap();
    assert_eq!(edge.identity().name, Name::from_host_name(&host_name()));
    for host in ["mez-edge", "localhost", "edge.example"] {
        assert!(edge.facts().hosts.iter().any(|known| known == host), "{host}");
    }
    keys.credentials(Role::App, None).unwrap();
    let nameless = keys.credentials(Role::Camera, None).unwrap_err();
    assert!(matches!(nameless, CredentialsError::NoName), "{nameless}");
    assert_eq!(files::names(keys.path()).unwrap(), before);
    assert!(!format!("{camera:?}").contains("PRIVATE"));
}

#[test]
fn an_enrolled_edge_serves_only_the_hosts_of_its_token() {
    let host = Host::new();
    host.enrol("edge/main", DAY);
    host.keys().edge_credentials(None, &["LOCALHOST".into()]).unwrap();
    let error = host.keys().edge_credentials(None, &["edge.example".into()]).unwrap_err();
    assert!(error.to_string().contains("--dns edge.example"), "{error}");
}

#[test]
fn a_temporary_site_is_private_and_leaves_nothing() {
    let site = TemporarySite::create(&harbour()).unwrap();
    let path = site.keys().path().to_owned();
    assert_eq!(files::mode(&path).unwrap(), 0o700);
    drop(site);
    assert!(!path.exists());
}

#[test]
fn identities_never_share_a_file() {
    let long = |end: &str| format!("camera/{}/{end}", vec!["x".repeat(64); 7].join("/"));
    let shorts = ["camera/dock/cam1", "camera/dock-cam1", "camera/dock.cam1", "app/dock/cam1"];
    let mut names: Vec<_> = shorts.map(str::to_owned).into_iter().chain([long("a"), long("b")]).collect();
    for short in &mut names {
        *short = identity_file_name(&Identity::parse_within(&harbour(), short).unwrap());
        assert!(short.len() <= 255, "{short}");
    }
    assert_eq!(names[0], "camera+dock+cam1.pem");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6);
}
