//! The settings as a JSON schema for editors, and as tables for the documentation.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::setting::{Kind, Role, Setting};

/// The JSON schema of a role's files.
pub(super) fn schema(role: Role) -> String {
    let reloaded = role.reloaded();
    let mut properties: BTreeMap<String, Value> = BTreeMap::new();
    properties.insert(
        "role".into(),
        sorted([
            ("const", json!(role.name())),
            ("description", json!("Whose file it is")),
            ("type", json!("string")),
        ]),
    );
    for setting in role.settings() {
        let is_reloaded = reloaded.contains(&setting.key.as_str());
        properties.insert(setting.key.clone(), property(&setting, is_reloaded));
    }
    let schema = sorted([
        ("$schema", json!("http://json-schema.org/draft-07/schema#")),
        ("additionalProperties", json!(false)),
        ("properties", sorted(properties)),
        ("required", json!(["role"])),
        ("title", json!(format!("Settings of Mez for {}", role.reader()))),
        ("type", json!("object")),
    ]);
    serde_json::to_string_pretty(&schema).expect("a schema is plain JSON") + "\n"
}

fn property(setting: &Setting, is_reloaded: bool) -> Value {
    let mut says = setting.help();
    if let Some(words) = setting.default_in_words() {
        let _ = write!(says, ". Default: {words}");
    }
    let _ = match setting.variable() {
        Some(variable) => write!(says, ". {}, {variable}", setting.flag()),
        None => write!(says, ". {}", setting.flag()),
    };
    says += if is_reloaded { ". Changes on SIGHUP" } else { ". Needs a restart" };
    let kind = match setting.kind {
        _ if setting.is_list => json!(["array", "string"]),
        Kind::Text | Kind::Time => json!("string"),
        Kind::Size => json!(["integer", "string"]),
        Kind::Whole => json!("integer"),
        Kind::Number => json!("number"),
        Kind::Switch => json!("boolean"),
    };
    let mut property: BTreeMap<&str, Value> = BTreeMap::from([("description", json!(says)), ("type", kind)]);
    if setting.is_list {
        property.insert("items", json!({ "type": "string" }));
    }
    let choices = setting.choices();
    if !choices.is_empty() {
        property.insert("enum", json!(choices));
    }
    if let Some(default) = setting.default() {
        let value = match setting.kind {
            Kind::Switch | Kind::Whole | Kind::Number => serde_json::from_str(&default).ok(),
            _ => None,
        };
        property.insert("default", value.unwrap_or_else(|| json!(default)));
    }
    sorted(property)
}

/// An object with sorted names, independent of the features of serde_json.
fn sorted<K: Into<String> + Ord>(pairs: impl IntoIterator<Item = (K, Value)>) -> Value {
    let pairs: BTreeMap<String, Value> =
        pairs.into_iter().map(|(name, value)| (name.into(), value)).collect();
    Value::Object(pairs.into_iter().collect())
}

/// A Markdown table of a role's settings.
pub(super) fn table(role: Role) -> String {
    let reloaded = role.reloaded();
    let mut text = String::from(
        "| in the file | flag | variable | default | on SIGHUP | what it says |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for setting in role.settings() {
        let escaped = |text: &str| text.replace('|', "\\|");
        let value = match setting.kind {
            Kind::Switch => String::new(),
            _ => format!(" {}", setting.value_name()),
        };
        let flag = match setting.flag() {
            flag if flag.starts_with("--") => format!("`{}{}`", flag, escaped(&value)),
            name => format!("`{name}`"),
        };
        let variable = setting.variable().map_or(String::new(), |name| format!("`{name}`"));
        let default = match (setting.default(), setting.default_in_words()) {
            (Some(default), _) => format!("`{default}`"),
            (None, words) => escaped(&words.unwrap_or_default()),
        };
        let on_hangup = if reloaded.contains(&setting.key.as_str()) { "changes" } else { "" };
        let mut says = escaped(&setting.help());
        if !setting.choices().is_empty() {
            let _ = write!(says, ": {}", setting.choices().join(", "));
        }
        let _ =
            writeln!(text, "| `{}` | {flag} | {variable} | {default} | {on_hangup} | {says} |", setting.key);
    }
    text
}
