//! The tools for agents: plain functions from a model's arguments, a client and a session to a text.
//!
//! ```text
//! arguments (JSON) ── arguments.rs ──► typed ── search | edit | read | list | stat ──► Output { text, is_error }
//! ```
//!
//! What a model is told about them (names, descriptions, schemas, effects, examples) is in [`tools()`]. A tool never fails
//! for what a model did wrong or a host refused: it answers with a text that names the code, the fact and the next call. Each
//! answer has a bound in bytes; what did not fit is counted, never cut in its middle.
//!
//! This module knows no protocol for agents: `dormouse mcp` puts one around it.

mod arguments;
mod edit;
mod explain;
mod list;
mod read;
mod registry;
mod search;
mod stat;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

pub use explain::Refusal;
pub use registry::{Access, Effect, Permissions, Retry, Tool, tools};

use crate::FilesClient;

/// The largest answer of a tool, in bytes, unless told otherwise.
pub const OUTPUT_BYTES: usize = 64 * 1024;
/// The least that an answer may be bounded to, in bytes: an empty answer with its totals fits.
pub const OUTPUT_BYTES_MIN: usize = 1024;

/// What the calls of one agent have in common.
#[derive(Debug, Clone)]
pub struct Session {
    workspace: String,
    output_bytes: usize,
    alternatives: BTreeMap<String, String>,
}

impl Session {
    /// A session on one workspace.
    pub fn new(workspace: impl Into<String>) -> Self {
        let ways = [
            (
                "file_search",
                "run `grep -rn` in a command if you can, or find the file with list_files and look at it with read_file",
            ),
            ("file_patch", "look at the file with read_file, and write the whole of it back with another tool"),
            ("file_revision", "look at the file with read_file, and write the whole of it back with another tool"),
        ];
        let alternatives = ways.into_iter().map(|(feature, way)| (feature.to_owned(), way.to_owned())).collect();
        Self { workspace: workspace.into(), output_bytes: OUTPUT_BYTES, alternatives }
    }

    /// The same with answers of at most so many bytes, and no fewer than [`OUTPUT_BYTES_MIN`].
    #[must_use]
    pub fn with_output_bytes(mut self, output_bytes: usize) -> Self {
        self.output_bytes = output_bytes.max(OUTPUT_BYTES_MIN);
        self
    }

    /// The same with what a model is told to do on a host that lacks `feature` (such as `file_search`), in the words of the
    /// other tools that it has.
    #[must_use]
    pub fn with_alternative(mut self, feature: impl Into<String>, way: impl Into<String>) -> Self {
        self.alternatives.insert(feature.into(), way.into());
        self
    }

    /// The workspace that all calls are about.
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    fn alternative(&self, feature: &str) -> &str {
        self.alternatives.get(feature).map_or("use another tool for this until the host is upgraded", String::as_str)
    }
}

/// What a tool says to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// For the model.
    pub text: String,
    /// The text tells what went wrong.
    pub is_error: bool,
}

impl Output {
    fn from_result(result: Result<String, Refusal>) -> Self {
        match result {
            Ok(text) => Self { text, is_error: false },
            Err(refusal) => Self { text: refusal.to_string(), is_error: true },
        }
    }
}

/// Runs the tool of this name; nothing where there is none. Dropping the future ends the calls that it makes.
pub async fn call(name: &str, arguments: &Value, client: &FilesClient, session: &Session) -> Option<Output> {
    let tool = registry::find(name)?;
    let result = match tool.name.as_str() {
        "search_files" => run(tool, arguments, async |asked| search::run(asked, client, session).await).await,
        "edit_file" => run(tool, arguments, async |asked| edit::run(asked, client, session).await).await,
        "read_file" => run(tool, arguments, async |asked| read::run(asked, client, session).await).await,
        "list_files" => run(tool, arguments, async |asked| list::run(asked, client, session).await).await,
        "stat_file" => run(tool, arguments, async |asked| stat::run(asked, client, session).await).await,
        _ => return None,
    };
    Some(Output::from_result(result))
}

async fn run<A: serde::de::DeserializeOwned>(
    tool: &Tool,
    arguments: &Value,
    work: impl AsyncFnOnce(A) -> Result<String, Refusal>,
) -> Result<String, Refusal> {
    work(arguments::decode(tool, arguments)?).await
}

/// A value as it stands in an answer.
fn json(value: &impl Serialize) -> String {
    // Only a map whose keys are no texts cannot be written, and no answer holds one.
    serde_json::to_string(value).expect("an answer's keys are texts")
}

/// Puts whole items into an answer until `room` bytes are used; gives them and the number of those left out.
fn fitting<T>(items: &[T], mut room: usize, shown: impl Fn(&T) -> Value) -> (Vec<Value>, usize) {
    let mut fit = Vec::new();
    for item in items {
        let value = shown(item);
        // And the comma between two.
        let size = json(&value).len() + usize::from(!fit.is_empty());
        let Some(left) = room.checked_sub(size) else { break };
        room = left;
        fit.push(value);
    }
    let omitted = items.len() - fit.len();
    (fit, omitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_items_fit_or_are_counted() {
        let texts = ["aaaa", "bb", "c"];
        let check = |room, expect: &[&str], omitted| {
            let (fit, left) = fitting(&texts, room, |text| Value::from(*text));
            assert_eq!((fit, left), (expect.iter().map(|text| Value::from(*text)).collect(), omitted), "{room}");
        };
        check(0, &[], 3);
        check(5, &[], 3);
        check(6, &["aaaa"], 2);
        check(10, &["aaaa"], 2);
        check(11, &["aaaa", "bb"], 1);
        check(15, &["aaaa", "bb", "c"], 0);
    }

    #[test]
    fn an_answer_s_bound_has_a_floor() {
        assert_eq!(Session::new("w").with_output_bytes(1).output_bytes, OUTPUT_BYTES_MIN);
        assert_eq!(Session::new("w").output_bytes, 65_536);
    }
}
