//! The house keeps its walls: who may know whom, how long a file may be, and what never appears in it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the project").to_owned()
}

/// What each package may depend on, beside its development. A new line here is a design decision.
const WALLS: &[(&str, &[&str])] = &[
    ("dormouse-proto", &["prost", "prost-types", "tonic", "tonic-prost"]),
    (
        "dormouse-files",
        &[
            "bytes",
            "crc32c",
            "grep-matcher",
            "grep-regex",
            "ignore",
            "memchr",
            "regex",
            "regex-automata",
            "regex-syntax",
            "sha2",
            "thiserror",
            "unicode-normalization",
        ],
    ),
    ("dormouse-lease", &["libc"]),
    ("dormouse-freeze", &["libc"]),
    ("dormouse-freeze", &["libc"]),
    ("dormouse-live", &["bytes", "crc32c", "dormouse-files", "dormouse-lease", "rustix", "sha2", "thiserror"]),
    ("dormouse-map", &["libc", "memmap2", "rustix"]),
    (
        "dormouse-disk",
        &[
            "caseless",
            "crc32c",
            "dormouse-files",
            "dormouse-map",
            "miniz_oxide",
            "nix",
            "rustix",
            "sha2",
            "thiserror",
            "unicode-normalization",
        ],
    ),
    (
        "dormouse-server",
        &[
            "bytes",
            "clap",
            "crc32c",
            "dormouse-disk",
            "dormouse-files",
            "dormouse-freeze",
            "dormouse-live",
            "dormouse-proto",
            "flate2",
            "http",
            "http-body",
            "http-body-util",
            "humantime",
            "hyper-util",
            "nix",
            "prost",
            "prost-types",
            "serde",
            "serde_json",
            "sha2",
            "tempfile",
            "thiserror",
            "tokio",
            "tokio-stream",
            "toml",
            "tonic",
            "tonic-health",
            "tonic-prost",
            "tonic-reflection",
            "tonic-types",
            "tower",
            "tracing",
            "tracing-subscriber",
        ],
    ),
    (
        "dormouse-client",
        &[
            "base64",
            "bytes",
            "clap",
            "clap_complete",
            "clap_mangen",
            "crc32c",
            "dormouse-proto",
            "http",
            "http-body",
            "http-body-util",
            "humantime",
            "hyper-util",
            "prost",
            "prost-types",
            "rmcp",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "similar",
            "tempfile",
            "thiserror",
            "tokio",
            "tokio-rustls",
            "tokio-stream",
            "toml",
            "tonic",
            "tonic-types",
            "tower",
            "uuid",
        ],
    ),
];

fn metadata() -> serde_json::Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo's metadata is JSON")
}

#[test]
fn each_package_knows_only_whom_it_may() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        if name == "dormouse-tests" {
            continue;
        }
        let (_, allowed) =
            WALLS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} has no wall"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let kind = dependency["kind"].as_str();
            let other = dependency["name"].as_str().expect("a name");
            assert!(kind.is_some() || allowed.contains(&other), "{name} must not know {other}");
        }
    }
    let names: BTreeSet<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    for (name, _) in WALLS {
        assert!(names.contains(name), "there is a wall for {name}, which is not there");
    }
}

/// Every Rust file of the product under a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder lists") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_too_big_and_each_says_what_it_is_for() {
    let mut found = Vec::new();
    for folder in ["proto", "server", "client", "tests"] {
        sources(&root().join(folder), &mut found);
    }
    assert!(found.len() > 50, "the product's sources are found");
    for path in found {
        let text = fs::read_to_string(&path).expect("a source is text");
        let lines = text.lines().count();
        assert!(lines <= 800, "{} has {lines} lines: is it two rooms?", path.display());
        assert!(text.starts_with("//!") || text.starts_with("#!["), "{} does not say what it is for", path.display());
    }
}

#[test]
fn only_the_edge_makes_statuses_and_only_the_lane_spawns_blocking() {
    let mut found = Vec::new();
    sources(&root().join("server/src"), &mut found);
    for path in found {
        let text = fs::read_to_string(&path).expect("a source is text");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let name = path.strip_prefix(root().join("server/src")).expect("it is beneath").to_owned();
        if !name.starts_with("rpc/status") && name != Path::new("rpc/status.rs") {
            for maker in [
                "Status::new(",
                "Status::with_",
                "Status::internal(",
                "Status::invalid_argument(",
                "Status::unavailable(",
            ] {
                assert!(!code.contains(maker), "{} makes a status", name.display());
            }
        }
        if name != Path::new("rpc/lane.rs") {
            assert!(!code.contains("spawn_blocking("), "{} spawns a blocking task", name.display());
        }
    }
}

#[test]
fn every_reason_is_explained() {
    let page = fs::read_to_string(root().join("docs/reasons.md")).expect("the page is there");
    let explained: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()).collect();
    let reasons = (1..100).filter_map(|number| dormouse_proto::files::v1::ErrorReason::try_from(number).ok());
    let mut count = 0;
    for reason in reasons {
        assert!(explained.contains(reason.wire_name()), "docs/reasons.md does not explain {}", reason.wire_name());
        count += 1;
    }
    assert!(count > 40, "the reasons are found");
}
