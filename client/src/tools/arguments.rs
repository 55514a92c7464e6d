//! A model's arguments, read by a tool's schema: what is meant clearly is taken ("3" for 3, the JSON text of a list for a
//! list, a null as if left out), what is not is refused with the field's name.
//!
//! Two passes: `coerce` bends a value towards the schema and names what cannot be bent; serde then decodes it into the tool's
//! own type, where unknown and missing fields are found.

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{explain::Refusal, registry::Tool};

/// Deeper than any schema of ours; a model's JSON may be deeper.
const DEPTH_MAX: usize = 8;

/// The arguments in the tool's own type. `arguments`: an object, or the JSON text of one.
pub(super) fn decode<A: DeserializeOwned>(tool: &Tool, arguments: &Value) -> Result<A, Refusal> {
    let schema = &tool.input_schema;
    let refused = |field: &str, fact: &str| {
        let field = if field.is_empty() { "arguments" } else { field };
        Refusal::invalid(format!("`{field}`: {fact}")).with_next(format!("call {} again with this mended", tool.name))
    };
    let value = coerce(schema, arguments.clone(), "", 0).map_err(|(field, fact)| refused(&field, &fact))?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = match error.path().to_string() {
            // How the path of the whole is written.
            root if root == "." => String::new(),
            path => path,
        };
        let fact = error.inner().to_string();
        if fact.starts_with("unknown field") {
            let known = known_fields(schema, &path);
            return refused(&path, "unknown field")
                .with_next(format!("call {} again with this mended; the fields there are {known}", tool.name));
        }
        match fact.strip_prefix("missing field `").and_then(|rest| rest.split_once('`')) {
            Some((name, _)) => refused(&inner(&path, name), "missing"),
            None => refused(&path, &fact),
        }
    })
}

type Refused = (String, String);

fn inner(field: &str, name: &str) -> String {
    if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") }
}

fn coerce(schema: &Map<String, Value>, value: Value, field: &str, depth: usize) -> Result<Value, Refused> {
    let refused = |fact: &str| Err((field.to_owned(), fact.to_owned()));
    if depth > DEPTH_MAX {
        return refused("nested too deep");
    }
    match (schema.get("type").and_then(Value::as_str).unwrap_or_default(), value) {
        ("object", Value::String(text)) => match serde_json::from_str(&text) {
            Ok(parsed @ Value::Object(_)) => coerce(schema, parsed, field, depth),
            _ => refused("an object is expected"),
        },
        ("object", Value::Object(members)) => object(schema, members, field, depth),
        ("object", _) => refused("an object is expected"),
        ("array", value) => list(schema, value, field, depth),
        ("string", value @ Value::String(_)) => Ok(value),
        ("string", _) => refused("text is expected"),
        ("boolean", value @ Value::Bool(_)) => Ok(value),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true.into()),
        ("boolean", Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false.into()),
        ("boolean", _) => refused("true or false is expected"),
        ("integer", value) => integer(schema, &value).map_err(|fact| (field.to_owned(), fact)),
        (_, value) => Ok(value),
    }
}

/// Members that the schema does not know are left for the decoder to name.
fn object(
    schema: &Map<String, Value>,
    members: Map<String, Value>,
    field: &str,
    depth: usize,
) -> Result<Value, Refused> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut out = Map::new();
    for (name, value) in members {
        let property = properties.and_then(|properties| properties.get(&name)).and_then(Value::as_object);
        match property {
            Some(_) if value.is_null() => {}
            Some(property) => {
                let coerced = coerce(property, value, &inner(field, &name), depth + 1)?;
                out.insert(name, coerced);
            }
            None => {
                out.insert(name, value);
            }
        }
    }
    Ok(out.into())
}

fn list(schema: &Map<String, Value>, value: Value, field: &str, depth: usize) -> Result<Value, Refused> {
    static NO_SCHEMA: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    let items = schema.get("items").and_then(Value::as_object).unwrap_or(&NO_SCHEMA);
    let value = match value {
        // One glob is a list of one.
        Value::String(text) if items.get("type") == Some(&"string".into()) && !text.trim_start().starts_with('[') => {
            Value::Array(vec![text.into()])
        }
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::Null),
        value => value,
    };
    let Value::Array(values) = value else { return Err((field.to_owned(), "a list is expected".to_owned())) };
    let coerced = values
        .into_iter()
        .enumerate()
        .map(|(index, value)| coerce(items, value, &format!("{field}[{index}]"), depth + 1));
    coerced.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

fn integer(schema: &Map<String, Value>, value: &Value) -> Result<Value, String> {
    let number = match value {
        Value::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    let number = number.ok_or("a whole number is expected")?;
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    let (least, most) = (bound("minimum").unwrap_or(i64::MIN), bound("maximum").unwrap_or(i64::MAX));
    if number < least || number > most {
        return Err(format!("a number from {least} to {most} is expected"));
    }
    Ok(number.into())
}

/// 7.0 is 7. Beyond 2^53 a float no longer knows its ones.
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i64)
}

/// The names of the fields beside the unknown one at `path`.
fn known_fields(schema: &Map<String, Value>, path: &str) -> String {
    let in_list = path.contains('[');
    let properties = schema.get("properties").and_then(Value::as_object);
    let place = match (in_list, path.split('[').next().and_then(|name| properties?.get(name))) {
        (true, Some(list)) => list["items"]["properties"].as_object(),
        _ => properties,
    };
    let names: Vec<_> = place.into_iter().flat_map(Map::keys).map(String::as_str).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::{edit::EditFile, registry::find, search::SearchFiles};

    fn check(arguments: Value, fact: &str) {
        let refusal = decode::<SearchFiles>(find("search_files").unwrap(), &arguments).err().unwrap().to_string();
        assert!(refusal.starts_with(&format!("invalid_argument: {fact}. Next: ")), "{refusal}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        check(json!("[1]"), "`arguments`: an object is expected");
        check(json!("{"), "`arguments`: an object is expected");
        check(json!(null), "`arguments`: an object is expected");
        check(json!({"path": "/"}), "`pattern`: missing");
        check(json!({"path": "/", "pattern": null}), "`pattern`: missing");
        check(json!({"path": "/", "pattern": 3}), "`pattern`: text is expected");
        check(
            json!({"path": "/", "pattern": "x", "max_matches": 0}),
            "`max_matches`: a number from 1 to 5000 is expected",
        );
        check(json!({"path": "/", "pattern": "x", "max_matches": 1.5}), "`max_matches`: a whole number is expected");
        check(json!({"path": "/", "pattern": "x", "max_matches": true}), "`max_matches`: a whole number is expected");
        check(json!({"path": "/", "pattern": "x", "max_matches": 1e300}), "`max_matches`: a whole number is expected");
        check(json!({"path": "/", "pattern": "x", "regex": 1}), "`regex`: true or false is expected");
        check(json!({"path": "/", "pattern": "x", "include": {"a": 1}}), "`include`: a list is expected");
        check(json!({"path": "/", "pattern": "x", "include": ["a", 1]}), "`include[1]`: text is expected");
        check(json!({"path": "/", "pattern": "x", "include": "[".repeat(100_000)}), "`include`: a list is expected");
        check(json!({"path": "/", "pattern": "x", "contextLines": 1}), "`contextLines`: unknown field");
    }

    #[test]
    fn a_misspelt_field_in_a_list_is_named_with_its_place() {
        let tool = find("edit_file").unwrap();
        let arguments = json!({"path": "/f", "edits": [{"old_text": "a", "new_txt": "b"}]});
        let refusal = decode::<EditFile>(tool, &arguments).err().unwrap().to_string();
        assert_eq!(
            refusal,
            "invalid_argument: `edits[0].new_txt`: unknown field. Next: call edit_file again with this mended; \
             the fields there are new_text, old_text, replace_all."
        );
        let arguments = json!({"path": "/f", "edits": [{"old_text": "a", "new_text": "b"}, {"old_text": "a"}]});
        let refusal = decode::<EditFile>(tool, &arguments).err().unwrap().to_string();
        assert!(refusal.starts_with("invalid_argument: `edits[1].new_text`: missing"), "{refusal}");
    }

    #[test]
    fn what_is_meant_clearly_is_taken() {
        let arguments = json!({
            "path": " /p ", "pattern": "x", "context_lines": "2", "max_matches": 7.0, "regex": "True",
            "include": "[\"*.py\", \"*.md\"]", "exclude": [], "case_insensitive": null,
        });
        let text = Value::String(arguments.to_string());
        for arguments in [arguments, text] {
            let asked: SearchFiles = decode(find("search_files").unwrap(), &arguments).unwrap();
            assert_eq!((&*asked.path, asked.context_lines, asked.max_matches), (" /p ", 2, Some(7)));
            assert_eq!((asked.regex, asked.case_insensitive), (true, false));
            assert_eq!((asked.include, asked.exclude), (vec!["*.py".to_owned(), "*.md".to_owned()], Some(vec![])));
        }
        let one = decode::<SearchFiles>(
            find("search_files").unwrap(),
            &json!({"path": "/", "pattern": "x", "include": "*.py"}),
        );
        assert_eq!(one.unwrap().include, ["*.py"]);
    }

    #[test]
    fn edits_may_be_a_text_and_content_that_looks_like_json_is_left_alone() {
        let tool = find("edit_file").unwrap();
        let edits = json!([{"old_text": "a", "new_text": "b", "replace_all": "false"}]).to_string();
        let asked: EditFile = decode(tool, &json!({"path": "/f", "edits": edits})).unwrap();
        assert_eq!(asked.edits.unwrap().len(), 1);
        let asked: EditFile = decode(tool, &json!({"path": "/f", "content": "{\"edits\": []}"})).unwrap();
        assert_eq!(asked.content.as_deref(), Some("{\"edits\": []}"));
    }

    #[test]
    fn every_example_is_understood() {
        for tool in crate::tools::tools() {
            for example in &tool.examples {
                let value = coerce(&tool.input_schema, Value::Object(example.clone()), "", 0).unwrap();
                assert_eq!(value, Value::Object(example.clone()), "{}", tool.name);
                let known = tool.input_schema["properties"].as_object().unwrap();
                assert!(example.keys().all(|name| known.contains_key(name)), "{}", tool.name);
            }
        }
    }
}
