//! Prints the settings in force in the form of a settings file, with their origins.

use super::fault::Origin;
use super::resolve::{InForce, Line, OfRole, is_secret};
use super::setting::{Kind, Role};
use mez_node::source::SourceSpec;

/// The column of comments after short settings.
const COMMENTS_AT: usize = 48;

impl Line {
    /// The value in the form of a file. `None` if there is no value.
    pub(crate) fn shown(&self) -> Option<String> {
        if self.raws.is_empty() {
            return None;
        }
        let texts = self.raws.iter().map(|raw| {
            let text = raw.to_string_lossy().into_owned();
            if is_secret(&self.setting.key) {
                // Without user, password and query.
                return SourceSpec::parse(&text).map_or_else(|_| "…".into(), |source| source.to_string());
            }
            text
        });
        let texts: Vec<String> = texts.map(|text| value(self.setting.kind, &text)).collect();
        Some(if self.setting.is_list { format!("[{}]", texts.join(", ")) } else { texts.join(" ") })
    }
}

/// A value in TOML.
fn value(kind: Kind, text: &str) -> String {
    let is_bare = match kind {
        Kind::Switch | Kind::Whole => true,
        Kind::Number => text.parse::<f64>().is_ok_and(f64::is_finite),
        Kind::Size => text.bytes().all(|byte| byte.is_ascii_digit()),
        Kind::Text | Kind::Time => false,
    };
    // JSON strings are valid TOML.
    if is_bare { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// All settings of a role, with their origins.
pub(super) fn text<A: OfRole>(in_force: &InForce<A>) -> String {
    let role: Role = A::ROLE;
    let mut text = match &in_force.file {
        Some(path) => format!("# {} {}\n", role.reads(), path.display()),
        None => {
            let places: Vec<_> =
                super::file::places(role).iter().map(|path| path.display().to_string()).collect();
            format!("# {} no file; there is none at {}\n", role.reads(), places.join(" or "))
        }
    };
    text += &format!("role = \"{}\"\n", role.name());
    let computed = in_force.args.computed();
    for line in &in_force.lines {
        let key = &line.setting.key;
        let from = computed.iter().find(|(computed, _)| computed == key).map(|(_, value)| value);
        let shown = line.shown().or_else(|| from.map(|text| value(line.setting.kind, text)));
        let Some(shown) = shown else {
            let words = line.setting.default_in_words();
            text += &format!("# {key}: {}\n", words.unwrap_or_else(|| "none".into()));
            continue;
        };
        let origin = match &line.origin {
            Origin::Variable(name) => format!("variable {name}"),
            origin => origin.to_string(),
        };
        let setting = format!("{key} = {shown}");
        text += &format!("{setting:<COMMENTS_AT$}  # {origin}\n");
    }
    text
}
