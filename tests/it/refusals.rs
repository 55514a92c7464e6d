//! Errors that no ordinary request meets: every one still has exactly one ErrorInfo, and says what the contract says.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use dormouse_proto::files::v1::{self as pb, ErrorReason};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{ASLEEP, LIVE, Site, put},
    wire::{self, frame},
    world::Setup,
};
use prost::Message as _;

const MEBIBYTE: usize = 1 << 20;

/// A Patch whose encoding has exactly so many bytes.
fn patch_of(size: usize) -> pb::PatchRequest {
    let request = |bytes: usize| pb::PatchRequest {
        idempotency_key: "k".to_owned(),
        ..ask::content(LIVE, "/large", vec![b'x'; bytes])
    };
    let overhead = request(size / 2).encoded_len() - size / 2;
    let request = request(size - overhead);
    assert_eq!(request.encoded_len(), size);
    request
}

/// Sends bare bytes as the one message of a call.
fn send(site: &Site, method: &str, message: &[u8]) -> Result<Bytes, Refusal> {
    let socket = site.world.unix.clone();
    Ok(site.wait(wire::call(&socket, method, &[], frame(message)))?)
}

#[test]
fn a_request_has_at_most_7_mib() {
    let site = Site::live(|_| {});
    site.patch(patch_of(7 * MEBIBYTE)).expect("7 MiB are fine");
    for size in [7 * MEBIBYTE + 1, 8 * MEBIBYTE, 8 * MEBIBYTE + 1, 9 * MEBIBYTE] {
        let refusal = site.patch(patch_of(size)).expect_err("too large").expect(ErrorReason::RequestTooLarge);
        refusal.with("limit_bytes", "7340032").with("size_bytes", &size.to_string());
        let refusal = send(&site, "Patch", &patch_of(size).encode_to_vec()).expect_err("too large");
        refusal.expect(ErrorReason::RequestTooLarge).with("limit_bytes", "7340032");
    }
    // The same for a call that streams its answer, and for one message of a Write.
    let search = pb::SearchRequest { pattern: "x".repeat(7 * MEBIBYTE), ..ask::search(LIVE, "/", "") };
    site.search(search).expect_err("too large").expect(ErrorReason::RequestTooLarge);
    let refusal = site
        .write(ask::write(LIVE, "/w"), vec![vec![b'x'; 9 * MEBIBYTE].into()], pb::WriteFinish::default())
        .expect_err("too large");
    refusal.expect(ErrorReason::RequestTooLarge);
}

#[test]
fn text_that_is_not_utf_8_is_a_bad_request() {
    let site = Site::live(|root| put(root, "a", "x"));
    for method in ["Stat", "Read", "List", "Search", "Patch", "Remove", "Move", "MakeDirectory", "GetCapabilities"] {
        // Field 1, length-delimited: the workspace, which is text.
        let refusal = send(&site, method, b"\x0a\x02\xff\xfe").expect_err("no text");
        assert_eq!(refusal.reason, ErrorReason::InvalidRequest, "{method}: {refusal:?}");
    }
    let refusal = send(&site, "Write", b"\x0a\x04\x0a\x02\xff\xfe").expect_err("no text");
    refusal.expect(ErrorReason::InvalidRequest);
}

#[test]
fn bytes_that_are_no_message_are_a_bad_request() {
    let site = Site::live(|_| {});
    for message in [&b"\x0a"[..], b"\x0a\xff", b"\x07\x07\x07", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
        send(&site, "Stat", message).expect_err("no message").expect(ErrorReason::InvalidRequest);
    }
    // Fields of a later version are no error.
    let mut known = ask::stat(LIVE, "/").encode_to_vec();
    known.extend_from_slice(b"\xba\x3e\x03abc");
    send(&site, "Stat", &known).expect("an unknown field is left alone");
    // Neither is no message at all, in words of its own.
    let socket = site.world.unix.clone();
    let status = site.wait(wire::call(&socket, "Stat", &[], Bytes::new())).expect_err("no message");
    let _ = Refusal::from(status);
    let cut = frame(&ask::stat(LIVE, "/").encode_to_vec());
    let status = site.wait(wire::call(&socket, "Stat", &[], cut.slice(..cut.len() - 1))).expect_err("half a message");
    let _ = Refusal::from(status);
}

#[test]
fn a_workspace_is_looked_up_before_its_files() {
    let site = Site::live(|_| {});
    let check = |refusal: Refusal| {
        refusal.expect(ErrorReason::WorkspaceNotFound).with("workspace", "t/unknown");
    };
    check(site.stat(ask::stat("t/unknown", "/")).expect_err("unknown"));
    check(site.read(ask::read("t/unknown", "/")).expect_err("unknown"));
    check(site.list(ask::list("t/unknown", "/")).expect_err("unknown"));
    check(site.search(ask::search("t/unknown", "/", "x")).expect_err("unknown"));
    check(site.patch(ask::content("t/unknown", "/a", &b""[..])).expect_err("unknown"));
    check(site.remove(ask::remove("t/unknown", "/a")).expect_err("unknown"));
    check(site.rename(ask::rename("t/unknown", "/a", "/b")).expect_err("unknown"));
    check(site.make_directory(ask::make_directory("t/unknown", "/a")).expect_err("unknown"));
    check(site.write(ask::write("t/unknown", "/a"), vec![], pb::WriteFinish::default()).expect_err("unknown"));
    let capabilities = pb::GetCapabilitiesRequest { workspace: "t/unknown".to_owned() };
    check(site.wait(site.files.clone().get_capabilities(capabilities)).expect_err("unknown").into());
    // Its shape is looked at before it is looked up.
    for (path, name) in [("relative", "t/unknown"), ("/", ""), ("/", "../x"), ("/", "a//b"), ("/", &"n".repeat(129))] {
        site.stat(ask::stat(name, path)).expect_err("no shape").expect(ErrorReason::InvalidRequest);
    }
}

#[test]
fn a_long_path_in_an_error_keeps_the_status_small() {
    let site = Site::both("8M", |_| {});
    let path = format!("/{}", "d/".repeat(2_040));
    for workspace in [LIVE, ASLEEP] {
        site.stat(ask::stat(workspace, &path)).expect_err("nothing is there").expect(ErrorReason::FileNotFound);
        let odd = format!("/{}", "\u{1F600}/".repeat(800));
        site.stat(ask::stat(workspace, &odd)).expect_err("nothing is there").expect(ErrorReason::FileNotFound);
    }
    let long = "x".repeat(60_000);
    put(&site.root, "a", &long);
    let old = format!("y{}", "x".repeat(50_000));
    site.patch(ask::patch(LIVE, "/a", &old, "z")).expect_err("no match").expect(ErrorReason::EditNoMatch);
}

/// A call that takes seconds: the revision of a large hole.
fn slow(root: &Path) {
    std::fs::File::create(root.join("hole")).and_then(|file| file.set_len(40 << 30)).expect("a sparse file");
}

#[test]
fn the_callers_deadline_ends_a_call_with_details() {
    let site = Site::live(slow);
    let request = pb::StatRequest { include_revision: true, ..ask::stat(LIVE, "/hole") };
    let socket = site.world.unix.clone();
    let begin = std::time::Instant::now();
    let status = site
        .wait(wire::call(&socket, "Stat", &[("grpc-timeout", "300m")], frame(&request.encode_to_vec())))
        .expect_err("its time is over");
    Refusal::from(status).expect(ErrorReason::DeadlineExceeded);
    let elapsed = begin.elapsed();
    assert!(elapsed >= Duration::from_millis(250) && elapsed < Duration::from_secs(3), "{elapsed:?}");
    // The same where a stream has begun: its end says why, and it has no `end`.
    let body = frame(&ask::bytes(LIVE, "/hole", 0, 0).encode_to_vec());
    let (bytes, status) = site.wait(async {
        let mut call = wire::begin(&socket, &wire::method("Read"), &[("grpc-timeout", "300m")]).await;
        call.send(body, true).await;
        call.finish().await
    });
    assert!(!bytes.is_empty(), "it had begun");
    Refusal::from(status.expect_err("its time is over")).expect(ErrorReason::DeadlineExceeded);
}

#[test]
fn a_deadline_that_makes_no_sense_is_refused_or_ignored_and_never_breaks_the_stream() {
    let site = Site::live(|_| {});
    let socket = site.world.unix.clone();
    for timeout in ["", "1", "soon", "-1S", "99999999999999S"] {
        let body = frame(&ask::stat(LIVE, "/").encode_to_vec());
        if let Err(status) = site.wait(wire::call(&socket, "Stat", &[("grpc-timeout", timeout)], body)) {
            Refusal::from(status).expect(ErrorReason::InvalidRequest);
        }
    }
}

#[test]
fn more_calls_than_the_host_takes_are_sent_away_with_a_time_to_come_back() {
    let setup = Setup::new().config("[limits]\ncalls_max = 4\n");
    let site = Site::live_with(setup, slow);
    let refusal = site.wait(async {
        // Readers that do not read hold their places to the end of their answers.
        let mut held = Vec::new();
        loop {
            let read = site.files.clone().read(ask::read(LIVE, "/hole")).await;
            match read {
                Ok(stream) => held.push(stream),
                Err(status) => break (held.len(), Refusal::from(status)),
            }
            assert!(held.len() <= 4, "no more than four are taken");
        }
    });
    assert!(refusal.0 >= 2, "a workspace gets half of the host's places: {refusal:?}");
    refusal.1.expect(ErrorReason::HostOverloaded);
    // Their places are free again once they have gone.
    let begin = std::time::Instant::now();
    while let Err(refusal) = site.stat(ask::stat(LIVE, "/")) {
        refusal.expect(ErrorReason::HostOverloaded);
        assert!(begin.elapsed() < Duration::from_secs(10), "the places come free");
    }
}

#[test]
fn an_unknown_method_is_unimplemented() {
    let site = Site::live(|_| {});
    let socket = site.world.unix.clone();
    let status = site.wait(wire::call(&socket, "Teleport", &[], frame(b""))).expect_err("there is no such method");
    assert_eq!(status.code(), tonic::Code::Unimplemented);
}

#[test]
fn a_generation_that_is_newer_than_the_hosts_refuses_every_call() {
    let site = Site::both("8M", |root| put(root, "a", "x"));
    let with = |generation: &str, workspace: &str| {
        let mut request = tonic::Request::new(ask::stat(workspace, "/a"));
        let value = generation.parse().expect("a metadata value");
        request.metadata_mut().insert(dormouse_proto::GENERATION_METADATA, value);
        site.wait(site.files.clone().stat(request)).map_err(Refusal::from)
    };
    for workspace in [LIVE, ASLEEP] {
        let known = site.stat(ask::stat(workspace, "/a")).expect("it is there").origin.expect("an origin").generation;
        for older in [known, known - 1] {
            if older >= 0 {
                with(&older.to_string(), workspace).expect("the host knows as much or more");
            }
        }
        with(&(known + 1).to_string(), workspace)
            .expect_err("the disk has moved on")
            .expect(ErrorReason::StaleGeneration)
            .with("workspace", workspace)
            .with("generation", &known.to_string());
        for nonsense in ["x", "1.5", "99999999999999999999"] {
            with(nonsense, workspace).expect_err("no number").expect(ErrorReason::InvalidRequest);
        }
    }
    let mut request = tonic::Request::new(ask::content(LIVE, "/a", &b"y"[..]));
    request.metadata_mut().insert(dormouse_proto::GENERATION_METADATA, "999999".parse().expect("a metadata value"));
    let refusal: Refusal = site.wait(site.files.clone().patch(request)).expect_err("it has moved on").into();
    refusal.expect(ErrorReason::StaleGeneration);
    assert_eq!(site.content("/a"), b"x");
}
