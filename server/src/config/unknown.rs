//! A configuration from its text, with every unknown key named at once: who has misspelt two keys should not have to start
//! twice to learn it.
//!
//! The parser stops at the first one. It is blanked out with its value, or with its whole table, and the rest is parsed
//! again, as long as what is found is unknown keys and nothing else.

use crate::config::Config;

/// Most keys that are named.
const NAMED_COUNT_MAX: usize = 16;

/// # Errors
/// The parser's words, of one mistake or of each unknown key.
pub(super) fn parse(text: &str) -> Result<Config, String> {
    let mut rest = text.to_owned();
    let mut named: Vec<String> = Vec::new();
    while named.len() < NAMED_COUNT_MAX {
        let error = match toml::from_str::<Config>(&rest) {
            Ok(config) if named.is_empty() => return Ok(config),
            Ok(_) => break,
            Err(error) => error,
        };
        let is_unknown = error.message().starts_with("unknown field");
        // What follows from a key that was blanked out is not told: it may be no mistake of the text.
        if is_unknown || named.is_empty() {
            named.push(error.to_string().trim_end().to_owned());
        }
        match error.span().filter(|_| is_unknown) {
            Some(span) => blank(&mut rest, span.start),
            None => break,
        }
    }
    Err(named.join("\n"))
}

/// Blanks out the line at this place, or the table whose header it is. Lines stay where they are.
fn blank(text: &mut String, place: usize) {
    let begin = text[..place].rfind('\n').map_or(0, |end| end + 1);
    let is_header = text[begin..].trim_start().starts_with('[');
    let mut end = begin;
    for (index, line) in text[begin..].split_inclusive('\n').enumerate() {
        if index > 0 && (!is_header || line.trim_start().starts_with('[')) {
            break;
        }
        end += line.len();
    }
    let blanked: String = text[begin..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }).collect();
    text.replace_range(begin..end, &blanked);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, named: &[&str], not_named: &[&str]) {
        let said = parse(text).unwrap_err();
        for name in named {
            assert!(said.contains(&format!("unknown field `{name}`")), "{name}: {said}");
        }
        for name in not_named {
            assert!(!said.contains(&format!("unknown field `{name}`")), "{name}: {said}");
        }
        assert_eq!(said.matches("unknown field").count(), named.len(), "{said}");
    }

    #[test]
    fn every_unknown_key_is_named_with_its_line() {
        check("listne = []\nstate = 1\n", &["listne", "state"], &[]);
        check("[limits]\ncalls = 1\n[log]\nlevle = 1\n", &["calls", "levle"], &[]);
        check("[limit]\ncalls = 1\n[log]\nlevle = 1\n", &["limit", "levle"], &["calls"]);
        check("a = 1\n[[workspace]]\nname = \"w\"\ndirectory = \"/\"\nroot = 1\n", &["a", "root"], &[]);
        let said = parse("\n\nlistne = []\n\"ä\" = 1\n").unwrap_err();
        assert!(said.contains("line 3") && said.contains("line 4"), "{said}");
    }

    #[test]
    fn they_are_bounded_and_another_mistake_ends_the_list() {
        let many: String = (0..100).map(|number| format!("key{number} = 1\n")).collect();
        assert_eq!(parse(&many).unwrap_err().matches("unknown field").count(), NAMED_COUNT_MAX);
        check("listne = [\n\"x\",\n]\nother = 1\n", &["listne"], &[]);
        assert!(parse("listen = 1\nother = 1").unwrap_err().contains("listen"));
        assert!(parse("[limits\n").is_err());
        assert!(parse("").is_ok());
    }
}
