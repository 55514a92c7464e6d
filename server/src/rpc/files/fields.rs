//! Fields that many requests share, decoded by hand and fallibly: from here on a path is a path and a key is a key.

use dormouse_files::{
    Fault,
    change::Key,
    path::{PathFault, TreePath},
    revision::{Expected, Hasher, Revision},
};
use dormouse_proto::{GENERATION_METADATA, files::v1};
use prost::Message;
use tonic::metadata::MetadataMap;

use crate::host::{ReadSource, spec::check_name};

/// Whether a path's trailing `/` is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Something that is to be a file.
    File,
    /// A file or a directory.
    Any,
}

/// Exactly one of `path` and `raw_path`; `field` is the name of the first, `raw_` before it that of the second.
///
/// # Errors
/// `Invalid`, `Outside`.
pub fn path(field: &str, text: &str, raw: &[u8], names: Names) -> Result<TreePath, Fault> {
    let (field, bytes) = match (text.is_empty(), raw.is_empty()) {
        (false, true) => (field.to_owned(), text.as_bytes()),
        (true, false) => (format!("raw_{field}"), raw),
        (true, true) => {
            return Err(Fault::invalid(field, format!("set {field} or raw_{field} to an absolute path")));
        }
        (false, false) => return Err(Fault::invalid(field, format!("set only one of {field} and raw_{field}"))),
    };
    let parsed = match names {
        Names::File => TreePath::parse_file(bytes),
        Names::Any => TreePath::parse(bytes),
    };
    parsed.map_err(|fault| match fault {
        PathFault::ParentComponent => Fault::Outside { path: String::from_utf8_lossy(bytes).into_owned() },
        fault => Fault::invalid(field, fault.to_string()),
    })
}

/// A workspace's name.
///
/// # Errors
/// `Invalid`.
pub fn workspace(name: &str) -> Result<(), Fault> {
    check_name(name).map_err(|what| Fault::invalid("workspace", what))
}

/// Which generation of the workspace the caller knows, from the request's metadata.
///
/// # Errors
/// `Invalid` where it is no number.
pub fn generation(metadata: &MetadataMap) -> Result<Option<i64>, Fault> {
    let Some(value) = metadata.get(GENERATION_METADATA) else { return Ok(None) };
    let known = value.to_str().ok().and_then(|text| text.parse().ok()).filter(|generation| *generation >= 0);
    known
        .map(Some)
        .ok_or_else(|| Fault::invalid(GENERATION_METADATA, "the metadata is no generation: send a decimal number"))
}

/// From where a read may be answered.
///
/// # Errors
/// `Invalid` for a value of a later version.
pub fn source(value: i32) -> Result<ReadSource, Fault> {
    match v1::ReadSource::try_from(value) {
        Ok(v1::ReadSource::Unspecified) => Ok(ReadSource::Any),
        Ok(v1::ReadSource::Workspace) => Ok(ReadSource::Workspace),
        Ok(v1::ReadSource::Disk) => Ok(ReadSource::Disk),
        Err(_) => Err(Fault::invalid("source", format!("{value} is no read source that this host knows"))),
    }
}

/// What a change expects to find.
///
/// # Errors
/// `Invalid` for anything but 64 lowercase hex characters and `absent`.
pub fn expected(text: Option<&str>) -> Result<Expected, Fault> {
    Expected::parse(text).map_err(|text| {
        let what = if text.is_empty() { "it is empty" } else { "it is no revision" };
        Fault::invalid(
            "expected_revision",
            format!("{what}: send 64 lowercase hex characters, or \"absent\", or leave it unset"),
        )
    })
}

/// What a read or a removal expects: a content, never `absent`.
///
/// # Errors
/// `Invalid`.
pub fn expected_content(text: Option<&str>) -> Result<Option<Revision>, Fault> {
    match expected(text)? {
        Expected::Any => Ok(None),
        Expected::Revision(revision) => Ok(Some(revision)),
        Expected::Absent => Err(Fault::invalid(
            "expected_revision",
            "\"absent\" makes no sense here: send a revision, or leave it unset",
        )),
    }
}

/// Permission bits of something new.
///
/// # Errors
/// `Invalid` for bits beyond 0777.
pub fn mode(mode: Option<u32>) -> Result<Option<u32>, Fault> {
    match mode {
        Some(bits) if bits > 0o777 => {
            Err(Fault::invalid("mode", format!("{bits:#o} has more than the permission bits 0777")))
        }
        mode => Ok(mode),
    }
}

/// The key of a change. `message` is the request with its key taken out: its hash tells one request from another.
///
/// # Errors
/// `Invalid`.
pub fn key(text: &str, method: &str, message: &impl Message) -> Result<Key, Fault> {
    let mut hasher = Hasher::default();
    hasher.update(method.as_bytes());
    hasher.update(&[0]);
    hasher.update(&message.encode_to_vec());
    Key::new(text, *hasher.finish().digest()).ok_or_else(|| {
        let what = if text.is_empty() { "it is missing" } else { "it is not 1 to 64 printable ASCII characters" };
        Fault::invalid(
            "idempotency_key",
            format!("{what}: send a random UUID, the same for every attempt at the same change"),
        )
    })
}

/// A count or size that a caller may set: unset is the default, else 1 to the limit.
///
/// # Errors
/// `Invalid`, naming the limit.
pub fn bounded(field: &str, value: Option<i64>, default: u64, limit: u64) -> Result<u64, Fault> {
    let Some(value) = value else { return Ok(default) };
    match u64::try_from(value) {
        Ok(value) if (1..=limit).contains(&value) => Ok(value),
        _ => Err(Fault::invalid(field, format!("{value} is not between 1 and the limit of {limit}"))),
    }
}

/// Refuses a request whose encoding is over the limit.
///
/// # Errors
/// `RequestTooLarge`.
pub fn size(message: &impl Message, limit_bytes: u64) -> Result<(), Fault> {
    let size_bytes = message.encoded_len() as u64;
    if size_bytes > limit_bytes {
        return Err(Fault::RequestTooLarge { size_bytes, limit_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T>(found: Result<T, Fault>, expect: Result<(), &str>) {
        let found = found.map(drop).map_err(|fault| match fault {
            Fault::Invalid { field, .. } => field,
            Fault::Outside { .. } => "outside".to_owned(),
            Fault::RequestTooLarge { .. } => "too large".to_owned(),
            other => other.to_string(),
        });
        assert_eq!(found, expect.map_err(str::to_owned));
    }

    #[test]
    fn exactly_one_path() {
        check(path("path", "/a", b"", Names::File), Ok(()));
        check(path("path", "", b"/\xff", Names::File), Ok(()));
        check(path("path", "", b"", Names::File), Err("path"));
        check(path("path", "/a", b"/a", Names::File), Err("path"));
        check(path("new_path", "", b"a", Names::File), Err("raw_new_path"));
        check(path("path", "/a/../b", b"", Names::Any), Err("outside"));
        check(path("path", "/a/", b"", Names::File), Err("path"));
        check(path("path", "/a/", b"", Names::Any), Ok(()));
    }

    #[test]
    fn revisions_modes_and_counts() {
        let revision = Revision::of(b"").to_string();
        check(expected(None), Ok(()));
        check(expected(Some(&revision)), Ok(()));
        check(expected(Some("absent")), Ok(()));
        check(expected(Some("")), Err("expected_revision"));
        check(expected(Some(&revision.to_uppercase())), Err("expected_revision"));
        check(expected_content(Some("absent")), Err("expected_revision"));
        check(mode(None), Ok(()));
        check(mode(Some(0o777)), Ok(()));
        check(mode(Some(0o1777)), Err("mode"));
        check(bounded("n", None, 7, 9), Ok(()));
        check(bounded("n", Some(9), 7, 9), Ok(()));
        check(bounded("n", Some(0), 7, 9), Err("n"));
        check(bounded("n", Some(10), 7, 9), Err("n"));
        check(bounded("n", Some(-1), 7, 9), Err("n"));
        check(source(0), Ok(()));
        check(source(9), Err("source"));
    }

    #[test]
    fn a_key_hashes_the_request_and_the_method() {
        let message = v1::RemoveRequest { path: "/a".to_owned(), ..Default::default() };
        let other = v1::RemoveRequest { path: "/b".to_owned(), ..Default::default() };
        let first = key("k", "Remove", &message).unwrap();
        assert_eq!(first, key("k", "Remove", &message).unwrap());
        assert_ne!(first.request(), key("k", "Remove", &other).unwrap().request());
        assert_ne!(first.request(), key("k", "Move", &message).unwrap().request());
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            check(key(bad, "Remove", &message), Err("idempotency_key"));
        }
    }

    #[test]
    fn a_generation_is_a_number_or_nothing() {
        let check = |value: Option<&'static str>, expect| {
            let mut metadata = MetadataMap::new();
            if let Some(value) = value {
                metadata.insert(GENERATION_METADATA, value.parse().unwrap());
            }
            assert_eq!(generation(&metadata).ok(), expect);
        };
        check(None, Some(None));
        check(Some("12"), Some(Some(12)));
        for bad in ["", "-1", "x", "99999999999999999999"] {
            check(Some(bad), None);
        }
    }

    #[test]
    fn a_request_has_a_size() {
        let message = v1::RemoveRequest { path: "/abc".to_owned(), ..Default::default() };
        check(size(&message, 6), Ok(()));
        check(size(&message, 5), Err("too large"));
    }
}
