//! What a configuration may say, and by which words it is refused.

use super::*;
use crate::host::spec::{GuestAddress, Spec};

const EXAMPLE: &str = include_str!("../../deploy/dormoused.toml");
const CONTAINER: &str = include_str!("../../deploy/dormoused.container.toml");

fn parse(text: &str) -> Result<Config, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

#[track_caller]
fn check(text: &str, expect: Result<(), &str>) {
    let found = parse(text).and_then(|config| config.check().map(drop).map_err(|error| error.to_string()));
    match (found, expect) {
        (Ok(()), Ok(())) => {}
        (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
        (found, expect) => panic!("{text}: {found:?}, not {expect:?}"),
    }
}

#[test]
fn nothing_is_a_configuration() {
    check("", Ok(()));
    assert_eq!(parse("").unwrap(), Config::default());
}

#[test]
fn the_example_names_every_key_with_its_default() {
    let example = parse(EXAMPLE).unwrap();
    let defaults = Config {
        listen: example.listen.clone(),
        host_listen: example.host_listen.clone(),
        state_dir: "/var/lib/dormouse".into(),
        workspaces: example.workspaces.clone(),
        ..Config::default()
    };
    assert_eq!(example, defaults);
    assert_eq!(example.listen, [Address::Unix("/run/dormouse/files.sock".into())]);
    assert_eq!(example.host_listen, [Address::Unix("/run/dormouse/host.sock".into())]);
    example.check().unwrap();
    // Every key of the structs is in the text: leaving one out of the example would leave a reader in the dark.
    for key in [
        "listen",
        "host_listen",
        "state_dir",
        "roots",
        "socket_roots",
        "device_roots",
        "guest_tcp_ports",
        "disable_features",
        "request_bytes_max",
        "patch_file_bytes_max",
        "offline_read_bytes_max",
        "offline_revision_bytes_max",
        "offline_budget",
        "search_budget",
        "calls_max",
        "drain",
        "index",
        "index_memory_bytes_max",
        "index_disk_bytes_max",
        "serve_unsealed",
        "clone",
        "retention",
        "retention_max",
        "journal_bytes_max",
        "connect",
        "ping",
        "ping_lost",
        "pause",
        "resume",
        "timeout",
        "format",
        "level",
    ] {
        assert!(EXAMPLE.lines().any(|line| line.split('=').next().is_some_and(|left| left.trim() == key)), "{key}");
    }
}

#[test]
fn the_containers_configuration_parses() {
    assert_eq!(parse(CONTAINER).unwrap().roots, [PathBuf::from("/srv/workspaces")]);
}

#[test]
fn an_unknown_key_is_named() {
    check("listne = []", Err("listne"));
    check("[limits]\ncalls = 1", Err("calls"));
    check("[[workspace]]\nname = \"a\"\ndirectory = \"/\"\nroot = \"/\"", Err("root"));
    check("[[workspace]]\nname = \"a\"\ndisk = { path = \"/d\", fs = \"ext4\" }", Err("fs"));
}

#[test]
fn a_value_that_makes_no_sense_is_refused_by_its_key() {
    check("listen = []", Err("listen"));
    check("listen = [\"tcp:0.0.0.0:1\"]", Err("not loopback"));
    check("listen = [\"tcp:[::]:1\"]", Err("not loopback"));
    check("listen = [\"tcp:127.0.0.1:0\", \"tcp:[::1]:0\", \"unix:/s\"]", Ok(()));
    check("listen = [\"http://127.0.0.1\"]", Err("no address"));
    check("host_listen = [\"tcp:127.0.0.1:0\"]", Err("Unix sockets only"));
    check("host_listen = []", Ok(()));
    check("state_dir = \"state\"", Err("state_dir"));
    check("disable_features = [\"file_serach\"]", Err("file_serach"));
    check("disable_features = [\"file_search\", \"offline_read\"]", Ok(()));
    check("guest_tcp_ports = \"20000-20999\"", Ok(()));
    check("guest_tcp_ports = \"2-1\"", Err("guest_tcp_ports"));
    check("[limits]\nrequest_bytes_max = 7340033", Err("limits.request_bytes_max"));
    check("[limits]\ncalls_max = 1", Err("limits.calls_max"));
    check("[limits]\ncalls_max = 257", Err("limits.calls_max"));
    check("[limits]\nsearch_budget = \"0s\"", Err("limits.search_budget"));
    check("[limits]\nsearch_budget = \"ten\"", Err("search_budget"));
    check("[offline]\nserve_unsealed = \"always\"", Err("serve_unsealed"));
    check("[idempotency]\nretention = \"2d\"", Err("idempotency.retention"));
    check("[idempotency]\nretention = \"0s\"", Err("idempotency.retention"));
    check("[idempotency]\nretention_max = \"100000y\"", Err("idempotency.retention_max"));
    check("[guest]\nping_lost = 0", Err("guest.ping_lost"));
    check("[hooks]\npause = [\"\"]", Err("hooks.pause"));
    check("[hooks]\nresume = [\"run\", \"a\\u0000b\"]", Err("hooks.resume"));
    check("[log]\nlevel = \"\"", Err("log.level"));
    check("[log]\nlevel = \"loud=very\"", Err("log.level"));
    check("roots = [\"/nowhere/at/all\"]", Err("roots"));
    check("roots = [\"/usr\", \"/usr/bin\"]", Err("within each other"));
    check("state_dir = \"/usr/state\"\nroots = [\"/usr\"]", Err("holds the state directory"));
}

#[test]
fn a_configuration_without_an_end_is_refused() {
    let refused = Config::read(Path::new("/dev/zero")).unwrap_err();
    assert!(matches!(refused, ConfigError::Read { .. }), "{refused:?}");
}

#[test]
fn a_guests_token_comes_from_a_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("token");
    let text = |guest: &str| {
        format!("[[workspace]]\nname = \"a\"\ndisk = {{ path = \"/d\" }}\n{guest}\nguest_token_file = {path:?}\n")
    };
    let guest = "guest = { tcp = \"127.0.0.1:1\" }";
    check(&text(guest), Err("workspace.guest_token_file"));
    std::fs::write(&path, "s3cret\n").unwrap();
    let checked = parse(&text(guest)).unwrap().check().unwrap();
    let Spec::Machine { guest: Some(known), .. } = &checked.workspaces[0].spec else {
        panic!("a guest was configured")
    };
    assert_eq!(known.token, "s3cret");
    check(&text(""), Err("workspace.guest_token_file"));
    for bad in ["", "two words", "two\nlines", &"x".repeat(2000)] {
        std::fs::write(&path, bad).unwrap();
        check(&text(guest), Err("printable ASCII"));
    }
}

#[test]
fn a_workspace_is_a_directory_or_a_machine() {
    let check = |body: &str, expect| check(&format!("[[workspace]]\n{body}"), expect);
    check("name = \"a\"\ndirectory = \"/\"", Ok(()));
    check("name = \"a b\"\ndirectory = \"/\"", Err("workspace.name"));
    check("name = \"a\"", Err("give a directory"));
    check("name = \"a\"\ndirectory = \"/\"\ndisk = { path = \"/d\" }", Err("neither disk nor guest"));
    check("name = \"a\"\ndisk = { path = \"/d\", partition = 0 }", Err("numbered from 1"));
    check("name = \"a\"\ndisk = { path = \"/d\", partition = 1, partition_guid = \"x\" }", Err("not both"));
    check("name = \"a\"\nstate = \"asleep\"\ndirectory = \"/\"", Err("asleep"));
    check("name = \"a\"\ndirectory = \"/\"\n[[workspace]]\nname = \"a\"\ndirectory = \"/\"", Err("given twice"));
    let machine = parse(
        "[[workspace]]\nname = \"a\"\nstate = \"suspended\"\ndisk = { path = \"/d\", format = \"qcow2\", flushes = true, \
         backing = [{ path = \"/base\", format = \"raw\" }] }\nguest = { vsock = { cid = 3, port = 1024 } }",
    );
    let checked = machine.unwrap().check().unwrap();
    let Spec::Machine { guest, disks } = &checked.workspaces[0].spec else { panic!("a machine was configured") };
    assert_eq!(disks[0].layers.len(), 2);
    assert_eq!(guest.as_ref().unwrap().address, GuestAddress::Vsock { cid: 3, port: 1024 });
}
