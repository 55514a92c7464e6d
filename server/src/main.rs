//! `dormoused`: configuration → log → host → serve → drain.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use dormouse_server::{
    Config, Server, demo,
    flags::{Command, Flags},
    telemetry::log,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long work that is left after the drain may hold up the exit.
const LEFT_TIME_MAX: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let flags = Flags::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&error),
    };
    let ended = match flags.command {
        Command::Serve(flags) => match flags.config() {
            Ok(config) => runtime.block_on(serve(config)),
            Err(error) => return refuse(&error),
        },
        Command::Demo => runtime.block_on(async {
            let orders = Orders::listen()?;
            let demo = demo::Demo::start().await?;
            print(&demo.to_try())?;
            orders.wait().await;
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

async fn serve(config: Config) -> Result<(), Box<dyn Error>> {
    log::start(&config.log)?;
    let orders = Orders::listen()?;
    let server = Server::start(&config).await?;
    print(&format!("{}
", server.ready_line()))?;
    orders.wait().await;
    tracing::info!("going down");
    server.shutdown().await;
    Ok(())
}

/// Orders to go down, heard from the moment this is made: one that comes before the agent says that it is ready, or right
/// after, ends it in order too.
struct Orders {
    terminated: Signal,
    interrupted: Signal,
}

impl Orders {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminated: signal(SignalKind::terminate())?, interrupted: signal(SignalKind::interrupt())? })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminated.recv() => {}
            _ = self.interrupted.recv() => {}
        }
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
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
