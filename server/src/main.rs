//! `dormoused`: configuration → log → host → serve → drain.

use std::{error::Error, io::Write, process::ExitCode, time::Duration};

use clap::Parser;
use dormouse_server::{
    Config, Server, demo,
    flags::{Command, Flags},
    guest::GuestServer,
    telemetry::log::{self, LogConfig},
};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long work that is left after the drain may hold up the exit.
const LEFT_TIME_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let flags = Flags::parse();
    take_all_descriptors();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error),
    };
    let ended = match flags.command {
        Command::Serve(flags) => match flags.config() {
            Ok(config) => runtime.block_on(serve(config)),
            Err(error) => return refuse(&error),
        },
        Command::Guest(flags) => runtime.block_on(async {
            log::start(&LogConfig { format: flags.log_format, level: flags.log_level.clone() })?;
            let mut signals = Signals::new()?;
            let guest = GuestServer::start(&flags.options()?).await?;
            print(&format!("{}\n", guest.ready_line()))?;
            signals.any().await;
            guest.shutdown().await;
            Ok(())
        }),
        Command::Demo => runtime.block_on(async {
            log::start(&LogConfig { level: "warn".to_owned(), ..LogConfig::default() })?;
            let mut signals = Signals::new()?;
            let demo = demo::Demo::start().await?;
            print(&demo.to_try())?;
            signals.any().await;
            demo.end().await;
            Ok(())
        }),
    };
    runtime.shutdown_timeout(LEFT_TIME_MAX);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(error.as_ref()),
    }
}

/// A directory workspace holds five descriptors, and the usual soft limit of 1,024 is kept for programs that use select(2),
/// which this one does not: the hard limit is what counts (getrlimit(2), `RLIMIT_NOFILE`).
fn take_all_descriptors() {
    // Where it cannot be raised, the agent works with fewer.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

async fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    log::start(&config.log)?;
    let mut signals = Signals::new()?;
    let server = Server::start(&config).await?;
    print(&format!("{}\n", server.ready_line()))?;
    signals.any().await;
    tracing::info!("going down");
    server.shutdown().await;
    Ok(())
}

/// SIGTERM and SIGINT, caught from the moment this is made: before anybody can learn that the agent is there.
struct Signals(Signal, Signal);

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self(signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    }

    async fn any(&mut self) {
        tokio::select! {
            _ = self.0.recv() => {}
            _ = self.1.recv() => {}
        }
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Says why, with all its causes, and ends with 1.
fn refuse(error: &dyn Error) -> ExitCode {
    let mut text = format!("dormoused: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    eprintln!("{text}");
    ExitCode::FAILURE
}
