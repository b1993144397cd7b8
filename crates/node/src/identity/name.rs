//! Parses and prints identities: `spiffe://SITE/ROLE/NAME`, the URI in every certificate of a site.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use mez_core::name::{CameraName, SEGMENT_BYTES_MAX, SEGMENTS_MAX};

/// The most bytes in the name of a site.
pub const SITE_BYTES_MAX: usize = 64;

const SCHEME: &str = "spiffe://";

/// One member of a site: a camera host, an edge server or an application.
///
/// Written as `spiffe://SITE/ROLE/NAME`, for example `spiffe://harbour/camera/dock/cam1`: the URI
/// in the member's certificate. On the command line the site is left out: `camera/dock/cam1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The site whose authority vouches for this member.
    pub site: SiteName,
    /// The role of the member.
    pub role: Role,
    /// The member's name within the role.
    pub name: Name,
}

impl Identity {
    /// Parses `text` as a full URI or, without the scheme, as `ROLE/NAME` of `site`.
    ///
    /// A full URI of another site is refused: only a site's own authority can speak for it.
    pub fn parse_within(site: &SiteName, text: &str) -> Result<Self, IdentityError> {
        let identity = match text.starts_with(SCHEME) {
            true => text.parse()?,
            false => Self::from_role_and_name(site.clone(), text, text)?,
        };
        if identity.site != *site {
            return Err(IdentityError::OtherSite { identity: Box::new(identity), site: site.clone() });
        }
        Ok(identity)
    }

    /// Whether this identity may publish `camera`.
    ///
    /// A camera host often has several cameras, so the identity `camera/dock` may publish `dock` and everything
    /// below it (`dock/cam1`), but not `docks`. Other roles may publish nothing.
    pub fn permits_camera(&self, camera: &CameraName) -> bool {
        let is_covered = || match camera.as_str().strip_prefix(self.name.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        self.role == Role::Camera && is_covered()
    }

    /// Role and name without the site: `camera/dock/cam1`, as typed at the command line.
    pub fn short(&self) -> String {
        format!("{}/{}", self.role, self.name)
    }

    fn from_role_and_name(site: SiteName, path: &str, whole: &str) -> Result<Self, IdentityError> {
        let (role, name) =
            path.split_once('/').ok_or_else(|| IdentityError::Form { text: clipped(whole) })?;
        Ok(Self { site, role: role.parse()?, name: name.parse()? })
    }
}

/// Role and name of a member from its identity URI, as commands print it: `camera/dock/cam1`.
pub(crate) fn member(uri: &str) -> &str {
    let path = uri.strip_prefix("spiffe://").and_then(|rest| rest.split_once('/'));
    path.map_or(uri, |(_, member)| member)
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.site, self.role, self.name)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form { text: clipped(text) };
        let rest = text.strip_prefix(SCHEME).ok_or_else(form)?;
        let (site, path) = rest.split_once('/').ok_or_else(form)?;
        Self::from_role_and_name(site.parse()?, path, text)
    }
}

/// The role of a member. Grants are given by role. A certificate has exactly one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A camera host: dials the link and publishes.
    Camera,
    /// An edge server: accepts the link and serves applications.
    Edge,
    /// An application: subscribes at an edge.
    App,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Camera, Self::Edge, Self::App];

    /// The role as text in an identity.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Camera => "camera",
            Self::Edge => "edge",
            Self::App => "app",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| IdentityError::Role { text: clipped(text) })
    }
}

/// The name of a site: 1 to 64 lower-case letters, digits, `.`, `_` and `-`, with a letter or digit at both ends.
///
/// It is the trust domain of the site's identities, so two sites that ever meet should have different names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteName(Arc<str>);

impl SiteName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The nearest valid site name: a host name such as `Dock_PC.lan` becomes `dock_pc.lan`. `site` if no usable character is left.
    pub fn from_host_name(host: &str) -> Self {
        let plain = |c: char| if is_part_character(c) { c.to_ascii_lowercase() } else { '-' };
        let name: String = host.chars().map(plain).take(SITE_BYTES_MAX).collect();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        name.parse().unwrap_or_else(|_| Self("site".into()))
    }
}

impl FromStr for SiteName {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let inner = |c: char| is_part_character(c) && !c.is_ascii_uppercase();
        let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let valid = text.len() <= SITE_BYTES_MAX
            && text.chars().all(inner)
            && end(text.chars().next())
            && end(text.chars().next_back());
        if valid { Ok(Self(text.into())) } else { Err(IdentityError::Site { text: clipped(text) }) }
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SiteName({})", self.0)
    }
}

/// The name of a member. It has the form of a camera's name, because a camera host is named after its cameras.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(CameraName);

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name as a camera name.
    pub fn as_camera(&self) -> &CameraName {
        &self.0
    }

    /// How many parts the name has.
    pub fn parts(&self) -> usize {
        self.as_str().split('/').count()
    }

    /// The nearest valid name of one part, for a host without another name. `host` if no usable character is left.
    pub fn from_host_name(host: &str) -> Self {
        let plain = |c: char| if is_part_character(c) { c } else { '-' };
        let name: String = host.chars().map(plain).take(SEGMENT_BYTES_MAX).collect();
        name.parse().unwrap_or_else(|_| "host".parse().expect("a plain word is a name"))
    }
}

impl From<CameraName> for Name {
    fn from(camera: CameraName) -> Self {
        Self(camera)
    }
}

impl FromStr for Name {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        // The error of a camera's name mentions cameras, but this may be an application.
        text.parse().map(Self).map_err(|_| IdentityError::Name { text: clipped(text) })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Why a text is not an identity, or not one that may be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Neither a URI nor `ROLE/NAME`.
    #[error(
        "{text:?} is not an identity; write a role and a name such as camera/dock/cam1, edge/main or app/counter"
    )]
    Form {
        /// The text that was refused.
        text: String,
    },
    /// An unknown role.
    #[error("{text:?} is not a role; an identity begins with camera/, edge/ or app/")]
    Role {
        /// The text that was refused.
        text: String,
    },
    /// A site with a character or a length that is not allowed.
    #[error(
        "{text:?} is not a site name; use 1 to {SITE_BYTES_MAX} lower-case letters, digits, '.', '_' and '-', \
         with a letter or digit at both ends"
    )]
    Site {
        /// The text that was refused.
        text: String,
    },
    /// A name with a character, a length or a number of parts that is not allowed.
    #[error(
        "{text:?} is not a name; use 1 to {SEGMENTS_MAX} parts joined by '/', each of 1 to {SEGMENT_BYTES_MAX} \
         letters, digits, '.', '_' and '-', not only dots"
    )]
    Name {
        /// The text that was refused.
        text: String,
    },
    /// An identity of another site.
    #[error("{identity} belongs to another site; this one is {site}")]
    OtherSite {
        /// The identity that was refused.
        identity: Box<Identity>,
        /// The site that was expected.
        site: SiteName,
    },
}

fn is_part_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Shortens a text, so that a hostile text cannot fill a log or a terminal.
fn clipped(text: &str) -> String {
    text.chars().take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identity(text: &str) -> Identity {
        text.parse().unwrap()
    }

    #[test]
    fn a_camera_identity_covers_its_own_name_and_what_lies_below() {
        let table = [
            ("camera/dock", "dock", true),
            ("camera/dock", "dock/cam1", true),
            ("camera/dock", "dock/north/cam1", true),
            ("camera/dock", "docks", false),
            ("camera/dock", "docks/cam1", false),
            ("camera/dock", "doc", false),
            ("camera/dock", "Dock", false),
            ("camera/dock", "yard/dock", false),
            ("camera/dock/cam1", "dock/cam1", true),
            ("camera/dock/cam1", "dock/cam1/left", true),
            ("camera/dock/cam1", "dock/cam2", false),
            ("camera/dock/cam1", "dock/cam11", false),
            ("camera/dock/cam1", "dock", false),
            ("edge/dock", "dock", false),
            ("app/dock", "dock", false),
        ];
        for (who, camera, expected) in table {
            let who = identity(&format!("spiffe://harbour/{who}"));
            assert_eq!(who.permits_camera(&camera.parse().unwrap()), expected, "{who} on {camera:?}");
        }
    }

    #[test]
    fn what_is_not_an_identity_is_refused() {
        let long = format!("spiffe://harbour/app/{}", "x".repeat(65));
        for bad in [
            "",
            "camera/dock",
            "spiffe://",
            "spiffe:///camera/dock",
            "spiffe://harbour",
            "spiffe://harbour/",
            "spiffe://harbour/camera",
            "spiffe://harbour/camera/",
            "spiffe://harbour/Camera/dock",
            "spiffe://harbour/root/dock",
            "spiffe://Harbour/camera/dock",
            "spiffe://harbour:80/camera/dock",
            "spiffe://me@harbour/camera/dock",
            "spiffe://-harbour/camera/dock",
            "spiffe://harbour/camera/dock/",
            "spiffe://harbour/camera//dock",
            "spiffe://harbour/camera/..",
            "spiffe://harbour/camera/dock/./x",
            "spiffe://harbour/camera/dock?x",
            "spiffe://harbour/camera/dock%2fx",
            "spiffe://harbour/camera/d\u{f6}ck",
            "spiffe://harbour/camera/a/b/c/d/e/f/g/h/i",
            "https://harbour/camera/dock",
            &long,
        ] {
            assert!(bad.parse::<Identity>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn the_short_form_takes_the_site_from_where_it_is_used() {
        let site: SiteName = "harbour".parse().unwrap();
        let short = Identity::parse_within(&site, "camera/dock/cam1").unwrap();
        assert_eq!(short, identity("spiffe://harbour/camera/dock/cam1"));
        assert_eq!(Identity::parse_within(&site, &short.to_string()), Ok(short));
        let other = Identity::parse_within(&site, "spiffe://airport/camera/dock/cam1");
        assert!(matches!(other, Err(IdentityError::OtherSite { .. })), "{other:?}");
    }

    #[test]
    fn any_host_name_gives_a_site_and_a_name() {
        for (host, site, name) in [
            ("Dock_PC.lan", "dock_pc.lan", "Dock_PC.lan"),
            ("bj\u{f6}rn's mac", "bj-rn-s-mac", "bj-rn-s-mac"),
            ("--x--", "x", "--x--"),
            ("...", "site", "host"),
            ("", "site", "host"),
        ] {
            assert_eq!(SiteName::from_host_name(host).as_str(), site);
            assert_eq!(Name::from_host_name(host).as_str(), name);
        }
        assert_eq!(SiteName::from_host_name(&"y".repeat(300)).as_str().len(), SITE_BYTES_MAX);
    }

    fn a_name() -> impl Strategy<Value = String> {
        let part = "[A-Za-z0-9._-]{1,64}".prop_filter("only dots", |part| part.chars().any(|c| c != '.'));
        prop::collection::vec(part, 1..=SEGMENTS_MAX).prop_map(|parts| parts.join("/"))
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(
            site in "[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?", role in prop::sample::select(&Role::ALL), name in a_name()
        ) {
            let identity = Identity { site: site.parse().unwrap(), role, name: name.parse().unwrap() };
            prop_assert_eq!(&identity.to_string().parse::<Identity>().unwrap(), &identity);
            prop_assert_eq!(&Identity::parse_within(&identity.site, &identity.short()).unwrap(), &identity);
        }

        #[test]
        fn what_parses_prints_as_it_was_written(text in "(spiffe://)?[a-z.-]{0,9}/(camera|edge|app|x)/[a-zA-Z./-]{0,9}") {
            if let Ok(identity) = text.parse::<Identity>() {
                prop_assert_eq!(identity.to_string(), text);
            }
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in any::<String>()) {
            let _ = text.parse::<Identity>();
            let _ = SiteName::from_host_name(&text);
            let _ = Name::from_host_name(&text);
        }
    }
}
