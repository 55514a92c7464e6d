//! What models and their harnesses are told about the tools, from one file: `tools.json`.
//!
//! A tool's annotations follow from its effect and from what a repetition does, so that the two cannot disagree.

use std::{str::FromStr, sync::LazyLock};

use serde::Deserialize;
use serde_json::{Map, Value};

/// What a call does to the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing.
    Read,
    /// It changes files.
    Change,
}

/// What the same call does when it is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Nothing but answer again.
    Safe,
    /// It is refused where it was held to a revision, and may change the file again where it was not.
    Pinned,
}

/// One tool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name, by which a model calls it.
    pub name: String,
    /// For the model.
    pub description: String,
    /// For people.
    pub title: String,
    /// The group of tools that it belongs to: a harness that does not grant it does not offer the tool.
    pub permission: String,
    /// What a call does.
    pub effect: Effect,
    /// What a repetition does.
    pub retry: Retry,
    /// A JSON schema of its arguments, without references and without `null` among the types.
    pub input_schema: Map<String, Value>,
    /// Arguments that make sense.
    pub examples: Vec<Map<String, Value>>,
}

impl Tool {
    /// It changes nothing (`readOnlyHint` of the Model Context Protocol).
    pub fn read_only(&self) -> bool {
        self.effect == Effect::Read
    }

    /// It may replace or remove what was there (`destructiveHint`).
    pub fn destructive(&self) -> bool {
        self.effect == Effect::Change
    }

    /// The same call again has no further effect (`idempotentHint`).
    pub fn idempotent(&self) -> bool {
        self.retry == Retry::Safe
    }
}

/// All tools, in the order in which they are offered.
pub fn tools() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        serde_json::from_str(include_str!("tools.json")).expect("the file is part of this program, and a test reads it")
    });
    &TOOLS
}

/// The tool of this name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    tools().iter().find(|tool| tool.name == name)
}

/// How far the files may be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Looked at only.
    Read,
    /// Changed too.
    Write,
}

/// What an agent may use: `files` (or `files=write`), `files=read`, or `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    files: Option<Access>,
}

impl Permissions {
    /// The tools that these allow, in order.
    pub fn tools(self) -> impl Iterator<Item = &'static Tool> {
        tools().iter().filter(move |tool| self.allow(tool))
    }

    fn allow(self, tool: &Tool) -> bool {
        let needed = if tool.read_only() { Access::Read } else { Access::Write };
        tool.permission == "files" && self.files.is_some_and(|granted| granted >= needed)
    }
}

impl Default for Permissions {
    /// All tools.
    fn default() -> Self {
        Self { files: Some(Access::Write) }
    }
}

impl FromStr for Permissions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let files = match text {
            "files" | "files=write" => Some(Access::Write),
            "files=read" => Some(Access::Read),
            "none" => None,
            _ => return Err("expected files=write, files=read or none".to_owned()),
        };
        Ok(Self { files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(permissions: &str) -> Vec<&'static str> {
        permissions.parse::<Permissions>().unwrap().tools().map(|tool| &*tool.name).collect()
    }

    #[test]
    fn permissions_say_which_tools_there_are() {
        let all = ["search_files", "edit_file", "read_file", "list_files", "stat_file"];
        assert_eq!(names("files"), all);
        assert_eq!(names("files=write"), all);
        assert_eq!(names("files=read"), ["search_files", "read_file", "list_files", "stat_file"]);
        assert_eq!(names("none"), [""; 0]);
        for wrong in ["", "files=", "files=all", "commands", "read"] {
            assert!(wrong.parse::<Permissions>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn schemas_are_plain_and_names_are_names() {
        for tool in tools() {
            let text = serde_json::to_string(&tool.input_schema).unwrap();
            for part in ["$ref", "$defs", "\"null\"", "anyOf", "oneOf"] {
                assert!(!text.contains(part), "{}: {part}", tool.name);
            }
            let letters = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            assert!(tool.name.len() <= 64 && tool.name.bytes().all(letters), "{}", tool.name);
            assert!(!tool.name.starts_with(|first: char| first.is_ascii_digit() || first == '-'), "{}", tool.name);
            let required = tool.input_schema["required"].as_array().unwrap();
            assert!((1..=2).contains(&required.len()), "{}", tool.name);
            let properties = tool.input_schema["properties"].as_object().unwrap();
            assert!(required.iter().all(|name| properties.contains_key(name.as_str().unwrap())), "{}", tool.name);
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
            assert!(properties.values().all(|property| property["description"].is_string()), "{}", tool.name);
            assert!(!tool.examples.is_empty(), "{}", tool.name);
        }
    }

    #[test]
    fn the_two_tools_of_every_language_are_told_in_the_same_words() {
        let python: Vec<Value> = serde_json::from_str(include_str!("../../python/src/dormouse/tools.json")).unwrap();
        assert_eq!(python.len(), 2);
        for theirs in &python {
            let ours = find(theirs["name"].as_str().unwrap()).unwrap();
            assert_eq!(theirs["description"], *ours.description);
            assert_eq!(theirs["permission"], *ours.permission);
            assert_eq!(theirs["input_schema"], Value::Object(ours.input_schema.clone()), "{}", ours.name);
            let annotations = serde_json::json!({
                "title": ours.title,
                "readOnlyHint": ours.read_only(),
                "destructiveHint": ours.destructive(),
                "idempotentHint": ours.idempotent(),
                "openWorldHint": false,
            });
            assert_eq!(theirs["annotations"], annotations, "{}", ours.name);
        }
    }
}
