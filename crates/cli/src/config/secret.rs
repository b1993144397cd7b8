//! Finds secrets in settings files. They do not belong there, because such files are
//! copied, shared and kept under version control. No message contains the secret.

use mez_node::identity::token;
use mez_node::source::{OnvifAddressError, OnvifChoice, SourceSpec};

use super::setting::Role;

/// Parts of parameter names in addresses that stand for secrets.
const IN_QUERIES: [&str; 8] = ["auth", "cred", "key", "pass", "pw", "secret", "sig", "token"];

/// Names that stand for secrets.
const NAMES: [&str; 7] = ["password", "passwd", "passphrase", "secret", "token", "credential", "private_key"];

/// The remedy, if a setting of this name would contain a secret.
pub(super) fn in_name(role: Role, key: &str) -> Option<String> {
    let key = key.to_ascii_lowercase();
    if !NAMES.iter().any(|name| key.contains(name)) {
        return None;
    }
    let instead = match role {
        _ if key.contains("token") => "use it once with `mez keys enrol`",
        Role::Camera => FOR_SOURCES,
        Role::Edge | Role::App => "keep keys in the folder that keys names, made by `mez keys`",
    };
    Some(format!("{NEVER}; {instead}"))
}

/// The remedy, if this value of a setting contains a secret.
pub(super) fn in_value(key: &str, value: &str) -> Option<String> {
    if value.contains("-----BEGIN") {
        return Some(format!(
            "a key or certificate is not a setting, and {NEVER}; name the folder that contains it with keys"
        ));
    }
    if value.split(['/', ',', '=', ' ']).any(|part| part.starts_with(token::PREFIX)) {
        return Some(format!("{NEVER}; a one-time token is used once, with `mez keys enrol`"));
    }
    let instead = match key {
        "source" if SourceSpec::parse(value).is_ok_and(|source| source.holds_credentials()) => FOR_SOURCES.into(),
        "source" => {
            let name = secret_in_query(value)?;
            format!("put the whole address into the variable MEZ_SOURCE, because its query contains {name}")
        }
        "source_onvif"
            if matches!(value.parse::<OnvifChoice>(), Err(OnvifAddressError::Credentials { .. })) =>
        {
            FOR_SOURCES.into()
        }
        "source_credentials" if value.contains(':') && !value.contains('/') => FOR_SOURCES.into(),
        "store_key" if is_key(value) => {
            "write the path of the file that `mez store key` made; or put the key into the variable MEZ_STORE_KEY, or the systemd credential mez-store-key"
                .into()
        }
        _ => return None,
    };
    Some(format!("{NEVER}; {instead}"))
}

/// The reason.
const NEVER: &str = "secrets do not belong in this file, which others may read";

/// The proper places of a source's credentials.
const FOR_SOURCES: &str = "put USER:PASSWORD into a file of mode 0600 and name that file with source_credentials, or put it into the variable MEZ_SOURCE_CREDENTIALS, or the systemd credential mez-source-credentials";

/// The name of a secret in the query of an address.
fn secret_in_query(value: &str) -> Option<&str> {
    let (_, query) = value.split_once('?')?;
    let names = query.split(['&', ';', '#']).map(|pair| pair.split('=').next().unwrap_or(pair));
    let mut secrets = names.filter(|name| {
        let name = name.to_ascii_lowercase();
        IN_QUERIES.iter().any(|part| name.contains(part))
    });
    secrets.next()
}

/// Whether a text is 32 bytes in base64, like a store key.
fn is_key(value: &str) -> bool {
    let value = value.trim();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    value.len() == 44 && value.strip_suffix('=').is_some_and(|digits| digits.bytes().all(is_base64))
}
