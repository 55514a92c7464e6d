//! A real machine: QEMU without hardware acceleration, Debian's kernel, an ext4 disk, and `dormoused guest` inside. What
//! `tests/machine/build` makes is handed over in the environment variable `DORMOUSE_MACHINE`; without it, or without QEMU,
//! there is no machine, and whoever wanted one says so.
//!
//! The machine's network reaches nobody; one port of it is reached through a [`Wire`] of this process, which stays the same
//! when the monitor is another one after a suspend, and which can be cut.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::skip;

/// Most time for a step of a machine: without acceleration, and on a busy host, each may take long.
const PATIENCE: Duration = Duration::from_secs(600);
/// Of the machine, in MiB.
const MEMORY: &str = "192";
/// What every call to the agent inside must show, as `tests/machine/build` says.
pub const TOKEN: &str = "machine";

/// What a machine is made of.
pub struct Kit {
    directory: PathBuf,
}

impl Kit {
    /// What the environment names; where a machine cannot be had, nothing after noting the skip.
    pub fn find(what: &str) -> Option<Self> {
        let Some(directory) = std::env::var_os("DORMOUSE_MACHINE") else {
            skip::skip(what, "DORMOUSE_MACHINE is not set; tests/run makes a machine and sets it");
            return None;
        };
        if let Err(error) = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status() {
            skip::skip(what, &format!("qemu-system-x86_64 (Debian package qemu-system-x86) does not start: {error}"));
            return None;
        }
        Some(Self { directory: directory.into() })
    }
}

/// A running machine; killed when it is dropped.
pub struct Machine {
    monitor: Child,
    console: ChildStdin,
    lines: mpsc::Receiver<String>,
    control: Control,
    /// Where the monitor forwards to the agent inside.
    pub port: u16,
}

impl Machine {
    /// Boots from this disk; when this returns the agent inside serves.
    ///
    /// # Panics
    /// With the console where it does not come up.
    pub fn boot(kit: &Kit, disk: &Path, place: &Path) -> Self {
        let mut machine = Self::start(kit, disk, place, None);
        machine.wait_for("{\"ready\":true");
        machine
    }

    /// Goes on from what [`Machine::save`] wrote, in a new monitor.
    pub fn from_memory(kit: &Kit, disk: &Path, place: &Path, memory: &Path) -> Self {
        let mut machine = Self::start(kit, disk, place, Some(memory));
        machine.control.wait_event("MIGRATION", "completed");
        machine
    }

    fn start(kit: &Kit, disk: &Path, place: &Path, memory: Option<&Path>) -> Self {
        let socket = place.join("monitor.sock");
        // It may be there from the machine of before.
        let _ = fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).expect("a socket is bound");
        let log = place.join("monitor.log");
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-M", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", MEMORY])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .arg("-kernel")
            .arg(kit.directory.join("kernel"))
            .arg("-initrd")
            .arg(kit.directory.join("initramfs"))
            .args(["-append", "console=ttyS0 quiet panic=-1", "-serial", "stdio"])
            .arg("-drive")
            .arg(format!("if=none,id=disk,format=raw,file={},cache=writeback,discard=unmap", disk.display()))
            .args(["-device", "virtio-blk-pci,drive=disk"])
            .args(["-netdev", "user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:0-10.0.2.15:1024"])
            .args(["-device", "virtio-net-pci,netdev=net,romfile="])
            .arg("-chardev")
            .arg(format!("socket,id=control,path={}", socket.display()))
            .args(["-mon", "chardev=control,mode=control"]);
        if let Some(memory) = memory {
            command.arg("-incoming").arg("defer");
            assert!(memory.exists(), "the machine's memory was saved");
        }
        let mut monitor = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).expect("a log is created"))
            .spawn()
            .expect("the monitor starts");
        let console = monitor.stdin.take().expect("its stdin is piped");
        let output = BufReader::new(monitor.stdout.take().expect("its stdout is piped"));
        let (said, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                if said.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    return;
                }
            }
        });
        let (taken, connection) = mpsc::channel();
        std::thread::spawn(move || taken.send(listener.accept()));
        let Ok(Ok((stream, _))) = connection.recv_timeout(PATIENCE) else {
            let _ = monitor.kill();
            panic!("the monitor does not speak: {}", fs::read_to_string(&log).unwrap_or_default());
        };
        let mut machine = Self { monitor, console, lines, control: Control::new(stream), port: 0 };
        machine.control.ask("qmp_capabilities", json!({}));
        if let Some(memory) = memory {
            machine.control.ask("migrate-set-capabilities", events());
            machine.control.ask("migrate-incoming", json!({"uri": format!("exec:cat {}", memory.display())}));
        }
        machine.port = machine.forwarded();
        machine
    }

    /// The port of this host that leads to the agent: the monitor chose a free one.
    fn forwarded(&mut self) -> u16 {
        let table = self.control.ask("human-monitor-command", json!({"command-line": "info usernet"}));
        let table = table.as_str().expect("a table").to_owned();
        let line = table.lines().find(|line| line.contains("HOST_FORWARD")).unwrap_or_else(|| panic!("{table}"));
        // TCP[HOST_FORWARD]  descriptor  source address, port  destination address, port  two queues
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3).and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{table}"))
    }

    /// The machine's console up to a line that begins so.
    fn wait_for(&mut self, beginning: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with(beginning) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("{beginning:?} never came from the console ({error}): {}", seen.join("\n")),
            }
        }
    }

    /// Runs a command of the machine's shell to its end, beside the agent.
    pub fn command(&mut self, line: &str) {
        self.begin(line);
        self.ended(line);
    }

    /// Begins such a command.
    pub fn begin(&mut self, line: &str) {
        writeln!(self.console, "{line}").expect("the console takes a line");
    }

    /// Waits for the end of such a command.
    pub fn ended(&mut self, line: &str) {
        let ended = self.wait_for("ended: ");
        assert_eq!(ended, "ended: 0", "{line}");
    }

    /// Stops its processor; it stays in memory.
    pub fn pause(&mut self) {
        self.control.ask("stop", json!({}));
    }

    /// Lets its processor go on.
    pub fn go_on(&mut self) {
        self.control.ask("cont", json!({}));
    }

    /// Stops it and writes its memory to a file; the monitor is gone when this returns.
    pub fn save(mut self, memory: &Path) {
        self.pause();
        self.control.ask("migrate-set-capabilities", events());
        self.control.ask("migrate", json!({"uri": format!("exec:cat > {}", memory.display())}));
        self.control.wait_event("MIGRATION", "completed");
        self.control.ask("quit", json!({}));
        self.monitor.wait().expect("its exit is known");
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.monitor.kill();
        let _ = self.monitor.wait();
    }
}

fn events() -> Value {
    json!({"capabilities": [{"capability": "events", "state": true}]})
}

/// The monitor's own protocol (QMP, `docs/interop/qmp-spec.rst` of QEMU): a line of JSON each way, events between.
struct Control {
    stream: UnixStream,
    lines: std::io::Lines<BufReader<UnixStream>>,
    events: Vec<Value>,
}

impl Control {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is set");
        let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
        let mut this = Self { stream, lines, events: Vec::new() };
        let greeting = this.next();
        assert!(greeting.get("QMP").is_some(), "{greeting}");
        this
    }

    fn next(&mut self) -> Value {
        let line = self.lines.next().expect("the monitor is there").expect("it answers in time");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let asked = json!({"execute": command, "arguments": arguments});
        writeln!(self.stream, "{asked}").expect("the monitor listens");
        loop {
            let said = self.next();
            if said.get("event").is_some() {
                self.events.push(said);
                continue;
            }
            return said.get("return").cloned().unwrap_or_else(|| panic!("{command}: {said}"));
        }
    }

    /// Waits for an event whose data have this status.
    fn wait_event(&mut self, name: &str, status: &str) {
        loop {
            let event = match self.events.pop() {
                Some(event) => event,
                None => self.next(),
            };
            if event["event"] == name {
                assert_ne!(event["data"]["status"], "failed", "{event}");
                if event["data"]["status"] == status {
                    return;
                }
            }
        }
    }
}

/// A port of this host that leads to the machine's agent.
pub struct Wire {
    /// Where it is reached.
    pub address: SocketAddr,
    /// The monitor's port.
    to: Arc<watch::Sender<u16>>,
    /// Whether what the machine says is thrown away.
    swallow: Arc<watch::Sender<bool>>,
    /// Counts the cuts of all connections.
    cut: Arc<watch::Sender<u64>>,
}

impl Wire {
    /// To this port. Must be called within a tokio runtime, and ends with it.
    pub async fn new(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is bound");
        let address = listener.local_addr().expect("it has an address");
        let (to, swallow, cut) =
            (Arc::new(watch::Sender::new(port)), Arc::new(watch::Sender::new(false)), Arc::new(watch::Sender::new(0)));
        let wire = Self { address, to: to.clone(), swallow: swallow.clone(), cut: cut.clone() };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (port, swallow, mut cut) = (*to.borrow(), swallow.subscribe(), cut.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = carried(stream, port, swallow) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        wire
    }

    /// To another port, for new connections; those that are open end.
    pub fn lead_to(&self, port: u16) {
        self.to.send_replace(port);
        self.cut();
    }

    /// From now on what the machine says is thrown away, or no more.
    pub fn swallow(&self, swallow: bool) {
        self.swallow.send_replace(swallow);
    }

    /// Ends every connection.
    pub fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

async fn carried(mut from_host: TcpStream, port: u16, swallow: watch::Receiver<bool>) {
    // A monitor that is gone takes no connection; then this one ends too.
    let Ok(mut machine) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut from_machine, mut to_machine) = machine.split();
    let (mut from_host, mut to_host) = from_host.split();
    let there = async {
        let _ = tokio::io::copy(&mut from_host, &mut to_machine).await;
    };
    let back = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from_machine.read(&mut bytes).await {
            if !*swallow.borrow() && to_host.write_all(&bytes[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}
