//! What every gRPC service should have: health, reflection, and an end in order.

use std::{
    fs::File,
    net::TcpStream,
    time::{Duration, Instant},
};

use dormouse_proto::files::v1::{self as pb, ErrorReason};
use dormouse_tests::{
    ask,
    refusal::Refusal,
    site::{LIVE, Site, put, revision_of},
    trace::cpu_ticks,
    world::Setup,
};
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};
use tonic_reflection::pb::{v1, v1alpha};

fn channel(site: &Site, unix: bool) -> Channel {
    let address =
        if unix { format!("unix:{}", site.world.unix.display()) } else { format!("http://{}", site.world.tcp) };
    let endpoint = Endpoint::from_shared(address).expect("an address");
    site.wait(endpoint.connect()).expect("the agent takes connections")
}

#[test]
fn it_says_that_it_is_well() {
    let site = Site::live(|_| {});
    for unix in [true, false] {
        let mut health = HealthClient::new(channel(&site, unix));
        for service in ["", "dormouse.files.v1.FilesService"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = site.wait(health.check(request)).expect("it is known").into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
        }
        let request = HealthCheckRequest { service: "nobody".to_owned() };
        let status = site.wait(health.check(request)).expect_err("it is unknown");
        assert_eq!(status.code(), tonic::Code::NotFound);
    }
    let endpoint = Endpoint::from_shared(format!("unix:{}", site.world.host.display())).expect("an address");
    let mut health = HealthClient::new(site.wait(endpoint.connect()).expect("the agent takes connections"));
    let request = HealthCheckRequest { service: "dormouse.host.v1.HostService".to_owned() };
    assert_eq!(site.wait(health.check(request)).expect("it is known").into_inner().status(), ServingStatus::Serving);
}

#[test]
fn it_says_what_it_speaks() {
    let site = Site::live(|_| {});
    let expect = ["dormouse.files.v1.FilesService", "grpc.health.v1.Health"];
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel(&site, false));
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let answer = site.wait(async {
        let mut stream =
            client.server_reflection_info(tokio_stream::once(request)).await.expect("a stream").into_inner();
        stream.message().await.expect("an answer").expect("an answer")
    });
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(list)) = answer.message_response
    else {
        panic!("no services: {answer:?}");
    };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    assert!(expect.iter().all(|service| names.contains(service)), "{names:?}");
    assert!(!names.contains(&"dormouse.host.v1.HostService"), "the control plane's service has a listener of its own");
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel(&site, true));
    for symbol in
        ["dormouse.files.v1.FilesService", "google.rpc.ErrorInfo", "google.rpc.RetryInfo", "google.rpc.BadRequest"]
    {
        let request = v1alpha::ServerReflectionRequest {
            host: String::new(),
            message_request: Some(v1alpha::server_reflection_request::MessageRequest::FileContainingSymbol(
                symbol.to_owned(),
            )),
        };
        let answer = site.wait(async {
            let stream = client.server_reflection_info(tokio_stream::once(request)).await;
            stream.expect("a stream").into_inner().message().await.expect("an answer").expect("an answer")
        });
        assert!(
            matches!(
                answer.message_response,
                Some(v1alpha::server_reflection_response::MessageResponse::FileDescriptorResponse(_))
            ),
            "{symbol}: {answer:?}"
        );
    }
}

#[test]
fn every_method_of_the_service_answers() {
    let site = Site::live(|root| put(root, "a", "one\n"));
    site.search(ask::search(LIVE, "/", "one")).expect("Search");
    site.stat(ask::stat(LIVE, "/a")).expect("Stat");
    site.read(ask::read(LIVE, "/a")).expect("Read");
    site.list(ask::list(LIVE, "/")).expect("List");
    site.patch(ask::patch(LIVE, "/a", "one", "two")).expect("Patch");
    site.write(ask::write(LIVE, "/b"), vec!["x".into()], pb::WriteFinish { size_bytes: 1, crc32c: None })
        .expect("Write");
    site.rename(ask::rename(LIVE, "/b", "/c")).expect("Move");
    site.remove(ask::remove(LIVE, "/c")).expect("Remove");
    site.make_directory(ask::make_directory(LIVE, "/d")).expect("MakeDirectory");
    site.wait(site.files.clone().get_capabilities(pb::GetCapabilitiesRequest::default())).expect("GetCapabilities");
}

/// An agent of which everything is asked at once: a Patch that takes its time, a Read that nobody reads, and a peer that
/// says nothing.
#[test]
fn it_ends_in_order_and_within_its_bound() {
    let size = 24 << 20;
    let setup = Setup::new().config("[limits]\ndrain = \"10s\"\n");
    let mut site = Site::live_with(setup, |root| {
        File::create(root.join("hole")).and_then(|file| file.set_len(8 << 30)).expect("a sparse file");
        put(root, "a", [vec![b'x'; size], b"old 0\n".to_vec()].concat());
    });
    let silent = TcpStream::connect(&site.world.tcp).expect("the agent takes connections");
    let mut read = site.wait(site.files.clone().read(ask::read(LIVE, "/hole"))).expect("it begins").into_inner();
    site.wait(read.message()).expect("it goes on").expect("a header");
    let mut health = HealthClient::new(channel(&site, true));
    let mut watch = site.wait(health.watch(HealthCheckRequest::default())).expect("it is watched").into_inner();
    let first = site.wait(watch.message()).expect("it goes on").expect("a state");
    assert_eq!(first.status(), ServingStatus::Serving);

    let steps = (0..8).map(|step| ask::edit(&format!("old {step}\n"), &format!("old {}\n", step + 1))).collect();
    let request = ask::edits(LIVE, "/a", steps);
    let mut files = site.files.clone();
    let before = cpu_ticks(&site.world);
    let patch = site.runtime.spawn(async move { files.patch(request).await });
    let begin = Instant::now();
    while cpu_ticks(&site.world) < before + 3 && !patch.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the patch is under way");
        std::thread::yield_now();
    }
    let next = site.runtime.spawn(async move { watch.message().await });
    let (status, elapsed) = site.world.terminate();
    assert!(status.success(), "{status}:\n{}", site.world.log_text());
    assert!(elapsed < Duration::from_secs(16), "it took {elapsed:?}");
    let answer = site.wait(patch).expect("the call ends").expect("a patch under way is finished").into_inner();
    let content = site.content("/a");
    assert!(content.ends_with(b"old 8\n") && answer.durable);
    assert_eq!(answer.revision, revision_of(&content));
    if let Ok(Some(state)) = site.wait(next).expect("the watch ends") {
        assert_eq!(state.status(), ServingStatus::NotServing, "it said so before it went");
    } else {
        panic!("the watcher heard nothing before the end");
    }
    // The reader learns that its bytes are not all.
    let end = site.wait(async {
        loop {
            match read.message().await {
                Ok(Some(message)) => assert!(message.end.is_none(), "8 GiB did not come"),
                other => break other,
            }
        }
    });
    assert!(end.is_err(), "a stream that was cut does not end well");
    drop(silent);
}

#[test]
fn while_it_drains_new_calls_are_sent_elsewhere() {
    let setup = Setup::new().config("[limits]\ndrain = \"5s\"\n");
    let mut site = Site::live_with(setup, |root| {
        File::create(root.join("hole")).and_then(|file| file.set_len(8 << 30)).expect("a sparse file");
    });
    let mut read = site.wait(site.files.clone().read(ask::read(LIVE, "/hole"))).expect("it begins").into_inner();
    site.wait(read.message()).expect("it goes on").expect("a header");
    // Calls on a connection that is open already, as fast as they go, until the agent has gone.
    let mut files = site.files.clone();
    let calls = site.runtime.spawn(async move {
        let mut refusals = Vec::new();
        loop {
            match files.stat(ask::stat(LIVE, "/")).await {
                Ok(_) => {}
                // A connection that was told to go away may also just refuse.
                Err(status) if status.details().is_empty() => return refusals,
                Err(status) => {
                    refusals.push(Refusal::from(status).reason);
                    return refusals;
                }
            }
        }
    });
    let (status, elapsed) = site.world.terminate();
    assert!(status.success() && elapsed < Duration::from_secs(10), "{status} after {elapsed:?}");
    let refusals = site.wait(calls).expect("the caller ends");
    assert!(refusals.iter().all(|reason| *reason == ErrorReason::HostDraining), "{refusals:?}");
    drop(read);
}
