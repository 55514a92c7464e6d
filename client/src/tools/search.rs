//! `search_files`: whole matches up to the bound, the rest counted in `omitted_matches`.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Session, explain::Refusal, fitting, json as written};
use crate::{
    FilesClient,
    proto::files::v1::{ErrorReason, GlobList, Line, Match, Origin, SearchEnd, SearchRequest},
    words::{served_from, stop_reason},
};

/// What the model asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    pub(super) path: String,
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) regex: bool,
    #[serde(default)]
    pub(super) case_insensitive: bool,
    #[serde(default)]
    pub(super) include: Vec<String>,
    pub(super) exclude: Option<Vec<String>>,
    #[serde(default)]
    pub(super) context_lines: i32,
    pub(super) max_matches: Option<i32>,
}

pub(super) async fn run(asked: SearchFiles, client: &FilesClient, session: &Session) -> Result<String, Refusal> {
    let request = SearchRequest {
        workspace: session.workspace.clone(),
        path: asked.path.clone(),
        pattern: asked.pattern.clone(),
        regex: asked.regex,
        case_insensitive: asked.case_insensitive,
        include: asked.include.clone(),
        exclude: asked.exclude.clone().map(|globs| GlobList { globs }),
        context_lines: asked.context_lines,
        max_matches: asked.max_matches,
        ..SearchRequest::default()
    };
    let collected = async { client.search(request).await?.collect().await };
    let (matches, end, origin) = collected.await.map_err(|error| {
        let refusal = Refusal::from_error(&error, session);
        if error.reason() == Some(ErrorReason::InvalidPattern) && asked.regex {
            return refusal.with_next("mend the expression there, or leave `regex` out to search for the literal text");
        }
        refusal
    })?;
    Ok(render(&matches, &end, &origin, session.output_bytes, hint(&asked, &matches, &end)))
}

/// Where nothing was found and the pattern looks like the other kind, the other kind.
fn hint(asked: &SearchFiles, matches: &[Match], end: &SearchEnd) -> Option<&'static str> {
    if !matches.is_empty() || end.truncated {
        return None;
    }
    let expressive = ["\\", ".*", ".+", "|", "[", "^", "$", "(?"].iter().any(|part| asked.pattern.contains(part));
    match (asked.regex, expressive) {
        (false, true) => Some("the pattern was taken literally; set `regex` to true if it is a regular expression"),
        (true, false) if asked.pattern.contains(['.', '(', ')', '+', '*', '?', '{', '}']) => {
            Some("the pattern was taken as a regular expression; leave `regex` out if it is literal text")
        }
        _ => None,
    }
}

fn render(matches: &[Match], end: &SearchEnd, origin: &Origin, output_bytes: usize, hint: Option<&str>) -> String {
    let answer = |shown: Vec<Value>, omitted: usize| {
        let mut answer = json!({
            "matches": shown,
            "truncated": end.truncated,
            "stop_reason": stop_reason(end.stop_reason()),
            "files_scanned": end.files_scanned,
            "served_from": served_from(origin),
            "omitted_matches": omitted,
        });
        if let Some(hint) = hint {
            answer["hint"] = hint.into();
        }
        answer
    };
    let room = output_bytes.saturating_sub(written(&answer(Vec::new(), matches.len())).len());
    let (shown, omitted) = fitting(matches, room, shown);
    written(&answer(shown, omitted))
}

fn shown(found: &Match) -> Value {
    let mut shown = Map::new();
    shown.insert("path".into(), found.path.clone().into());
    shown.insert("line".into(), found.line.into());
    shown.insert("column".into(), found.column.into());
    shown.insert("text".into(), found.text.clone().into());
    if found.text_clipped {
        shown.insert("text_clipped".into(), true.into());
    }
    for (side, lines) in [("before", &found.before), ("after", &found.after)] {
        if !lines.is_empty() {
            shown.insert(side.into(), lines.iter().map(|line: &Line| line.text.clone()).collect());
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::files::v1::StopReason;

    fn found(line: i32, text: &str) -> Match {
        Match { path: "/p".into(), line, column: 1, end_column: 2, text: text.into(), ..Match::default() }
    }

    fn rendered(matches: &[Match], output_bytes: usize) -> (String, Value) {
        let end = SearchEnd { truncated: true, stop_reason: StopReason::MaxMatches.into(), ..SearchEnd::default() };
        let text = render(matches, &end, &Origin::default(), output_bytes, None);
        let answer = serde_json::from_str(&text).unwrap();
        (text, answer)
    }

    #[test]
    fn whole_matches_up_to_the_limit() {
        let matches: Vec<_> = (1..=2000).map(|line| found(line, &"é".repeat(40 + line as usize % 7))).collect();
        for limit in [1024, 1500, 4096, 65_536] {
            let (text, answer) = rendered(&matches, limit);
            let shown = answer["matches"].as_array().unwrap();
            assert!(text.len() <= limit && !shown.is_empty() && shown.len() < 2000, "{limit}: {}", text.len());
            assert_eq!(shown.len() as u64 + answer["omitted_matches"].as_u64().unwrap(), 2000);
            assert!(shown.iter().zip(1..).all(|(found, line)| found["line"] == line));
            assert_eq!((&answer["truncated"], &answer["stop_reason"]), (&true.into(), &"max_matches".into()));
            // One match more would not have fitted, beside the four digits that the count may take.
            let (more, _) = rendered(&matches[..=shown.len()], 1 << 30);
            assert!(more.len() + 3 > limit, "{limit}: {}", more.len());
        }
    }

    #[test]
    fn a_match_larger_than_the_limit_is_counted_not_cut() {
        let (_, answer) = rendered(&[found(1, &"x".repeat(1000)), found(2, "y")], 1024);
        assert_eq!((&answer["matches"], &answer["omitted_matches"]), (&json!([]), &2.into()));
    }

    fn check(pattern: &str, regex: bool, expect: &str) {
        let asked = SearchFiles {
            path: "/".into(),
            pattern: pattern.into(),
            regex,
            case_insensitive: false,
            include: vec![],
            exclude: None,
            context_lines: 0,
            max_matches: None,
        };
        let end = SearchEnd::default();
        let hint = hint(&asked, &[], &end).unwrap_or_default();
        assert!(if expect.is_empty() { hint.is_empty() } else { hint.contains(expect) }, "{pattern}: {hint}");
        assert_eq!(super::hint(&asked, &[found(1, "x")], &end), None);
    }

    #[test]
    fn no_hits_name_the_other_mode_where_the_pattern_looks_like_it() {
        check("def \\w+", false, "set `regex` to true");
        check("a|b", false, "set `regex` to true");
        check("TODO", false, "");
        check("f(x)", false, "");
        check("f().g", true, "leave `regex` out");
        check("a.*b", true, "");
        check("TODO", true, "");
    }
}
